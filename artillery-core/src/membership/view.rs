//! The members as reported to the application. Events result from comparing the last reports with SWIM's state and the
//! profiles.

use std::collections::BTreeMap;

use foca::State;

use super::{
    MemberState, SwimEvent, SwimMember,
    identity::SwimIdentity,
    profile::{Profile, Profiles},
};
use crate::{MemberId, NodeId};

#[derive(Debug, Clone)]
pub(super) struct MemberView {
    pub(super) identity: SwimIdentity,
    pub(super) state: MemberState,
    /// The last report. `None`: the profile is not known yet, or the member was never active.
    told: Option<SwimMember>,
}

#[derive(Debug, Default)]
pub(super) struct MemberViews {
    by_node: BTreeMap<NodeId, MemberView>,
}

impl MemberViews {
    pub(super) fn get(&self, node: &NodeId) -> Option<&MemberView> {
        self.by_node.get(node)
    }

    /// Whether SWIM knows this incarnation of the node as its latest.
    pub(super) fn knows(&self, member: &MemberId) -> bool {
        self.by_node.get(&member.node).is_some_and(|view| view.identity.member == *member)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &MemberView> {
        self.by_node.values()
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &SwimMember> {
        self.by_node.values().filter_map(|view| view.told.as_ref())
    }

    /// Updates the views from SWIM's state. `tell` receives the resulting events.
    pub(super) fn update<'a>(
        &mut self,
        swim: impl Iterator<Item = &'a foca::Member<SwimIdentity>>,
        profiles: &Profiles,
        mut tell: impl FnMut(SwimEvent),
    ) {
        let mut gone = std::mem::take(&mut self.by_node);
        for known in swim {
            let identity = *known.id();
            let profile = profiles.of(&identity.member);
            let state = state(known.state(), profile);
            let before = gone.remove(&identity.member.node);
            let told = before.and_then(|before| before.told).and_then(|told| same_member(told, &identity, &mut tell));
            let mut view = MemberView { identity, state, told };
            if let Some(profile) = profile {
                view.tell(profile, &mut tell);
            }
            self.by_node.insert(identity.member.node, view);
        }
    }
}

/// Returns `told` if it is the member of `identity`. Otherwise its node runs in another incarnation now, and `told` is
/// reported as down if it was active.
fn same_member(told: SwimMember, identity: &SwimIdentity, tell: &mut impl FnMut(SwimEvent)) -> Option<SwimMember> {
    if told.id == identity.member {
        return Some(told);
    }
    if matches!(told.state, MemberState::Alive | MemberState::Suspect) {
        tell(SwimEvent::Down(SwimMember { state: MemberState::Down, ..told }));
    }
    None
}

fn state(state: State, profile: Option<&Profile>) -> MemberState {
    match state {
        _ if profile.is_some_and(|profile| profile.left) => MemberState::Left,
        State::Alive => MemberState::Alive,
        State::Suspect => MemberState::Suspect,
        State::Down => MemberState::Down,
    }
}

impl MemberView {
    fn tell(&mut self, profile: &Profile, tell: &mut impl FnMut(SwimEvent)) {
        let active = matches!(self.state, MemberState::Alive | MemberState::Suspect);
        match &self.told {
            // The most frequent case by far.
            Some(told) if told.state == self.state && told.payload_version == profile.version => return,
            // Joining was never reported, so the end is not reported either.
            None if !active => return,
            _ => {}
        }
        let now = SwimMember {
            id: self.identity.member,
            name: profile.name.clone(),
            addr: self.identity.addr,
            payload: profile.payload.clone(),
            payload_version: profile.version,
            state: self.state,
        };
        let before = self.told.replace(now.clone());
        match &before {
            None => tell(SwimEvent::Joined(now.clone())),
            Some(before) if before.payload != now.payload => tell(SwimEvent::Payload(now.clone())),
            Some(_) => {}
        }
        if before.is_none_or(|before| before.state != now.state) {
            tell(match now.state {
                MemberState::Alive => SwimEvent::Up(now),
                MemberState::Suspect => SwimEvent::Suspect(now),
                MemberState::Down => SwimEvent::Down(now),
                MemberState::Left => SwimEvent::Left(now),
            });
        }
    }
}
