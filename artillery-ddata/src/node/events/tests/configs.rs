//! Which changes of configurations are events.

use std::sync::Arc;

use artillery_proto::node::{ChangeReason, Why};

use super::*;
use crate::{
    ChainMember, Role,
    control::{
        Bootstrap, Configs, NodeInfo,
        log::{ChainChange, ConfigChange, LogEntry, Term},
    },
    driver::control::{ChangeReasons, ConfigFeed},
};

const SERVING: Role = Role::Serving;
const SYNCING: Role = Role::Syncing;

/// A cluster whose only chain changes.
pub(super) struct World {
    configs: Configs,
    feed: ConfigFeed,
    pub(super) reasons: ChangeReasons,
    pub(super) tracker: EventTracker,
}

impl World {
    pub(super) fn new() -> Self {
        let info = |name: &str| NodeInfo {
            id: id(name, 1),
            name: name.to_owned(),
            addrs: vec![([127, 0, 0, 1], 7000).into()],
            host: None,
        };
        let founding = Bootstrap::new(crate::ClusterId(7), "shop", ["me", "b", "c"].map(info).to_vec());
        let (feed, reasons) = (ConfigFeed::default(), ChangeReasons::default());
        let mut world = Self { configs: Configs::of(&founding), feed, reasons, tracker: tracker() };
        world.becomes(&[(id("me", 1), SERVING), (id("b", 1), SERVING), (id("c", 1), SERVING)]);
        assert!(world.events(0).is_empty(), "the first configuration is no event");
        world
    }

    /// Gives the chain these members.
    pub(super) fn becomes(&mut self, members: &[(MemberId, Role)]) {
        let present = self.configs.get(ChainId(0)).unwrap();
        let members = members.iter().map(|&(id, role)| ChainMember { id, role }).collect();
        let change = ChainChange { replaces: present.epoch, config: crate::ChainConfig { members, ..present.clone() } };
        let (index, change) = (self.configs.applied().next(), ConfigChange::Chains(vec![change]));
        assert_eq!(self.configs.apply(&LogEntry { index, term: Term(1), change }).unwrap().len(), 1);
        self.feed.add(&Arc::new(self.configs.clone()));
    }

    /// Hides the configurations up to now from the tracker, except for the newest one.
    fn skips(&mut self) {
        let newest = self.feed.take().pop_back();
        newest.iter().for_each(|newest| self.feed.add(newest));
    }

    /// Runs the tracker at this second. Returns a line for each event.
    pub(super) fn events(&mut self, second: u64) -> Vec<String> {
        let now = at(second * 1000);
        let configs = self.feed.take();
        let events = configs.iter().flat_map(|configs| self.tracker.configs(now, configs, &self.reasons));
        let mut events: Vec<_> = events.collect::<Vec<_>>().into_iter().map(|event| event.to_string()).collect();
        events.extend(self.tracker.tick(now).map(|event| event.to_string()));
        events
    }

    /// Records that this node has proposed a change of the member's place.
    fn proposes(&self, member: MemberId, why: Why) {
        self.reasons.add(&[ChangeReason { chain: ChainId(0), member, why }]);
    }
}

#[test]
fn a_member_that_joins_and_serves_between_two_looks_is_promoted() {
    let mut world = World::new();
    let (me, b, c, d) = (id("me", 1), id("b", 1), id("c", 1), id("d", 1));
    world.becomes(&[(me, SERVING), (b, SERVING), (c, SERVING), (d, SYNCING)]);
    world.becomes(&[(me, SERVING), (b, SERVING), (c, SERVING), (d, SERVING)]);
    world.skips();
    let events = world.events(1);
    assert!(
        matches!(&events[..], [one] if one.ends_with("copied the data of chain 0 and serves it now")),
        "{events:?}"
    );
}

