//! The faults of a play. They depend on the roles of nodes when the play begins.

use artillery_proto::{ChainId, MemberId};

use super::World;
use crate::faults::{Fault, Play};

impl World {
    pub(super) fn cast(&self, play: Play) -> Vec<Fault> {
        let Some(members) = self.present_members() else { return Vec::new() };
        let (Some(&head), Some(&tail)) = (members.first(), members.last()) else { return Vec::new() };
        let others = |of: usize| (0..self.nodes.len()).filter(move |&node| node != of);
        match play {
            Play::WhisperingTail => others(tail).filter(|&to| to != head).map(|to| Fault::Cut(tail, to)).collect(),
            Play::LostTail => match members.get(1) {
                Some(&second) if second != tail => vec![Fault::Isolate(tail), Fault::Cut(head, second)],
                _ => vec![Fault::Isolate(tail)],
            },
            Play::LostHead => vec![Fault::Isolate(head)],
            Play::UndialableLeader => {
                let leader = (0..self.nodes.len()).find(|&node| self.is_deciding(node));
                vec![Fault::Undialable(leader.unwrap_or(head))]
            }
            Play::DeafHead => others(head).map(|from| Fault::Cut(from, head)).collect(),
            Play::LostRest => {
                let rest = members.get(1..).unwrap_or_default();
                let outside = |node: &usize| !rest.contains(node);
                let pairs = rest.iter().flat_map(|&node| others(node).filter(outside).map(move |other| (node, other)));
                pairs.flat_map(|(node, other)| [Fault::Cut(node, other), Fault::Cut(other, node)]).collect()
            }
        }
    }

    /// The nodes that serve the first chain, from head to tail.
    fn present_members(&self) -> Option<Vec<usize>> {
        let config = self.control.as_ref()?.configs().get(ChainId(0))?;
        let at = |id: MemberId| self.ids.iter().position(|&other| other == id);
        Some(config.serving().filter_map(at).collect())
    }
}
