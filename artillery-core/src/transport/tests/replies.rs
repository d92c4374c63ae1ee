//! Malformed, forged and missing replies.

use super::*;
use crate::error::{CloseReason, ConnectError, VersionRange};

/// The error of a node that receives `answer` to its hello.
async fn told(answer: &[u8]) -> ConnectError {
    let honest = Honest::new(TransportConfig { hello_timeout: Duration::from_millis(500), ..config() });
    let raw = Raw::new("raw");
    let addr = raw.quinn.local_addr().unwrap();
    let serve = async {
        let connection = raw.quinn.accept().await.unwrap().await.unwrap();
        let (mut send, _receive) = connection.accept_bi().await.unwrap();
        send.write_all(answer).await.unwrap();
        if !answer.is_empty() {
            send.finish().unwrap();
        }
        connection.closed().await
    };
    let (outcome, _) = within(async { tokio::join!(honest.endpoint.connect(addr), serve) }).await;
    outcome.unwrap_err()
}

#[tokio::test]
async fn malformed_replies_are_refused() {
    let accepted = hello::encode(PROTOCOL_VERSIONS, &hello::HelloReply::Accepted(Raw::new("raw").hello()));
    for answer in [&b"GET / HTTP/1.1\r\n\r\n"[..], &accepted[..accepted.len() - 1], &frame(b"short", b"")] {
        let error = told(answer).await;
        assert!(matches!(error, ConnectError::Malformed(_)), "{answer:?}: {error:?}");
    }
}

#[tokio::test]
async fn a_dial_without_a_reply_times_out() {
    assert_eq!(told(b"").await, ConnectError::TimedOut);
}

#[tokio::test]
async fn a_reply_with_a_foreign_id_is_rejected() {
    let raw = Raw::new("raw");
    let victim = NodeId::from_name("victim");
    let member = MemberId { node: victim, ..raw.hello().member };
    let answer = hello::HelloReply::Accepted(hello::Hello { member, ..raw.hello() });
    let expected = Refusal::NotItsCertificate { certificate: "raw".into(), claimed: victim };
    assert_eq!(told(&hello::encode(PROTOCOL_VERSIONS, &answer)).await, ConnectError::Rejected(expected));
}

/// A node of a later release may send a refusal that this one cannot decode. The version range at its beginning
/// suffices.
#[tokio::test]
async fn a_refusal_by_a_later_version_is_a_version_mismatch() {
    let later = VersionRange { min: 7, max: 9 };
    let answer = hello::encode(later, &(u64::MAX, "unknown to version 1"));
    let expected = Refusal::VersionMismatch { here: later, there: PROTOCOL_VERSIONS };
    assert_eq!(told(&answer).await, ConnectError::Refused(expected));
}

/// The peer's reason does not arrive: QUIC replaces it by a text of its own, "aborted by peer".
#[tokio::test]
async fn a_peer_that_closes_during_the_handshake_is_named_as_the_cause() {
    let honest = Honest::new(config());
    let raw = Raw::new("raw");
    let addr = raw.quinn.local_addr().unwrap();
    let closing = async {
        let connecting = within(raw.quinn.accept()).await.unwrap().accept().unwrap();
        drop(connecting);
    };
    let (dialled, ()) = tokio::join!(within(honest.endpoint.connect(addr)), closing);
    assert_eq!(dialled.unwrap_err(), ConnectError::Lost(CloseReason::Handshake));
}
