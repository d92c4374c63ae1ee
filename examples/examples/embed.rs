//! A node inside an application: run `cargo run --example embed` in three terminals. With the same secret in
//! `ARTILLERY_SECRET`, the three nodes may be on different hosts of one network.

use artillery_ddata::Node;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::builder().cluster("embed").expect(3);
    let node = match std::env::var("ARTILLERY_SECRET") {
        Ok(secret) => node.secret(secret),
        // The secret is public, so the node listens on loopback only.
        Err(_) => node.secret("not a secret, an example").listen(([127, 0, 0, 1], 0).into()),
    };
    let node = node.start().await?;
    println!("{} is at {}, looking for two others …", node.name(), node.addr());
    let ready = node.ready().await?;
    println!("the cluster is ready, and this node is its {}", ready.place);

    let kv = node.kv();
    let greeted = kv.put(format!("greeting/{}", node.name()), "hello").await?;
    println!("wrote version {} to {} members", greeted.version, greeted.copies);
    for member in node.status().await.members {
        let read = kv.get(&format!("greeting/{}", member.node)).await?;
        println!("greeting of {}: {:?}", member.node, read.value());
    }
    println!("press Ctrl-C to stop");
    tokio::signal::ctrl_c().await?;
    node.shutdown().await;
    Ok(())
}
