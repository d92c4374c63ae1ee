//! The changes between two snapshots of a cluster.

use super::snapshot::{Chain, Snapshot};

/// Describes the changes, one per line; empty if only counters and watermarks changed.
pub(super) fn between(before: &Snapshot, now: &Snapshot) -> Vec<String> {
    let mut events = Vec::new();
    for chain in &now.chains {
        match before.chains.iter().find(|then| then.number == chain.number) {
            Some(then) => of_chain(then, chain, &mut events),
            None => events.push(format!("chain {} is new", chain.number)),
        }
    }
    for node in &now.nodes {
        let then = before.nodes.iter().find(|then| then.name == node.name);
        match (then.map(|then| then.reads.is_some()), node.reads.is_some()) {
            (None, _) => events.push(format!("{} is new", node.name)),
            (Some(true), false) => events.push(format!("{} doesn't answer", node.name)),
            (Some(false), true) => events.push(format!("{} answers again", node.name)),
            _ => {}
        }
    }
    let known = |name: &str| now.nodes.iter().any(|node| node.name == name);
    let gone = before.nodes.iter().filter(|node| !known(&node.name));
    events.extend(gone.map(|node| format!("{} is no longer known", node.name)));
    events
}

fn of_chain(before: &Chain, now: &Chain, events: &mut Vec<String>) {
    let number = now.number;
    if before.epoch != now.epoch {
        events.push(format!("chain {number}: epoch {} → {}", before.epoch, now.epoch));
    }
    for member in &now.members {
        let (name, role) = (&member.name, &member.role);
        match before.members.iter().find(|then| then.name == *name) {
            None => events.push(format!("chain {number}: {name} joins as {role}")),
            Some(then) if then.role != *role => {
                events.push(format!("chain {number}: {name} is {role}, was {}", then.role));
            }
            Some(_) => {}
        }
        let halted =
            |member: &super::snapshot::Member| member.state.as_ref().ok().and_then(|state| state.halted.clone());
        if let Some(why) = halted(member)
            && before.members.iter().find(|then| then.name == *name).and_then(halted).is_none()
        {
            events.push(format!("chain {number}: {name} stopped serving: {why}"));
        }
    }
    let stays = |name: &str| now.members.iter().any(|member| member.name == name);
    let gone = before.members.iter().filter(|member| !stays(&member.name));
    events.extend(gone.map(|member| format!("chain {number}: {} is out, was {}", member.name, member.role)));
}
