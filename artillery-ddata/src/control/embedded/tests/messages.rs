//! Bytes that are no message, and messages that no node should have sent.

use bytes::Bytes;
use openraft::{LogId, Vote, raft::VoteRequest};
use proptest::prelude::*;

use super::{
    super::{
        CallError, Embedded, EmbeddedSettings,
        messages::{self, Envelope, LogQuestion},
        types::RaftId,
    },
    conformance::group,
    network::founding,
};
use crate::{ClusterId, Incarnation, MemberId, control::History};

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
