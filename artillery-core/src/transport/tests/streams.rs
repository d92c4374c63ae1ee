//! Garbage, malformed frames, streams that end prematurely, and requested acknowledgements.

use rand::RngExt;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use super::*;
use crate::{
    error::{CloseReason, FrameError},
    frame::prefix,
};

async fn end(honest: &mut Honest) -> Result<(), ReadError> {
    loop {
        if let Event::End(StreamKind(16), end) = honest.event().await {
            return end;
        }
    }
}

#[tokio::test]
async fn garbage_on_any_stream_is_survived() {
    let mut honest = Honest::new(config());
    let raw = Raw::new("raw");
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut connection = raw.accepted(&honest).await;
    for kind in 0..=255u8 {
        // Some kinds close the connection.
        if connection.close_reason().is_some() || kind == 2 {
            connection = raw.accepted(&honest).await;
        }
        let garbage: Vec<u8> = (0..random.random_range(1..200)).map(|_| random.random()).collect();
        let Ok(mut stream) = connection.open_uni().await else { continue };
        // The peer may have closed the connection or stopped the stream.
        let _ = stream.write_all(&[&[kind], &garbage[..]].concat()).await;
        let _ = stream.finish();
        let (Ok((mut send, _receive)), true) = (connection.open_bi().await, kind > 1) else { continue };
        let _ = send.write_all(&[&[kind], &garbage[..]].concat()).await;
        let _ = send.finish();
        connection.send_datagram(garbage.into()).unwrap();
        while honest.events.try_recv().is_ok() {}
    }
    honest.is_well().await;
}

#[tokio::test]
async fn an_oversized_frame_ends_its_stream() {
    let mut honest = Honest::new(config());
    let connection = Raw::new("raw").accepted(&honest).await;
    let mut stream = connection.open_uni().await.unwrap();
    stream.write_all(&[16]).await.unwrap();
    stream.write_all(&prefix(4, 64 << 10)).await.unwrap();
    let error = FrameError::TooLarge { len: (64 << 10) + 8, limit: 64 << 10 };
    assert_eq!(end(&mut honest).await, Err(ReadError::Frame(error)));
    within(stream.stopped()).await.unwrap();
    honest.is_well().await;
}

#[tokio::test]
async fn a_header_longer_than_its_frame_ends_its_stream() {
    let mut honest = Honest::new(config());
    let connection = Raw::new("raw").accepted(&honest).await;
    let mut stream = connection.open_uni().await.unwrap();
    stream.write_all(&[16, 8, 0, 0, 0, 5, 0, 0, 0]).await.unwrap();
    let error = FrameError::BadHeaderLength { header: 5, len: 8 };
    assert_eq!(end(&mut honest).await, Err(ReadError::Frame(error)));
    honest.is_well().await;
}

/// After each byte of a frame, the stream is finished or reset, or the whole connection is closed.
#[tokio::test]
async fn a_stream_cut_at_any_byte_ends_with_its_reason() {
    let mut honest = Honest::new(config());
    let raw = Raw::new("raw");
    let whole = frame(b"head", b"body");
    let mut connection = raw.accepted(&honest).await;
    for cut in 0..whole.len() {
        let words = [&[16], &whole[..cut]].concat();
        let mut stream = connection.open_uni().await.unwrap();
        stream.write_all(&words).await.unwrap();
        stream.finish().unwrap();
        let finished = end(&mut honest).await;
        match cut {
            0 => assert_eq!(finished, Ok(())),
            _ => {
                assert!(matches!(finished, Err(ReadError::Frame(FrameError::Truncated { .. }))), "{cut}: {finished:?}")
            }
        }

        let mut stream = connection.open_uni().await.unwrap();
        stream.write_all(&[&[16], &whole[..], &whole[..cut]].concat()).await.unwrap();
        // The receiver has started to read before the stream ends.
        while !matches!(honest.event().await, Event::Frame(StreamKind(16), _)) {}
        stream.reset(5u32.into()).unwrap();
        assert_eq!(end(&mut honest).await, Err(ReadError::Reset(5)), "{cut}");

        let mut stream = connection.open_uni().await.unwrap();
        stream.write_all(&[&[16], &whole[..], &whole[..cut]].concat()).await.unwrap();
        while !matches!(honest.event().await, Event::Frame(StreamKind(16), _)) {}
        connection.close(77u32.into(), b"cut");
        let lost = CloseReason::Peer { code: 77, reason: "cut".into() };
        assert_eq!(end(&mut honest).await, Err(ReadError::Lost(lost)), "{cut}");
        connection = raw.accepted(&honest).await;
    }
    honest.is_well().await;
}

#[tokio::test]
async fn a_malformed_cluster_id_closes_the_connection() {
    let mut honest = Honest::new(config());
    let connection = Raw::new("raw").accepted(&honest).await;
    let mut stream = connection.open_uni().await.unwrap();
    stream.write_all(&[StreamKind::CLUSTER_ID.0]).await.unwrap();
    stream.write_all(&frame(b"\xff\xff", b"")).await.unwrap();
    let quinn::ConnectionError::ApplicationClosed(close) = within(connection.closed()).await else { panic!() };
    assert_eq!(close.error_code, CloseCode::VIOLATION.0.into());
    honest.is_well().await;
}

#[tokio::test]
async fn a_requested_acknowledgement_comes_and_no_datagram_is_delivered() {
    let (keep_alive, idle_timeout) = (Duration::from_secs(60), Duration::from_secs(120));
    let quiet = TransportConfig { keep_alive, idle_timeout, ..config() };
    let honest = Honest::new(quiet.clone());
    let (events, _events) = mpsc::channel(1);
    let asker = Endpoint::bind(quiet, identity("asker"), local(), Arc::new(Recorder(events))).unwrap();
    let link = asker.link(NodeId::from_name("honest"), vec![honest.endpoint.local_addr()]);
    let connection = within(link.connected()).await.unwrap();
    let acknowledgements = || connection.traffic().unwrap().acknowledgements;
    // More acknowledgements than path MTU discovery causes.
    for _ in 0..50 {
        let before = acknowledgements();
        connection.ask_for_acknowledgement();
        within(async {
            while acknowledgements() == before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }
    assert_eq!(honest.endpoint.counters().datagrams_received, 0);
}
