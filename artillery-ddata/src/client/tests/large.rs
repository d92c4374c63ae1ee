//! Large requests and answers have streams of their own. Requests that exceed a node's capacity wait for it, and are
//! refused as busy when their time is up.

use artillery_core::{
    error::{ReadError, WriteError},
    transport::Connection,
};

use super::*;
use crate::{
    api::ReadReply,
    message::request::SMALL,
    store::Held,
    wire::{request::encode_answer_to, streams::ANSWERS},
};

const LARGE: usize = 300_000;

async fn large_request(streams: &mut mpsc::Receiver<IncomingStream>) -> (IncomingStream, usize) {
    loop {
        let mut stream = streams.recv().await.unwrap();
        match stream.reader.next_len().await {
            Ok(Some(len)) if len > SMALL => return (stream, len),
            Ok(_) => {
                let (mut reader, writer) = open_session(stream).await;
                tokio::spawn(async move {
                    while let Ok(Some(_)) = reader.next().await {}
                    drop(writer);
                });
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn large_requests_are_forwarded_too() {
    let cluster = unique("client");
    let [head, spare, liar] = with_liar(&cluster);
    let kv = connect(&cluster, &liar).await.kv();
    let value = Bytes::from(vec![7; LARGE]);
    kv.put("k", value.clone()).await.unwrap();
    let seen = kv.get("k").await.unwrap();
    assert_eq!((seen.value(), seen.served.node), (Some(&value), head.me().node));
    // A large request with a large answer, and a small one with a large answer.
    let conflict = kv.compare_and_swap("k", Version::NONE, value.clone()).await.unwrap_err();
    assert_eq!(conflict.into_conflict().unwrap().current.unwrap().1, value);
    let taken = kv.get_delete("k").await.unwrap().result;
    assert_eq!(taken.into_value(), Some(value));
    assert_eq!(spare.local.forwarded(), 5, "including the opening of a session");
}

#[tokio::test]
async fn a_cancelled_large_write_stops_its_stream() {
    let (client, _silent, _seed, mut streams) = client_of_silence().await;
    let put = tokio::spawn(client.kv().put("k", vec![7; LARGE]).into_future());
    let (mut stream, len) = large_request(&mut streams).await;
    assert!(len > LARGE);
    put.abort();
    assert!(put.await.unwrap_err().is_cancelled());
    // The rest of the request no longer arrives, and the return direction is closed.
    assert!(matches!(stream.reader.next().await, Err(ReadError::Reset(_))));
    let mut writer = stream.writer.unwrap();
    let refused = loop {
        if let Err(error) = writer.send(b"anything", &[]).await {
            break error;
        }
        tokio::task::yield_now().await;
    };
    assert!(matches!(refused, WriteError::Stopped(_)), "{refused:?}");
    assert_eq!(stream.connection.close_reason(), None);

    // More than QUIC buffers before the node reads: the node can't have received all of it, so the outcome is certain.
    let put = tokio::spawn(client.kv().put("k", vec![7; 40 << 20]).timeout(Duration::from_millis(500)).into_future());
    let (mut stream, _) = large_request(&mut streams).await;
    let error = put.await.unwrap().unwrap_err();
    assert!(error.is_not_applied(), "{error:?}");
    assert!(matches!(stream.reader.next().await, Err(ReadError::Reset(_))));
}

#[tokio::test]
async fn too_many_requests_to_one_node_are_refused_as_busy() {
    let (client, _silent, _seed, mut streams) = client_of_silence().await;
    let mut puts = JoinSet::new();
    // The window of a stream is 8 MiB, less than these 25 MB.
    for n in 0..500 {
        puts.spawn(client.kv().put(format!("k/{n}"), vec![7; 50_000]).timeout(Duration::from_secs(2)).into_future());
    }
    let _stream = open_session(streams.recv().await.unwrap()).await;
    let (mut busy, mut unknown) = (0, 0);
    while let Some(put) = puts.join_next().await {
        match put.unwrap() {
            Err(Error::Refused { reason: Refusal::Busy, node: None }) => busy += 1,
            Err(Error::OutcomeUnknown { .. }) => unknown += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(busy > 300 && unknown > 100, "{busy} busy, {unknown} unknown");
}

/// Starts a read, and waits until the node has received its request. Returns the unanswered call, the request's number,
/// and its stream.
async fn waiting_read(
    client: &Client,
    streams: &mut mpsc::Receiver<IncomingStream>,
) -> (tokio::task::JoinHandle<Result<crate::kv::Read, Error>>, u64, IncomingStream) {
    let kv = client.kv();
    let get = tokio::spawn(async move { kv.get("k").timeout(Duration::from_secs(5)).await });
    loop {
        let mut stream = streams.recv().await.unwrap();
        let request = decode_request(&stream.reader.next().await.unwrap().unwrap()).unwrap();
        // A client in doubt also queries the routing.
        if matches!(request.operation, Operation::Read { .. }) {
            return (get, request.number, stream);
        }
    }
}

async fn answer_apart(connection: &Connection, head: &[u8]) -> FrameWriter {
    let mut writer = connection.open_uni(StreamKind(ANSWERS), 0).await.unwrap();
    writer.send(head, &[]).await.unwrap();
    writer
}

fn large_answer(number: u64) -> crate::wire::request::Encoded {
    let held = Held::new(Version::new(1, 1), Some(vec![7; LARGE].into()));
    let read =
        ReadReply { held: Some(held), clean: true, way: ReadPath::Local, as_of: crate::Sequence(1), chain_time: 0 };
    encode_response(&Response { number, by: None, answer: ResponseAnswer::Reply(Reply::Read(read)) }).unwrap()
}

#[tokio::test]
async fn a_large_answer_finds_its_request() {
    let (client, _silent, _seed, mut streams) = client_of_silence().await;
    let (get, number, stream) = waiting_read(&client, &mut streams).await;
    // An answer without a waiting caller is stopped, which is no protocol violation.
    let mut unwanted = answer_apart(&stream.connection, &encode_answer_to(number + 1)).await;
    unwanted.stopped().await;
    assert!(matches!(unwanted.send(b"more", &[]).await, Err(WriteError::Stopped(_))));
    let mut writer = answer_apart(&stream.connection, &encode_answer_to(number)).await;
    let answer = large_answer(number);
    writer.send(&answer.header, &answer.body).await.unwrap();
    writer.finish();
    assert_eq!(get.await.unwrap().unwrap().value().map(Bytes::len), Some(LARGE));
}

#[tokio::test]
async fn a_large_answer_whose_caller_is_gone_is_stopped() {
    let (client, _silent, _seed, mut streams) = client_of_silence().await;
    let (get, number, stream) = waiting_read(&client, &mut streams).await;
    let writer = answer_apart(&stream.connection, &encode_answer_to(number)).await;
    get.abort();
    writer.stopped().await;
    assert_eq!(stream.connection.close_reason(), None);
}

#[tokio::test]
async fn a_malformed_large_answer_closes_the_connection() {
    for nonsense in ["no number", "another number", "no response"] {
        let (client, _silent, _seed, mut streams) = client_of_silence().await;
        let (get, number, stream) = waiting_read(&client, &mut streams).await;
        let head = if nonsense == "no number" { Bytes::from("nonsense") } else { encode_answer_to(number) };
        let mut writer = answer_apart(&stream.connection, &head).await;
        let answer = large_answer(if nonsense == "another number" { number + 1 } else { number });
        let body = if nonsense == "no response" { Default::default() } else { answer.body };
        drop(writer.send(&answer.header, &body).await);
        let reason = stream.connection.closed().await;
        let violation = CloseCode::VIOLATION.0;
        assert!(matches!(&reason, CloseReason::Peer { code, .. } if *code == violation), "{nonsense}: {reason:?}");
        get.abort();
    }
}

/// Two nodes forward large requests to each other: the requests that wait at one node for capacity at the other use up
/// the first node's capacity.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_forward_large_writes_to_each_other_never_block() {
    let cluster = unique("client");
    let nodes = ["a", "b", "liar"].map(|name| FakeNode::start(&cluster, name));
    let [a, b, liar] = &nodes;
    let of = |heads: [&FakeNode; 2]| {
        let mut all = routing(config(&[heads[0].me()], 1), &[a, b, liar]);
        let second = crate::ChainConfig { chain: crate::ChainId(1), ..config(&[heads[1].me()], 1) };
        all.chains.push(second);
        all
    };
    a.form_all(&of([a, b]));
    b.form_all(&of([a, b]));
    // The routing as clients knew it before the heads changed places.
    liar.form_all(&of([b, a]));
    let client = connect(&cluster, liar).await;
    let kv = client.kv().with_timeout(Duration::from_secs(10));
    let key = |chain: u32, n: u32| {
        (0..)
            .map(|salt| format!("{n}-{salt}"))
            .find(|key| crate::control::chain_of(key.as_bytes(), 2).0 == chain)
            .unwrap()
    };
    kv.put(key(0, 0), "v").await.unwrap();
    kv.put(key(1, 0), "v").await.unwrap();
    let mut calls = JoinSet::new();
    for n in 1..=3 {
        for chain in [0, 1] {
            calls.spawn(kv.put(key(chain, n), vec![7; 900_000]).into_future());
        }
    }
    let failed: Vec<_> = calls.join_all().await.into_iter().filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{failed:?}");
}
