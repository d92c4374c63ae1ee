//! Maps with keys and values of your own types. A single node is a chain of one, which suffices to show the calls.

use artillery_ddata::{Batch, Map, Node, map::Decimal};

#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct User {
    name: String,
    visits: u32,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::builder().cluster("typed-map").secret("not a secret, an example").expect(1).mdns(false);
    let node = node.listen(([127, 0, 0, 1], 0).into()).start().await?;
    node.ready().await?;
    let kv = node.kv();

    // Values are serde types. `update` reads, changes and swaps, and retries if another client wrote in between.
    let users: Map<String, User> = kv.map("users")?;
    users.put("ann", &User { name: "Ann".into(), visits: 1 }).await?;
    users.update("ann", |user| user.map(|user| User { visits: user.visits + 1, ..user })).await?;
    let ann = users.get("ann").await?;
    println!("{:?} at version {}", ann.value(), ann.version());
    assert_eq!(ann.value().map(|user| user.visits), Some(2));

    // Keys keep their order: 9 sorts before 10. Leading fields select a range.
    let orders: Map<(u32, u64), String> = kv.map("orders")?;
    for (key, what) in [((7, 10), "milk"), ((70, 1), "salt"), ((7, 9), "tea")] {
        orders.put(&key, &what.to_owned()).await?;
    }
    let (mut of_customer_7, mut found) = (orders.scan_prefix(&7u32), Vec::new());
    while let Some(entry) = of_customer_7.next().await {
        found.push(entry?.value);
    }
    println!("customer 7 ordered {found:?}");
    assert_eq!(found, ["tea", "milk"]);

    // Numbers stored as decimal text can be incremented without a read.
    let hits: Map<String, i64, Decimal> = kv.map("hits")?;
    hits.increment("home", 1).await?;
    assert_eq!(hits.increment("home", 41).await?.result, 42);

    // Entries of several maps in one batch, atomic within one chain.
    let batch = Batch::new().delete(users.key("ann")?).put(orders.key(&(7, 11))?, orders.value(&"jam".into())?);
    kv.write(batch).await?;
    assert_eq!(users.get("ann").await?.value(), None);
    println!("ann was deleted, order 11 is {:?}", orders.get(&(7, 11)).await?.value());
    node.shutdown().await;
    Ok(())
}
