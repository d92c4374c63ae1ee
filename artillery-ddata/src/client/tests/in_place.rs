//! Calls whose first attempt is polled in place, and those that can't begin so.

use std::collections::BTreeMap;

use tokio::runtime::Builder;

use super::*;
use crate::client::Spread;

/// Callers in another runtime than the client's ask as any others do: the member that was picked for them is the one they ask.
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
    // At first there is no connection to one of them.
    assert!((0..20).any(|_| here.block_on(count()) == [50, 50]));
    assert_eq!(other.block_on(count()), [50, 50]);
}

#[tokio::test]
async fn writes_take_one_number_each_however_they_begin() {
    let cluster = unique("client");
    let node = alone(&cluster);
    let client = connect(&cluster, &node).await;
    let kv = client.kv();
    let mut numbers = Vec::new();
    for bytes in [1, 1, 100_000, 100_000, 1] {
        numbers.push(kv.put("k", vec![7; bytes]).await.unwrap().request_id.number);
    }
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
}
