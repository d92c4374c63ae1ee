mod in_place;
mod large;
mod orders;
mod rooms;
mod settling;
mod silence;

use std::{sync::Arc, time::Duration};

use artillery_core::{
    error::{CloseReason, ConnectError},
    transport::{CloseCode, FrameReader, FrameWriter, IncomingStream, StreamKind},
};
use bytes::Bytes;
use tokio::{sync::mpsc, task::JoinSet};

use super::*;
use crate::{
    Client, Error, NodeAddress, NodeId, Place, ReadMode, Refusal, Routing, Script, Session, Version,
    api::{Computed, ReadPath, Reply, Write, WriteReply},
    control::History,
    driver::fake::{self, FakeNode, SECRET, alone, config, member, routing, unique},
    error::{NotApplied, Unknown},
    kv::{Group, ReadState, StepOutcome},
    message::request::{Operation, Response, ResponseAnswer},
    status::StatusError,
    types::update::RequestKey,
    wire::{
        request::{decode_request, encode_response},
        streams::REQUESTS,
    },
};

async fn connect(cluster: &str, node: &FakeNode) -> Client {
    Client::builder().cluster(cluster).secret(SECRET).seed(node.addr()).connect().await.expect("no client")
}

async fn client_of_one() -> (FakeNode, Client) {
    let cluster = unique("client");
    let node = alone(&cluster);
    let client = connect(&cluster, &node).await;
    (node, client)
}

/// A head, a spare, and a node that mistakes the spare for the head.
fn with_liar(cluster: &str) -> [FakeNode; 3] {
    let [head, spare, liar] = ["head", "spare", "liar"].map(|name| FakeNode::start(cluster, name));
    let truth = routing(config(&[head.me()], 1), &[&head, &spare]);
    head.form(&truth);
    spare.form(&truth);
    liar.local.form(routing(config(&[spare.me()], 1), &[&head, &spare]), vec![None]);
    [head, spare, liar]
}

