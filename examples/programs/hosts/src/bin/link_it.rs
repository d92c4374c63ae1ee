//! README's first program.

use artillery_ddata::Node;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let secret = std::env::var("SHOP_SECRET")?;
    let node = Node::builder().cluster("shop").secret(secret).expect(3).start().await?;
    node.ready().await?; // three nodes have met and formed a chain
    let kv = node.kv();
    kv.put("greeting", "hello").await?; // on all members once this returns
    println!("{:?}", kv.get("greeting").await?.value()); // linearizable, here from this node's memory
    node.shutdown().await;
    Ok(())
}
