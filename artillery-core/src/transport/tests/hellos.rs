//! Malformed, forged and missing hellos, and excess handshakes.

use super::*;

/// The refusal with which a node answers `words`. Also checks that the node's service receives the same one.
async fn answer(words: &[u8]) -> Refusal {
    let mut honest = Honest::new(config());
    let raw = Raw::new("raw");
    let connection = raw.dial(&honest).await;
    let answer = ask(&connection, words).await.unwrap();
    connection.close(0u32.into(), b"");
    let refusal = honest.refusal().await;
    assert_eq!(answer, hello::HelloReply::Refused(refusal.clone()));
    assert_eq!(honest.endpoint.counters().accepted, 0);
    honest.is_well().await;
    refusal
}

#[tokio::test]
async fn a_hello_with_a_foreign_id_is_refused() {
    let raw = Raw::new("raw");
    let victim = NodeId::from_name("victim");
    let member = MemberId { node: victim, ..raw.hello().member };
    let forged = hello::encode(PROTOCOL_VERSIONS, &hello::Hello { member, ..raw.hello() });
    let expected = Refusal::NotItsCertificate { certificate: "raw".into(), claimed: victim };
    assert_eq!(answer(&words(&forged)).await, expected);
}

#[tokio::test]
async fn a_peer_without_a_certificate_is_refused() {
    let mut honest = Honest::new(config());
    let mut raw = Raw::new("raw");
    let tls = quinn::crypto::rustls::QuicClientConfig::try_from(identity("raw").anonymous()).unwrap();
    raw.client = quinn::ClientConfig::new(Arc::new(tls));
    let connection = raw.dial(&honest).await;
    assert!(ask(&connection, &words(&hello::encode(PROTOCOL_VERSIONS, &raw.hello()))).await.is_err());
    let closed = within(connection.closed()).await;
    assert!(matches!(quic::close_reason(closed), crate::error::CloseReason::Untrusted(_)));
    assert!(matches!(honest.refusal().await, Refusal::Untrusted(_)));
    honest.is_well().await;
}

#[tokio::test]
async fn malformed_hellos_are_refused() {
    let hello = hello::encode(PROTOCOL_VERSIONS, &Raw::new("raw").hello());
    let mut other_magic = hello.to_vec();
    other_magic[crate::frame::PREFIX] ^= 1;
    let mut no_bool = hello.to_vec();
    // The tag of the cluster id, after prefix, magic, versions and the cluster's name.
    no_bool[crate::frame::PREFIX + 12 + 5] = 7;
    let cases: [&[u8]; 7] = [
        &[],
        &[StreamKind::HELLO.0],
        &[16, 1, 2, 3],
        &words(b"GET / HTTP/1.1\r\n\r\n"),
        &words(&hello[..hello.len() - 1]),
        &words(&other_magic),
        &words(&no_bool),
    ];
    for case in cases {
        let refusal = answer(case).await;
        assert!(matches!(refusal, Refusal::Malformed(_)), "{case:?}: {refusal:?}");
    }
}

#[tokio::test]
async fn an_oversized_hello_is_refused() {
    let long = hello::Hello { cluster: "x".repeat(2 * hello::MAX_HELLO_BYTES), ..Raw::new("raw").hello() };
    let refusal = answer(&words(&hello::encode(PROTOCOL_VERSIONS, &long))).await;
    assert!(matches!(&refusal, Refusal::Malformed(reason) if reason.contains("limit of 4096")), "{refusal:?}");
}

#[tokio::test]
async fn a_silent_peer_is_refused() {
    let mut honest = Honest::new(TransportConfig { hello_timeout: Duration::from_millis(200), ..config() });
    let raw = Raw::new("raw");
    let connection = raw.dial(&honest).await;
    assert_eq!(honest.refusal().await, Refusal::TimedOut);
    within(connection.closed()).await;
    // Half a hello, and then nothing.
    let connection = raw.dial(&honest).await;
    let (mut send, _receive) = connection.open_bi().await.unwrap();
    send.write_all(&words(b"\x10")).await.unwrap();
    assert_eq!(honest.refusal().await, Refusal::TimedOut);
    within(connection.closed()).await;
}

#[tokio::test]
async fn nothing_is_read_before_the_hello() {
    let mut honest = Honest::new(config());
    let raw = Raw::new("raw");
    let connection = raw.dial(&honest).await;
    let mut early = connection.open_uni().await.unwrap();
    early.write_all(&[16]).await.unwrap();
    early.write_all(&frame(b"early", b"")).await.unwrap();
    connection.send_datagram(Bytes::from_static(b"early")).unwrap();
    let refused = hello::Hello { cluster: "other".into(), ..raw.hello() };
    let answer = ask(&connection, &words(&hello::encode(PROTOCOL_VERSIONS, &refused))).await.unwrap();
    assert!(matches!(answer, hello::HelloReply::Refused(_)));
    connection.close(0u32.into(), b"");
    assert!(matches!(honest.refusal().await, Refusal::DifferentClusterName { .. }));
    honest.is_well().await;
    assert_eq!(honest.endpoint.counters().datagrams_received, 0);
    assert!(honest.events.try_recv().is_err());
}

#[tokio::test]
async fn excess_handshakes_are_refused() {
    let mut honest = Honest::new(TransportConfig { max_handshakes: 1, ..config() });
    let raw = Raw::new("raw");
    let silent = raw.dial(&honest).await;
    let addr = honest.endpoint.local_addr();
    let second = within(raw.quinn.connect_with(raw.client.clone(), addr, "x").unwrap()).await;
    assert!(second.is_err());
    assert_eq!(honest.refusal().await, Refusal::Busy);
    silent.close(0u32.into(), b"");
    assert!(matches!(honest.refusal().await, Refusal::Malformed(_)));
    honest.is_well().await;
}
