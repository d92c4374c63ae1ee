//! One node inside an application, from start to end.

use artillery_ddata::Node;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::builder().cluster("embedder").secret("not a secret, an example").expect(1).mdns(false);
    let node = node.listen(([127, 0, 0, 1], 0).into()).start().await?;
    node.ready().await?;
    let kv = node.kv();
    kv.put("greeting", "hello").await?;
    println!("{:?}", kv.get("greeting").await?.value());
    node.shutdown().await;
    Ok(())
}
