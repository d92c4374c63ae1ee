//! Maps with keys and values of your own types. One node is a chain of one, which is enough to show the calls.

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

    // Values are serde types. An update reads, changes and swaps, and retries when another client was first.
    let users: Map<String, User> = kv.map("users");
    users.put("ann", &User { name: "Ann".into(), visits: 1 }).await?;
    users.update("ann", |user| user.map(|user| User { visits: user.visits + 1, ..user })).await?;
    let ann = users.get("ann").await?;
    println!("{:?} at version {}", ann.value(), ann.version());
    assert_eq!(ann.value().map(|user| user.visits), Some(2));

    // Keys keep their order: 9 comes before 10. Leading fields pick a range.
    let orders: Map<(u32, u64), String> = kv.map("orders");
    for (key, what) in [((7, 10), "milk"), ((70, 1), "salt"), ((7, 9), "tea")] {
        orders.put(&key, &what.to_owned()).await?;
    }
    let (mut of_customer_7, mut found) = (orders.scan_prefix(&7u32), Vec::new());
    while let Some(entry) = of_customer_7.next().await {
        found.push(entry?.value);
    }
    println!("customer 7 ordered {found:?}");
    assert_eq!(found, ["tea", "milk"]);

    // Numbers as decimal text can be added to without reading them first.
    let hits: Map<String, i64, Decimal> = kv.map("hits");
    hits.increment("home", 1).await?;
    assert_eq!(hits.increment("home", 41).await?.result, 42);

    // Entries of several maps in one batch: all of it or nothing, within one chain.
    let batch = Batch::new().delete(users.key("ann")?).put(orders.key(&(7, 11))?, orders.value(&"jam".into())?);
    kv.write(batch).await??;
    assert_eq!(users.get("ann").await?.value(), None);
    println!("ann is gone, and has ordered {:?}", orders.get(&(7, 11)).await?.value());
    node.leave().await;
    Ok(())
}
