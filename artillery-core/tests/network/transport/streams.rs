//! Frames and datagrams.

use std::time::Duration;

use artillery_core::{
    error::{CloseReason, DatagramError, ReadError, WriteError},
    transport::{CloseCode, Connection, FrameBatch, FrameWriter, StreamKind},
};
use bytes::Bytes;

use super::support::{ECHO, Event, Node, RECORD, Spec, arrives, connected, within};

async fn pair() -> (Node, Node, Connection) {
    connected(Spec::new("a"), Spec::new("b")).await
}

/// Writes until the other end has stopped the stream.
async fn assert_stopped(writer: &mut FrameWriter) {
    let error = within(async {
        loop {
            if let Err(error) = writer.send(b"more", &[]).await {
                break error;
            }
            tokio::task::yield_now().await;
        }
    });
    assert!(matches!(error.await, WriteError::Stopped(_)));
}

#[tokio::test]
async fn frames_pass_both_ways() {
    let (_a, _b, connection) = pair().await;
    let (mut writer, mut reader) = connection.open_bi(ECHO, 0).await.unwrap();
    writer.send(b"header", &[Bytes::from_static(b"bo"), Bytes::from_static(b"dy")]).await.unwrap();
    let frame = within(reader.next()).await.unwrap().unwrap();
    assert_eq!((&frame.header[..], &frame.body[..]), (&b"header"[..], &b"body"[..]));
}

#[tokio::test]
async fn values_of_all_sizes_arrive() {
    let (_a, _b, connection) = pair().await;
    let (mut writer, mut reader) = connection.open_bi(ECHO, 0).await.unwrap();
    for len in [0, 1, 1023, 1024, 1025, 65_536, 3 << 20] {
        let value: Bytes = (0..len).map(|at| at as u8).collect();
        writer.send(b"", std::slice::from_ref(&value)).await.unwrap();
        assert_eq!(within(reader.next()).await.unwrap().unwrap().body, value, "{len}");
    }
    writer.finish();
    assert_eq!(within(reader.next()).await.unwrap(), None);
}

#[tokio::test]
async fn many_small_frames_are_one_write() {
    let (a, b, connection) = pair().await;
    let (mut writer, mut reader) = connection.open_bi(ECHO, 0).await.unwrap();
    let mut batch = FrameBatch::new();
    for number in 0..1000u32 {
        batch.push(&number.to_le_bytes(), &[Bytes::from_static(b"value")]);
    }
    let bytes = batch.bytes() as u64;
    writer.send_all(&mut batch).await.unwrap();
    assert!(batch.is_empty());
    let mut seen = 0u32;
    let mut waits = 0;
    while seen < 1000 {
        let mut next = within(reader.next()).await.unwrap();
        waits += 1;
        while let Some(frame) = next {
            assert_eq!(frame.header, seen.to_le_bytes().as_slice());
            seen += 1;
            next = reader.next_ready();
        }
    }
    assert!(waits < 1000, "no frame was ready with the one before it");
    let counters = a.endpoint.counters();
    assert_eq!((counters.writes, counters.frames_sent, counters.frame_bytes_sent), (1, 1000, bytes));
    assert_eq!((counters.frames_received, counters.frame_bytes_received), (1000, bytes));
    assert_eq!(b.endpoint.counters().frames_received, 1000);
}

#[tokio::test]
async fn packets_are_acknowledged_together() {
    let mut spec = Spec::new("a");
    // The longest delay allowed, so that it rarely passes before enough packets arrive, even on a busy machine.
    spec.config.max_ack_delay = Duration::from_millis(25);
    let (_a, mut b, connection) = connected(spec, Spec::new("b")).await;
    let mut writer = connection.open_uni(RECORD, 0).await.unwrap();
    let before = b.endpoint.counters().udp_sends;
    for number in 0..1000u32 {
        writer.send(&number.to_le_bytes(), &[]).await.unwrap();
        assert_eq!(b.frame().await.header, number.to_le_bytes().as_slice());
    }
    // b sends only acknowledgements. Acknowledging every second packet would take 500 sends.
    let sends = b.endpoint.counters().udp_sends - before;
    assert!(sends < 300, "{sends} acknowledgements of 1,000 packets");
}

#[tokio::test]
async fn a_frame_that_is_too_large_is_not_sent() {
    let mut spec = Spec::new("a");
    spec.config.max_frame_bytes = 100_000;
    let (_a, mut b, connection) = connected(spec, Spec::new("b")).await;
    let mut writer = connection.open_uni(RECORD, 0).await.unwrap();
    let error = writer.send(b"x", &[vec![0; 100_000].into()]).await.unwrap_err();
    assert_eq!(error, WriteError::TooLarge { len: 100_001, limit: 100_000 });
    writer.send(b"", &[vec![0; 100_000].into()]).await.unwrap();
    assert_eq!(b.frame().await.body.len(), 100_000);
}

