//! What a read may see, and how it says so. One node is a chain of one, which is enough to show the calls.

use artillery_ddata::{Node, ReadMode};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::builder().cluster("read-modes").secret("not a secret, an example").expect(1).mdns(false);
    let node = node.listen(([127, 0, 0, 1], 0).into()).start().await?;
    node.ready().await?;
    let kv = node.kv();
    kv.put("stock/7", "4").await?;

    // Linearizable, at any member: from its own state if the key is clean there, else after a word from the tail.
    let strong = kv.get("stock/7").await?;
    println!("strong: {:?} at {}, {:?}, {:?}", strong.value(), strong.version(), strong.state, strong.served);

    // Linearizable too, and trusts no clock: a barrier passes the whole chain first.
    let chain = kv.get("stock/7").mode(ReadMode::ThroughChain).await?;
    println!("through the chain: {:?}, {:?}", chain.value(), chain.served.way);

    // The newest version here. It may not be committed yet, and then says that it is dirty.
    let eventual = kv.get("stock/7").mode(ReadMode::Eventual).await?;
    println!("eventual: {:?}, {:?}", eventual.value(), eventual.state);

    // No runtime, no lock, no allocation: or an error that says why `get` is needed.
    match kv.get_local("stock/7") {
        Ok(found) => println!("local: {found:?}"),
        Err(why) => println!("not here and now: {why:?}"),
    }
    node.leave().await;
    Ok(())
}
