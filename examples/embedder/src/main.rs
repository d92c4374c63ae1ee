//! An application that embeds one node: it starts the node, writes and reads a key, and shuts the node down.
//! `.ci/package` builds it outside the workspace.

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
