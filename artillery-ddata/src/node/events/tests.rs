mod configs;

use artillery_core::{Incarnation, MemberEvent, MemberId, NodeId, Timestamp};

use super::*;

fn at(millis: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(millis)
}

fn id(name: &str, starts: u64) -> MemberId {
    MemberId { node: NodeId::from_name(name), incarnation: Incarnation { store: 1, starts } }
}

fn tracker() -> EventTracker {
    EventTracker::new(id("me", 1))
}

#[test]
fn a_reader_that_is_too_slow_gets_the_number_of_missed_events() {
    let hub = EventHub::default();
    let mut events = hub.subscribe();
    (0..300).for_each(|_| hub.report(NodeEvent::ServesAgain));
    hub.close();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        assert_eq!(events.next().await, Some(NodeEvent::Lagged { missed: 44 }));
        let mut left = 0;
        while let Some(event) = events.next().await {
            assert_eq!(event, NodeEvent::ServesAgain);
            left += 1;
        }
        assert_eq!(left, 256);
        assert_eq!(hub.subscribe().next().await, None, "a node that has stopped has no events");
    });
}

#[test]
fn serving_changes_are_events_only_after_the_node_has_served() {
    let mut tracker = tracker();
    let no_lease = [WaitingFor::NoLease { chain: ChainId(0) }];
    assert_eq!(tracker.serving(at(0), false, &no_lease), None);
    assert_eq!(tracker.serving(at(1), true, &[]), None);
    assert_eq!(tracker.serving(at(2), false, &no_lease), Some(NodeEvent::LeaseLost));
    assert_eq!(tracker.serving(at(3), false, &no_lease), None, "one event for one change");
    let majority = [WaitingFor::Majority { away: vec!["a".into()], voters: 2 }];
    let lost = NodeEvent::MajorityLost { away: vec!["a".into()], voters: 2 };
    assert_eq!(tracker.serving(at(4), false, &majority), Some(lost));
    assert_eq!(tracker.serving(at(5), false, &majority), None);
    assert_eq!(tracker.serving(at(6), true, &[]), Some(NodeEvent::ServesAgain));
}

#[test]
fn a_node_that_flaps_reports_a_bounded_number_of_events_and_its_last_state() {
    let mut tracker = tracker();
    tracker.serving(at(0), true, &[]);
    let leader = [WaitingFor::Leader];
    let mut reported = Vec::new();
    for n in 1..=600 {
        let serves = n % 2 == 0;
        reported.extend(tracker.serving(at(n * 100), serves, if serves { &[] } else { &leader }));
    }
    assert!(reported.len() <= 12, "{} events in a minute", reported.len());
    let settled: Vec<_> = (0..20).filter_map(|n| tracker.serving(at(60_000 + n * 1000), false, &leader)).collect();
    let last = reported.into_iter().chain(settled).last().unwrap();
    assert!(matches!(last, NodeEvent::ServesNoLonger { .. }), "{last:?}");
}

#[test]
fn events_of_a_node_that_was_never_there_are_none() {
    let mut tracker = tracker();
    assert_eq!(tracker.member(at(0), &MemberEvent::Lagged { missed: 1 }), None);
    assert_eq!(tracker.tick(at(0)), None);
}
