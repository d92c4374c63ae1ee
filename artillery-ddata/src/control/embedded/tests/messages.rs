//! Bytes that don't decode to a message, and messages that no node should have sent.

use std::sync::Arc;

use artillery_proto::{
    control::{StoreStart, StoreStarts},
    guards::Guards,
};
use bytes::Bytes;
use openraft::{LogId, Vote, raft::VoteRequest};
use proptest::prelude::*;

use super::{
    super::{
        CallError, Embedded, EmbeddedSettings,
        messages::{self, Envelope, LogQuestion},
        types::{RaftId, Speaker},
    },
    conformance::group,
    network::founding,
};
use crate::{
    ClusterId, Incarnation, MemberId,
    control::{History, StorePosition, StoreRolledBack},
};

fn envelope(to: MemberId, from: MemberId, term: u64) -> Envelope {
    let request = VoteRequest::new(Vote::new(term, RaftId(from)), None::<LogId<RaftId>>);
    let history = History::first(ClusterId(7));
    Envelope { cluster: ClusterId(7), history, to: RaftId(to), by: None, question: LogQuestion::Vote(request) }
}

async fn say(log: &Embedded, from: MemberId, envelope: &Envelope) -> Result<Bytes, CallError> {
    log.serve(from, messages::encode(envelope).unwrap()).await
}

#[tokio::test(start_paused = true)]
async fn messages_with_a_wrong_sender_or_addressee_are_refused() {
    let (_net, founding, log, _) = group(1, &EmbeddedSettings::default()).await;
    let me = founding.members[0].id;
    let other = super::network::founding(2).members[1].id;
    assert!(say(&log, other, &envelope(me, other, 3)).await.is_ok());
    let past = MemberId { incarnation: Incarnation { store: 0, starts: 1 }, ..me };
    assert_eq!(say(&log, other, &envelope(past, other, 3)).await, Err(CallError::NotMe(past)));
    let elsewhere = Envelope { cluster: ClusterId(8), ..envelope(me, other, 3) };
    assert_eq!(say(&log, other, &elsewhere).await, Err(CallError::NotMe(me)));
    assert!(matches!(say(&log, past, &envelope(me, other, 3)).await, Err(CallError::Senseless(_))));
    assert!(matches!(say(&log, other, &envelope(me, other, u64::MAX)).await, Err(CallError::Senseless(_))));
    log.stop().await;
    assert!(matches!(say(&log, other, &envelope(me, other, 3)).await, Err(CallError::Stopped(_))));
}

/// The report of the second founder about its store, in a start with this number and id.
fn speaker(starts: u64, id: u64) -> Speaker {
    let mut speaks = founding(2).members[1].id;
    speaks.incarnation.starts = starts;
    let mut starts_of = StoreStarts::default();
    starts_of.begin(StoreStart { number: starts, id, control: 20, groups: 0 });
    Speaker { id: speaks, position: StorePosition { control: 20, groups: 0, starts: starts_of } }
}

/// Two starts of copies of one directory answer concurrently.
#[tokio::test]
async fn of_two_copies_that_answer_at_once_one_is_used() {
    let (_, place) = super::network::after_keep_founding(0, 1, &founding(2));
    for (one, other) in [(1, 2), (3, 4)] {
        let (one, other) = (speaker(one, 7), speaker(one, 8 * other));
        let used = tokio::join!(place.keep_heard(one), place.keep_heard(other));
        assert_eq!(used, (Ok(()), Err(StoreRolledBack(other.id).into())));
        let kept = place
            .control
            .look(|record| (record.heard.check(one.id, one.position), record.heard.check(other.id, other.position)));
        assert_eq!(kept, (Ok(()), Err(StoreRolledBack(other.id))), "on the disk");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_speaks_of_its_own_store_alone() {
    let founding = founding(2);
    let (me, place) = super::network::after_keep_founding(0, 1, &founding);
    let net = super::network::Net::new(1, Guards::ALL);
    let (settings, wire) = (EmbeddedSettings::default(), super::network::Wire { net, from: me.id });
    let log = Embedded::start(me.clone(), &founding, settings, Arc::new(wire), Some(place)).await.unwrap();
    let from = founding.members[1].id;
    let says = |by| Envelope { by: Some(by), ..envelope(me.id, from, 3) };
    let other = Speaker { id: MemberId { node: super::network::node(2), ..from }, ..speaker(1, 7) };
    assert!(matches!(say(&log, from, &says(other)).await, Err(CallError::Senseless(_))));
    assert!(say(&log, from, &says(speaker(1, 7))).await.is_ok());
    assert_eq!(say(&log, from, &says(speaker(1, 8))).await, Err(StoreRolledBack(from).into()), "another start");
}

proptest! {
    #[test]
    fn garbage_is_refused(bytes: Vec<u8>, at in 0usize..100, byte: u8) {
        let ids = founding(2);
        let (me, other) = (ids.members[0].id, ids.members[1].id);
        let check = |bytes: &[u8]| {
            messages::decode::<Envelope>(bytes)?.check(ClusterId(7), RaftId(me), RaftId(other))
        };
        let _ = check(&bytes);
        let mut good = messages::encode(&envelope(me, other, 3)).unwrap().to_vec();
        prop_assert_eq!(check(&good), Ok(()));
        let at = at % good.len();
        good[at] = byte;
        let _ = check(&good);
        prop_assert!(check(&good[..at]).is_err());
    }
}
