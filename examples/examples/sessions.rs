//! A session reads its own writes at every node, and its position can be moved to another process. Three nodes in this
//! process form a chain of three.

use artillery_ddata::{Node, ReadMode, Session, kv::ReadState};

const SECRET: &str = "not a secret, an example";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = || {
        let loopback = "127.0.0.1:0".parse().map(|addr| Node::builder().listen(addr));
        loopback.map(|node| node.cluster("sessions").secret(SECRET).expect(3).mdns(false))
    };
    let first = node()?.start().await?;
    let seed = first.addr().to_string();
    let (second, third) = (node()?.seed(&seed).start().await?, node()?.seed(&seed).start().await?);
    let nodes = [first, second, third];
    for node in &nodes {
        println!("{} is {}", node.name(), node.ready().await?.place);
    }

    // The writes go through one node, the reads to others. A read in the session is served by any node that has applied
    // the updates that the session saw. Without the session, an eventual read might show the state before the write.
    let session = Session::new();
    let [mine, elsewhere, later] = nodes.each_ref().map(|node| node.kv().in_session(&session));
    for n in 0..100 {
        let put = mine.put("cart/3", n.to_string()).await?;
        let read = elsewhere.get("cart/3").mode(ReadMode::Eventual).await?;
        assert_eq!((read.version(), read.state), (put.version, ReadState::Clean));
        // Reads never go backwards from one node to another.
        assert!(later.get("cart/3").mode(ReadMode::Eventual).await?.version() >= read.version());
    }

    // The position of a session is a short text, for example for a cookie, with which another process resumes the
    // session.
    let cookie = session.frontier().to_string();
    println!("after 100 writes it has seen {cookie}");
    let resumed = Session::resume(cookie.parse()?);
    let read = nodes[2].kv().get("cart/3").mode(ReadMode::Eventual).session(&resumed).await?;
    assert_eq!(read.value().map(|value| &value[..]), Some(&b"99"[..]));
    println!("resumed, it reads {:?} at {:?}", read.value(), read.served);
    for node in &nodes {
        node.shutdown().await;
    }
    Ok(())
}
