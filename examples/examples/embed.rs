//! A node inside an application: `cargo run --example embed` three times, in three terminals.

use artillery_ddata::Node;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A real application reads its secret from where it keeps its secrets.
    let node = Node::builder().cluster("embed").secret("not a secret, an example").expect(3).start().await?;
    println!("{} is at {} and looks for two others …", node.name(), node.addr());
    let ready = node.ready().await?;
    println!("the cluster is there, and this node is its {}", ready.role);

    let kv = node.kv();
    let greeted = kv.put(format!("greeting/{}", node.name()), "hello").await?;
    println!("greeted, as version {}: it is on {} members", greeted.version, greeted.copies);
    for member in node.status().await.members {
        let read = kv.get(&format!("greeting/{}", member.node)).await?;
        println!("{} said {:?}", member.node, read.value());
    }
    println!("Ctrl-C ends it");
    tokio::signal::ctrl_c().await?;
    node.leave().await;
    Ok(())
}