#[tokio::test]
async fn a_client_makes_all_calls() {
    let (node, client) = client_of_one().await;
    let kv = client.kv();
    let put = kv.put("k", "one").await.unwrap();
    assert_eq!((put.version, put.copies), (Version::new(1, 2), 1));
    for (mode, way) in [
        (ReadMode::Strong, ReadPath::Local),
        (ReadMode::Eventual, ReadPath::Local),
        (ReadMode::ThroughChain, ReadPath::Chain),
    ] {
        let seen = kv.get("k").mode(mode).await.unwrap();
        assert_eq!(
            (seen.value(), seen.version(), seen.state),
            (Some(&Bytes::from("one")), put.version, ReadState::Clean)
        );
        assert_eq!((seen.served.node, seen.served.place, seen.served.way), (node.me().node, Place::Head, way));
    }
    let found = StepOutcome::Found(Some((put.version, Bytes::from("one"))));
    let ran = kv.run(Script::new().group(Group::new().get("k").increment("n", 1))).await.unwrap();
    assert_eq!((ran.copies, ran.result), (1, vec![Ok(vec![found, StepOutcome::Number(1)])]));
    let conflict = kv.compare_and_swap("k", Version::NONE, "two").await.unwrap_err().into_conflict().unwrap();
    assert_eq!(conflict.current, Some((put.version, Bytes::from("one"))));
    kv.compare_and_swap("k", put.version, "two").await.unwrap();
    kv.delete("k").await.unwrap();
    assert_eq!(kv.get("k").await.unwrap().value(), None);
    assert_eq!(kv.get_local("k"), Err(crate::NotLocal::NotHere));

    assert_eq!(client.routing().chains[0].head(), Some(node.me()));
    let status = client.node_status_json(node.me().node, Duration::from_secs(5)).await.unwrap();
    assert_eq!(status, "{\"fine\":true}");
    let nobody = NodeId::from_name("nobody");
    let error = client.node_status(nobody, Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(error, StatusError::Call(Error::not_applied(NotApplied::UnknownNode(nobody))));
    let error = client.node_status(node.me().node, Duration::from_secs(5)).await.unwrap_err();
    assert!(matches!(error, StatusError::Unreadable(_)), "{error:?}");
    client.close().await;
    assert!(kv.put("k", "v").await.unwrap_err().is_not_applied());
}

/// Thousands of concurrent calls, with large values between small ones.
#[tokio::test]
async fn many_calls_at_a_time_are_answered() {
    let (_node, client) = client_of_one().await;
    let kv = client.kv().with_timeout(Duration::from_secs(60));
    let mut calls = JoinSet::new();
    for n in 0..3000u32 {
        let kv = kv.clone();
        calls.spawn(async move {
            let value = vec![n as u8; if n % 500 == 0 { 900_000 } else { 10 }];
            let put = kv.put(n.to_be_bytes(), value.clone()).await.unwrap();
            let seen = kv.get(&n.to_be_bytes()).await.unwrap();
            assert_eq!((seen.version(), seen.value()), (put.version, Some(&Bytes::from(value))));
        });
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap();
    }
}

#[tokio::test]
async fn a_spare_forwards_and_counts() {
    let cluster = unique("client");
    let [head, spare, liar] = with_liar(&cluster);
    spare.kv().put("k", "v").await.unwrap();
    let seen = spare.kv().get("k").await.unwrap();
    assert_eq!((seen.served.node, seen.served.place), (head.me().node, Place::Head));
    assert_eq!(spare.local.forwarded(), 3, "including the opening of its session");
    // Calls from a client that mistakes the spare for the head.
    let client = connect(&cluster, &liar).await;
    client.kv().put("k", "w").await.unwrap();
    let seen = client.kv().get("k").await.unwrap();
    assert_eq!(seen.value(), Some(&Bytes::from("w")));
    assert_eq!(seen.served.node, head.me().node, "the result names the member that served it");
    assert_eq!(spare.local.forwarded(), 6);
    assert_eq!(head.local.forwarded(), 0);
}

/// Each of `a` and `b` considers the other the head: the request stops at `a`.
#[tokio::test]
async fn a_request_is_forwarded_once() {
    let cluster = unique("client");
    let (a, b) = (FakeNode::start(&cluster, "a"), FakeNode::start(&cluster, "b"));
    a.form(&routing(config(&[member("b")], 2), &[&a, &b]));
    b.form(&routing(config(&[member("a")], 1), &[&a, &b]));
    let client = connect(&cluster, &a).await;
    let error = client.kv().put("k", "v").timeout(Duration::from_millis(400)).await.unwrap_err();
    assert!(matches!(error, Error::Refused { reason: Refusal::NoChain, .. }), "{error:?}");
    let error = client.kv().get("k").timeout(Duration::from_millis(400)).await.unwrap_err();
    assert!(error.is_not_applied(), "{error:?}");
    assert!(b.local.forwarded() > 0);
    assert_eq!(a.local.forwarded(), 0, "a forwarded request was forwarded again");
}

#[tokio::test]
async fn a_moved_head_is_found() {
    let cluster = unique("client");
    let (old, new) = (FakeNode::start(&cluster, "old"), FakeNode::start(&cluster, "new"));
    let before = routing(config(&[old.me()], 1), &[&old, &new]);
    old.form(&before);
    let client = connect(&cluster, &old).await;
    client.kv().put("k", "v").await.unwrap();
    let after = routing(config(&[new.me()], 2), &[&old, &new]);
    new.form(&after);
    old.endpoint.shutdown().await;
    client.candidates().add(new.addr());
    let put = client.kv().put("k", "w").await.unwrap();
    assert_eq!(put.version, Version::new(2, 2), "a new session was opened first: the old one was lost with its head");
    assert_eq!(client.routing().chains[0].head(), Some(new.me()));
}

/// No single call has enough time to find that the whole chain has moved; all together do.
#[tokio::test]
async fn callers_with_little_time_find_a_moved_chain() {
    let cluster = unique("client");
    let (seed, new) = (FakeNode::start(&cluster, "seed"), FakeNode::start(&cluster, "new"));
    // The chain's old address is silent: no message reports that the node is gone.
    let silence = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let gone = NodeAddress { name: "gone".to_owned(), addrs: vec![silence.local_addr().unwrap()], host: None };
    let mut before = routing(config(&[member("gone")], 1), &[]);
    before.nodes = [(NodeId::from_name("gone"), gone)].into();
    seed.form(&before);
    let client = connect(&cluster, &seed).await;
    let after = routing(config(&[new.me()], 2), &[&new]);
    new.form(&after);
    seed.form(&after);
    for left in (0..200).rev() {
        match client.kv().get("k").timeout(Duration::from_millis(300)).await {
            Ok(seen) => return assert_eq!(seen.served.node, new.me().node),
            Err(error) => assert!(error.is_not_applied() && left > 0, "{error}"),
        }
    }
}

/// Calls of clients whose routing predates a recovery, after the chain has continued in a new history.
#[tokio::test]
async fn a_session_that_saw_nothing_adopts_the_new_history() {
    let cluster = unique("client");
    let node = alone(&cluster);
    let mut routing = routing(config(&[node.me()], 2), &[&node]);
    let [old, read, written, recorded] = [(); 4].map(|()| Session::new());
    let client = connect(&cluster, &node).await;
    client.kv().put("k", "old").session(&old).await.unwrap();
    for generation in 2..6 {
        let lagging = connect(&cluster, &node).await;
        let kv = lagging.kv();
        routing.history = History { generation, id: generation.into() };
        node.form(&routing);
        let seen = match generation {
            2 => kv.get("k").session(&read).await.map(|_| read.frontier().cluster()),
            3 => kv.put("k", "new").session(&written).await.map(|_| written.frontier().cluster()),
            4 => {
                let request = kv.new_request_id("k").await.unwrap();
                let written = kv.put("k", "new").session(&recorded).request_id(request).await;
                written.map(|_| recorded.frontier().cluster())
            }
            _ => {
                let mut watch = kv.watch("").await.unwrap();
                kv.put("watched", "new").await.unwrap();
                assert_eq!(watch.next().await.unwrap().unwrap().key, "watched");
                Ok(watch.position().cluster())
            }
        };
        assert_eq!(seen, Ok(Some(routing.history_id())));
        let refused = client.kv().put("k", "lost").session(&old).await.unwrap_err();
        assert!(matches!(refused, Error::Refused { reason: Refusal::OtherHistory, .. }), "{refused:?}");
    }
}

/// A node that answers no request: the test gets the streams.
fn silent(cluster: &str) -> (FakeNode, mpsc::Receiver<IncomingStream>) {
    let (sender, streams) = mpsc::channel(16);
    let node = FakeNode::start_with(cluster, "silent", move |stream| drop(sender.try_send(stream)));
    (node, streams)
}

/// A client of a silent node, which it learned of from another node.
async fn client_of_silence() -> (Client, FakeNode, FakeNode, mpsc::Receiver<IncomingStream>) {
    let cluster = unique("client");
    let (silent, streams) = silent(&cluster);
    let seed = FakeNode::start(&cluster, "seed");
    seed.form(&routing(config(&[silent.me()], 1), &[&silent, &seed]));
    let client = connect(&cluster, &seed).await;
    (client, silent, seed, streams)
}

const SESSION: Version = Version::new(1, 77);

#[derive(Debug, PartialEq)]
enum Wanted {
    Session { number: u64 },
    Write(RequestKey),
}

/// The next write of a stream; `None` on a stream of reads. A stream's first request shows its kind, since reads and
/// queries don't share the stream of writes.
async fn next_write(reader: &mut FrameReader) -> Option<Wanted> {
    let request = decode_request(&reader.next().await.unwrap().unwrap()).unwrap();
    match request.operation {
        Operation::Write { request: Some(key), .. } => Some(Wanted::Write(key)),
        Operation::Write { write: Write::OpenSession, .. } => Some(Wanted::Session { number: request.number }),
        _ => None,
    }
}

async fn open(number: u64, writer: &mut FrameWriter) {
    let done = WriteReply { version: SESSION, copies: 1, replayed: false, result: Computed::Nothing };
    let answer = ResponseAnswer::Reply(Reply::Committed(done));
    let response = encode_response(&Response { number, by: None, answer }).unwrap();
    writer.send(&response.header, &response.body).await.unwrap();
}

async fn open_session(stream: IncomingStream) -> (FrameReader, FrameWriter) {
    let (mut reader, mut writer) = (stream.reader, stream.writer.unwrap());
    loop {
        if let Some(Wanted::Session { number }) = next_write(&mut reader).await {
            open(number, &mut writer).await;
            return (reader, writer);
        }
    }
}

#[tokio::test]
async fn a_write_to_an_unreachable_head_is_not_applied() {
    let cluster = unique("client");
    let (gone, seed) = (FakeNode::start(&cluster, "gone"), FakeNode::start(&cluster, "seed"));
    // No other member could forward the write.
    seed.form(&routing(config(&[gone.me()], 1), &[&gone, &seed]));
    gone.endpoint.shutdown().await;
    drop(gone);
    let client = connect(&cluster, &seed).await;
    let error = client.kv().put("k", "v").timeout(Duration::from_millis(600)).await.unwrap_err();
    let Error::NotApplied { reason: NotApplied::Unreachable { node, .. } } = error else { panic!("{error:?}") };
    assert_eq!(node, NodeId::from_name("gone"));
}

/// A closed client ends its calls, however much time they have left, even if their node doesn't answer.
#[tokio::test]
async fn calls_end_with_their_client() {
    let cluster = unique("client");
    let (silent, mut streams) = silent(&cluster);
    let gone = FakeNode::start(&cluster, "gone");
    gone.endpoint.shutdown().await;
    for head in [&silent, &gone] {
        let seed = FakeNode::start(&cluster, "seed");
        seed.form(&routing(config(&[head.me(), seed.me()], 1), &[head, &seed]));
        let client = connect(&cluster, &seed).await;
        let put = client.kv().put("k", "v").timeout(Duration::from_secs(3600));
        let put = tokio::spawn(put.into_future());
        if head.me() == silent.me() {
            streams.recv().await.unwrap();
        } else {
            // By then the first write has been attempted too.
            client.kv().put("k", "v").timeout(Duration::from_millis(600)).await.unwrap_err();
        }
        let ended = async {
            client.close().await;
            put.await.unwrap().unwrap_err()
        };
        let error = tokio::time::timeout(Duration::from_secs(30), ended).await.expect("the call doesn't end");
        assert!(error.is_not_applied(), "the write itself was never sent: {error:?}");
    }
}

#[tokio::test]
async fn a_malformed_request_closes_only_its_connection() {
    let cluster = unique("client");
    let node = alone(&cluster);
    let client = connect(&cluster, &node).await;
    let bad = connect(&cluster, &node).await;
    let connection = bad.endpoint.connect(node.addr()).await.unwrap();
    let (mut writer, mut reader) = connection.open_bi(StreamKind(REQUESTS), 0).await.unwrap();
    writer.send(b"\xff\xff\xff", &[Bytes::from("nonsense")]).await.unwrap();
    assert!(reader.next().await.is_err());
    let reason = connection.closed().await;
    let code = CloseCode::VIOLATION.0;
    assert!(matches!(&reason, CloseReason::Peer { code: c, .. } if *c == code), "{reason:?}");
    client.kv().put("k", "v").await.unwrap();
    assert_eq!(client.kv().get("k").await.unwrap().value(), Some(&Bytes::from("v")));
}

#[tokio::test]
async fn a_refused_value_names_the_limit() {
    let (node, client) = client_of_one().await;
    let kv = client.kv();
    let limit = fake::MAX_VALUE;
    let error = kv.put("k", vec![0; limit as usize + 1]).await.unwrap_err();
    let reason = Refusal::ValueTooLarge { len: limit + 1, limit };
    assert_eq!(error, Error::refused(reason, Some(node.me().node)));
    let error = kv.put("k", vec![0; 80 << 20]).await.unwrap_err();
    assert!(matches!(error, Error::Refused { reason: Refusal::ValueTooLarge { .. }, node: None }), "{error:?}");
    kv.put("k", vec![0; limit as usize]).await.unwrap();
    assert_eq!(kv.get("k").await.unwrap().value().map(Bytes::len), Some(limit as usize));
}

#[tokio::test]
async fn a_failed_connect_names_its_reason() {
    let cluster = unique("client");
    let node = alone(&cluster);
    let builder = || Client::builder().cluster(&cluster).timeout(Duration::from_secs(20));
    assert!(matches!(builder().seed(node.addr()).connect().await, Err(ClientError::NoIdentity)));
    assert!(matches!(builder().secret(SECRET).connect().await, Err(ClientError::NoSeeds)));
    assert!(matches!(builder().secret("short").seed(node.addr()).connect().await, Err(ClientError::Identity(_))));

    let wrong = builder().secret("another secret of enough bytes").seed(node.addr()).connect().await;
    let Err(ClientError::Unreachable(failures)) = wrong else { panic!("{wrong:?}") };
    assert!(matches!(failures[..], [Unreached::Addr { reason: ConnectError::Untrusted(_), .. }]), "{failures:?}");
    let other = builder().cluster("other").secret(SECRET).seed(node.addr()).connect().await;
    let Err(ClientError::Unreachable(failures)) = other else { panic!("{other:?}") };
    assert!(matches!(failures[..], [Unreached::Addr { reason: ConnectError::Refused(_), .. }]), "{failures:?}");

    let unformed = FakeNode::start(&cluster, "unformed");
    let none = builder().secret(SECRET).seed(unformed.addr()).timeout(Duration::from_millis(300)).connect().await;
    assert!(matches!(none, Err(ClientError::NotFormed)), "{none:?}");
}

#[tokio::test]
async fn candidates_may_be_added_later() {
    let cluster = unique("client");
    let node = alone(&cluster);
    let candidates = Candidates::new();
    let builder = Client::builder().cluster(&cluster).secret(SECRET).candidates(candidates.clone());
    let connecting = tokio::spawn(builder.connect());
    tokio::task::yield_now().await;
    candidates.add(node.addr());
    let client = connecting.await.unwrap().unwrap();
    client.kv().put("k", "v").await.unwrap();
    let _: Arc<Routing> = client.refresh(Duration::from_secs(5)).await.unwrap();
}