#[test]
fn a_member_that_is_moved_out_and_returns_between_two_looks_is_reported_twice() {
    let mut world = World::new();
    let (me, b, c) = (id("me", 1), id("b", 1), id("c", 1));
    world.becomes(&[(b, SERVING), (c, SERVING)]);
    world.becomes(&[(b, SERVING), (c, SERVING), (me, SYNCING)]);
    world.becomes(&[(b, SERVING), (c, SERVING), (me, SERVING)]);
    let promoted = "this node has copied the data of chain 0 and serves it now";
    assert_eq!(world.events(1), ["this node was moved out of chain 0", promoted]);
}

#[test]
fn a_member_with_which_a_chain_is_opened_again_has_copied_nothing() {
    let mut world = World::new();
    world.becomes(&[(id("d", 1), SERVING)]);
    let events = world.events(1);
    assert!(!events.iter().any(|event| event.contains("copied")), "{events:?}");
    assert_eq!(events[0], "this node was moved out of chain 0: the chain was opened again without it");
}

#[test]
fn the_reason_of_a_removal_explains_no_later_one() {
    let mut world = World::new();
    let (me, b, c) = (id("me", 1), id("b", 1), id("c", 1));
    world.proposes(b, Why::Slow);
    world.becomes(&[(me, SERVING), (c, SERVING)]);
    assert_eq!(world.events(1), ["node b was moved out of chain 0: it alone makes the chain slow"]);
    world.becomes(&[(me, SERVING), (c, SERVING), (b, SYNCING)]);
    world.becomes(&[(me, SERVING), (c, SERVING), (b, SERVING)]);
    assert_eq!(world.events(2).len(), 1);
    world.becomes(&[(me, SERVING), (c, SERVING)]);
    assert_eq!(world.events(3), [""; 0], "the reason may become known");
    assert_eq!(world.events(9), ["node b was moved out of chain 0"]);
}

#[test]
fn the_farewell_of_an_earlier_start_does_not_make_a_loss_orderly() {
    let mut world = World::new();
    let (me, b, c, later) = (id("me", 1), id("b", 1), id("c", 1), id("b", 2));
    // Another leader's proposal was accepted, not this one.
    world.proposes(b, Why::Left);
    world.becomes(&[(me, SERVING), (c, SERVING), (b, SERVING), (later, SYNCING)]);
    world.becomes(&[(me, SERVING), (c, SERVING), (later, SERVING)]);
    world.becomes(&[(me, SERVING), (c, SERVING)]);
    world.events(1);
    let lost = world.events(9);
    assert!(matches!(&lost[..], [lost] if !lost.contains("leaves")), "{lost:?}");
}

#[test]
fn the_reason_of_an_opened_chain_does_not_explain_a_later_removal_of_the_member_that_opened_it() {
    let mut world = World::new();
    let (me, b, c) = (id("me", 1), id("b", 2), id("c", 1));
    world.proposes(b, Why::Reopened);
    world.becomes(&[(b, SERVING)]);
    world.becomes(&[(b, SERVING), (me, SYNCING)]);
    world.becomes(&[(b, SERVING), (me, SERVING), (c, SYNCING)]);
    world.events(1);
    world.becomes(&[(me, SERVING), (c, SYNCING)]);
    world.events(2);
    let moved = world.events(9);
    assert!(matches!(&moved[..], [moved] if !moved.contains("opened again")), "{moved:?}");
}

#[test]
fn a_full_queue_keeps_the_newest_configuration() {
    let mut world = World::new();
    let (me, b, c) = (id("me", 1), id("b", 1), id("c", 1));
    for _ in 0..100 {
        world.becomes(&[(me, SERVING), (c, SERVING)]);
        world.becomes(&[(me, SERVING), (c, SERVING), (b, SYNCING)]);
        world.becomes(&[(me, SERVING), (c, SERVING), (b, SERVING)]);
    }
    world.becomes(&[(me, SERVING), (c, SERVING)]);
    let waiting = world.feed.take();
    assert!(waiting.len() <= 32, "{}", waiting.len());
    assert_eq!(waiting.back().unwrap().applied(), world.configs.applied());
}
