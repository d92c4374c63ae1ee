//! Calls whose first attempt is polled in place, and calls that can't begin in place.

use std::collections::BTreeMap;

use artillery_core::config::TransportConfig;
use tokio::runtime::Builder;

use super::*;
use crate::client::Spread;

/// Callers in another runtime than the client's also spread their reads.
#[test]
fn reads_from_another_runtime_are_spread_too() {
    let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (here, other) = (runtime(), runtime());
    let cluster = unique("client");
    let (client, _nodes) = here.block_on(async {
        let (a, b) = (FakeNode::start(&cluster, "a"), FakeNode::start(&cluster, "b"));
        let routing = routing(config(&[a.me(), b.me()], 1), &[&a, &b]);
        a.form(&routing);
        b.form(&routing);
        let builder = Client::builder().cluster(&cluster).secret(SECRET).seed(a.addr()).spread(Spread::RoundRobin);
        (builder.connect().await.unwrap(), (a, b))
    });
    let kv = client.kv();
    let count = async || {
        let mut served = BTreeMap::<_, u32>::new();
        for _ in 0..100 {
            *served.entry(kv.get("k").await.unwrap().served.node).or_default() += 1;
        }
        served.into_values().collect::<Vec<_>>()
    };
    // At first one of the nodes isn't connected yet.
    assert!((0..20).any(|_| here.block_on(count()) == [50, 50]));
    assert_eq!(other.block_on(count()), [50, 50]);
}

#[tokio::test]
async fn each_write_takes_one_number() {
    let (_node, client) = client_of_one().await;
    let kv = client.kv();
    let mut numbers = Vec::new();
    for bytes in [1, 1, 100_000, 100_000, 1] {
        numbers.push(kv.put("k", vec![7; bytes]).await.unwrap().request_id.number);
    }
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
}

/// The only member; the test writes its answers. Its client has a session and a connection, so that all its calls begin
/// in place.
struct Head {
    client: Client,
    reader: FrameReader,
    writer: FrameWriter,
    node: FakeNode,
    seed: FakeNode,
    _streams: mpsc::Receiver<IncomingStream>,
}

impl Head {
    async fn start() -> Self {
        let cluster = unique("client");
        let (node, mut streams) = silent(&cluster);
        let seed = FakeNode::start(&cluster, "seed");
        seed.form(&routing(config(&[node.me()], 1), &[&node, &seed]));
        let mut transport = TransportConfig::loopback();
        transport.stream_window_bytes = 256 << 10;
        let builder = Client::builder().cluster(&cluster).secret(SECRET).seed(seed.addr()).transport(transport);
        let client = builder.connect().await.unwrap();
        let put = tokio::spawn(client.kv().put("k", "v").into_future());
        let (reader, writer) = open_session(streams.recv().await.unwrap()).await;
        let mut head = Self { client, reader, writer, node, seed, _streams: streams };
        let (number, _) = head.next().await;
        head.answer(number, committed()).await;
        put.await.unwrap().unwrap();
        head
    }

    async fn next(&mut self) -> (u64, RequestKey) {
        let request = decode_request(&self.reader.next().await.unwrap().unwrap()).unwrap();
        let Operation::Write { request: Some(key), .. } = request.operation else { panic!("{request:?}") };
        (request.number, key)
    }

    async fn answer(&mut self, number: u64, reply: Reply) {
        let answer = ResponseAnswer::Reply(reply);
        let response = encode_response(&Response { number, by: None, answer }).unwrap();
        self.writer.send(&response.header, &response.body).await.unwrap();
    }
}

fn committed() -> Reply {
    Reply::Committed(WriteReply { version: SESSION, copies: 1, replayed: false, result: Computed::Nothing })
}

#[tokio::test]
async fn a_refused_first_attempt_is_retried() {
    let mut head = Head::start().await;
    let put = tokio::spawn(head.client.kv().put("k", "w").into_future());
    let (number, key) = head.next().await;
    head.answer(number, Reply::Refused(Refusal::Busy)).await;
    let (number, again) = head.next().await;
    assert_eq!(again, key);
    head.answer(number, committed()).await;
    let done = put.await.unwrap().unwrap();
    assert_eq!((done.request_id.session, done.request_id.number), (key.session, key.number));
}

/// Answers to later attempts reveal nothing about the first one.
#[tokio::test]
async fn an_unanswered_first_attempt_leaves_the_outcome_unknown() {
    let mut head = Head::start().await;
    let kv = head.client.kv();
    let put = tokio::spawn(kv.put("k", "w").timeout(Duration::from_millis(600)).into_future());
    let (_, first) = head.next().await;
    let refusing = async {
        loop {
            let (number, _) = head.next().await;
            head.answer(number, Reply::Refused(Refusal::Busy)).await;
        }
    };
    let outcome = tokio::select! {
        () = refusing => unreachable!(),
        outcome = tokio::time::timeout(Duration::from_secs(30), put) => outcome.unwrap().unwrap(),
    };
    let Err(Error::OutcomeUnknown { request_id, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!((request_id.session, request_id.number), (first.session, first.number));
    let get = kv.get("k").timeout(Duration::from_millis(100)).into_future();
    let unread = tokio::time::timeout(Duration::from_secs(30), get).await.unwrap();
    assert!(unread.unwrap_err().is_not_applied());
}

#[tokio::test]
async fn a_write_begun_in_place_moves_to_the_next_head() {
    let mut head = Head::start().await;
    let put = tokio::spawn(head.client.kv().put("k", "w").timeout(Duration::from_secs(20)).into_future());
    head.next().await;
    head.seed.form(&routing(config(&[head.seed.me()], 2), &[&head.node, &head.seed]));
    // The next head doesn't know the session.
    let outcome = put.await.unwrap();
    let is_heard = matches!(&outcome, Err(Error::OutcomeUnknown { reason: Unknown::SessionExpired, .. }));
    assert!(is_heard, "{outcome:?}");
}

#[tokio::test]
async fn writes_begun_in_place_are_bounded_by_room() {
    let head = Head::start().await;
    let mut puts = JoinSet::new();
    for n in 0..12_u32 {
        let put = head.client.kv().put(n.to_be_bytes(), vec![7; 60_000]).timeout(Duration::from_millis(500));
        puts.spawn(put.into_future());
    }
    let outcomes = puts.join_all().await;
    let sent = outcomes.iter().filter(|outcome| matches!(outcome, Err(Error::OutcomeUnknown { .. }))).count();
    let busy = outcomes.iter().filter(|o| matches!(o, Err(Error::Refused { reason: Refusal::Busy, .. }))).count();
    assert!(sent <= 4 && sent + busy == 12, "{outcomes:?}");
}
