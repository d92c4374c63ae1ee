//! Tests of an application against a whole cluster in this process, on virtual time and without sockets: rare faults
//! happen at once, and the same seed repeats them. In a package of your own, make these functions tests:
//! `#[tokio::test(start_paused = true)]`, with `artillery-ddata` and its feature `testing` in `dev-dependencies`.

use std::time::Duration;

use artillery_ddata::{
    Error, Kv, RequestId,
    testing::{self, Cluster, Fate},
};

/// The application: takes an order exactly once, however often it retries. It works on a `Kv`, which may belong to a
/// node, a client or a test.
async fn order(kv: &Kv, number: u32) -> Result<i64, Error> {
    let mut id: Option<RequestId> = None;
    loop {
        let call = kv.increment("orders", 1).timeout(Duration::from_secs(1));
        let asked = match id {
            // The same request id as before: if that attempt was applied, its recorded answer is returned.
            Some(id) => call.request_id(id).await,
            None => call.await,
        };
        match asked {
            Ok(done) => {
                kv.put(format!("order/{number}"), done.result.to_string()).await?;
                return Ok(done.result);
            }
            Err(Error::OutcomeUnknown { request_id, .. }) => id = Some(request_id),
            Err(error) => return Err(error),
        }
    }
}

/// The answer to a write is lost, in each possible way.
async fn an_order_counts_once() {
    let cluster = Cluster::builder().nodes(3).seed(7).start().await;
    let kv = cluster.client();
    for (number, fate) in (1..).zip([Fate::Applied, Fate::Lost, Fate::Late]) {
        cluster.next_outcome_unknown(fate);
        let orders = order(&kv, number).await.expect("an order");
        assert_eq!(orders, i64::from(number), "{fate:?}");
    }
    // By now late messages have arrived. All members must agree, and all answers must be consistent.
    cluster.check().await;
}

/// The network fails in one direction, then a member is paused.
async fn orders_wait_for_the_network() {
    let cluster = Cluster::builder().nodes(3).seed(7).start().await;
    let kv = cluster.client();
    order(&kv, 1).await.expect("an order");
    cluster.cut(cluster.head(), cluster.chain()[1]);
    // Virtual time advances only while all tasks wait: the two seconds take no real time.
    let early = tokio::time::timeout(Duration::from_secs(2), order(&kv, 2)).await;
    assert!(early.is_err(), "nothing reaches the tail");
    cluster.heal();
    order(&kv, 3).await.expect("an order");

    // The chain has been rearranged: wait until all nodes serve again.
    cluster.settle().await;
    let inside = cluster.kv(cluster.tail());
    cluster.pause(cluster.chain()[1]);
    // Less time than the others need to remove it.
    let put = kv.put("note", "x").timeout(Duration::from_millis(300)).await;
    assert!(matches!(put, Err(Error::OutcomeUnknown { .. })), "{put:?}");
    assert!(inside.get("orders").await.is_ok(), "clean keys stay readable");
    cluster.check().await;
}

fn main() {
    let run = |name, test: std::pin::Pin<Box<dyn Future<Output = ()>>>| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(test);
        println!("{name}: ok");
    };
    run("an order counts once", Box::pin(an_order_counts_once()));
    run("orders wait for the network", Box::pin(orders_wait_for_the_network()));

    // Run concurrent orders with many seeds, with faults of all kinds at any time. A failure names its seed.
    testing::explore(0..100, |cluster| async move {
        let (one, other) = (cluster.client(), cluster.client());
        let (first, second) = tokio::join!(order(&one, 1), order(&other, 2));
        // No order was counted twice. An order that failed may have been counted without its record.
        let taken = [first, second].iter().filter(|order| order.is_ok()).count();
        println!("seed {}: {taken} orders, all consistent", cluster.seed());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_order_counts_once_on_virtual_time() {
        an_order_counts_once().await;
    }

    #[tokio::test(start_paused = true)]
    async fn orders_wait_for_the_network_on_virtual_time() {
        orders_wait_for_the_network().await;
    }
}