#[tokio::test]
async fn a_frame_that_is_too_large_is_not_taken_in() {
    let mut spec = Spec::new("b");
    spec.config.max_frame_bytes = 100_000;
    let (_a, mut b, connection) = connected(Spec::new("a"), spec).await;
    let mut writer = connection.open_uni(RECORD, 0).await.unwrap();
    writer.send(b"", &[vec![0; 100_001].into()]).await.unwrap();
    assert!(matches!(b.stream_end().await, Err(ReadError::Frame(_))));
    // The sender is notified, and other streams of the connection continue.
    assert_stopped(&mut writer).await;
    arrives(&connection, &mut b, "fine").await;
}

#[tokio::test]
async fn datagrams_are_sent_or_counted_as_dropped() {
    let (a, mut b, connection) = pair().await;
    connection.send_datagram(Bytes::from_static(b"gossip")).unwrap();
    b.event_of(|event| (event == Event::Datagram(Bytes::from_static(b"gossip"))).then_some(())).await;
    let error = connection.send_datagram(vec![0; 70_000].into()).unwrap_err();
    assert!(matches!(error, DatagramError::TooLarge { len: 70_000, .. }), "{error:?}");
    let counters = a.endpoint.counters();
    assert_eq!((counters.datagrams_sent, counters.datagrams_dropped), (1, 1));
    assert_eq!(b.endpoint.counters().datagrams_received, 1);
}

#[tokio::test]
async fn streams_of_unknown_kinds_are_stopped() {
    let (_a, mut b, connection) = pair().await;
    let mut writer = connection.open_uni(StreamKind(9), 0).await.unwrap();
    assert_stopped(&mut writer).await;
    arrives(&connection, &mut b, "fine").await;
}

#[tokio::test]
async fn a_second_hello_ends_the_connection() {
    let (_a, _b, connection) = pair().await;
    let _writer = connection.open_uni(StreamKind::HELLO, 0).await.unwrap();
    let reason = within(connection.closed()).await;
    assert!(matches!(reason, CloseReason::Peer { code, .. } if code == CloseCode::VIOLATION.0), "{reason:?}");
}

#[tokio::test]
async fn a_reset_stream_ends_with_its_code() {
    let (_a, mut b, connection) = pair().await;
    let mut writer = arrives(&connection, &mut b, "one").await;
    writer.reset(7);
    assert_eq!(b.stream_end().await, Err(ReadError::Reset(7)));
}

#[tokio::test]
async fn a_closed_connection_ends_streams_on_both_sides() {
    let (_a, mut b, connection) = pair().await;
    let mut writer = arrives(&connection, &mut b, "one").await;
    connection.close(CloseCode(99), "enough");
    let reason = CloseReason::Peer { code: 99, reason: "enough".into() };
    assert_eq!(b.stream_end().await, Err(ReadError::Lost(reason.clone())));
    b.event_of(|event| (event == Event::Disconnected(reason.clone())).then_some(())).await;
    assert_eq!(within(connection.closed()).await, CloseReason::Here);
    assert_eq!(writer.send(b"two", &[]).await, Err(WriteError::Lost(CloseReason::Here)));
}

#[tokio::test]
async fn a_shutdown_is_told() {
    let (a, mut b, connection) = pair().await;
    within(b.endpoint.shutdown()).await;
    assert_eq!(within(connection.closed()).await, CloseReason::Shutdown);
    b.event_of(|event| matches!(event, Event::Disconnected(_)).then_some(())).await;
    drop(a);
}

/// After a cancelled write, no other frame may begin in the middle of the cancelled one.
#[tokio::test]
async fn a_cancelled_write_spoils_the_stream() {
    let mut spec = Spec::new("b");
    spec.config.stream_window_bytes = 64 << 10;
    let (_a, _b, connection) = connected(Spec::new("a"), spec).await;
    // No task reads the answers, so the windows fill up.
    let (mut writer, reader) = connection.open_bi(ECHO, 0).await.unwrap();
    let value = Bytes::from(vec![0; 32 << 20]);
    let mut sent = 0;
    loop {
        let send = writer.send(b"", std::slice::from_ref(&value));
        tokio::select! {
            biased;
            result = send => result.unwrap(),
            () = tokio::time::sleep(std::time::Duration::from_millis(20)) => break,
        }
        sent += 1;
        assert!(sent < 100, "the windows are never full");
    }
    assert_eq!(writer.send(b"next", &[]).await, Err(WriteError::Interrupted));
    drop(reader);
}
