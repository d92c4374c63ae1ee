//! The read modes, and how a read reports what it saw. A single node is a chain of one, which suffices to show the
//! calls.

use artillery_ddata::{Node, ReadMode};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::builder().cluster("read-modes").secret("not a secret, an example").expect(1).mdns(false);
    let node = node.listen(([127, 0, 0, 1], 0).into()).start().await?;
    node.ready().await?;
    let kv = node.kv();
    kv.put("stock/7", "4").await?;

    // Linearizable, at any member: served from its own state if the key is clean there, otherwise after one version
    // query to the tail.
    let strong = kv.get("stock/7").await?;
    println!("strong: {:?} at {}, {:?}, {:?}", strong.value(), strong.version(), strong.state, strong.served);

    // Linearizable too, without trusting clocks: a barrier passes the whole chain first.
    let chain = kv.get("stock/7").mode(ReadMode::ThroughChain).await?;
    println!("through the chain: {:?}, {:?}", chain.value(), chain.served.way);

    // The newest version at this member. If it isn't committed yet, the read reports it as dirty.
    let eventual = kv.get("stock/7").mode(ReadMode::Eventual).await?;
    println!("eventual: {:?}, {:?}", eventual.value(), eventual.state);

    // Needs no runtime, and here allocates nothing. The error states why the read must use `get`.
    match kv.get_local("stock/7") {
        Ok(found) => println!("local: {found:?}"),
        Err(why) => println!("no local read: {why:?}"),
    }
    node.shutdown().await;
    Ok(())
}
