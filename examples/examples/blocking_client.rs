//! A client without a runtime, on plain threads. Here its node runs on a thread of the same process, with a runtime of
//! its own; usually the node is another process.
#![allow(clippy::disallowed_methods, reason = "the point is plain threads")]

use std::{error::Error, net::SocketAddr, sync::mpsc, thread};

use artillery_ddata::{Map, Node, blocking::Client};
use tokio::sync::oneshot;

const SECRET: &str = "not a secret, an example";

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn serve(addr: mpsc::Sender<SocketAddr>, stop: oneshot::Receiver<()>) -> Outcome<()> {
    let node = Node::builder()
        .cluster("blocking")
        .secret(SECRET)
        .expect(1)
        .mdns(false)
        .listen(([127, 0, 0, 1], 0).into())
        .start()
        .await?;
    node.ready().await?;
    addr.send(node.addr())?;
    let _ = stop.await;
    node.shutdown().await;
    Ok(())
}

fn use_it(addr: SocketAddr) -> Outcome<()> {
    let client = Client::builder().cluster("blocking").secret(SECRET).seed(addr).connect()?;
    let kv = client.kv();
    kv.put("stock/7", "4")?;
    kv.put("stock/8", "0")?;
    // Threads share one client.
    thread::scope(|threads| {
        let selling: Vec<_> = (0..4).map(|_| threads.spawn(|| kv.increment("stock/7", -1))).collect();
        for sold in selling {
            sold.join().map_err(|_| "a thread panicked")??;
        }
        Outcome::Ok(())
    })?;
    for entry in kv.scan("stock/") {
        let entry = entry?;
        println!("{:?}: {:?}", entry.key, entry.value);
        assert_eq!(entry.value, "0");
    }
    // `wait` replaces `.await`, also for calls of typed maps and for calls with options.
    let visits: Map<String, u32> = kv.kv().map("visits")?;
    let update = kv.wait(visits.update("ann", |n| Some(n.unwrap_or(0) + 1)))?;
    assert_eq!(update.result, Some(1));
    println!("ann's visits: {:?}", update.result);
    client.close();
    Ok(())
}

fn main() -> Outcome<()> {
    let (tell, told) = mpsc::channel();
    let (stop, stopped) = oneshot::channel();
    thread::scope(|threads| {
        let node = threads.spawn(|| serve(tell, stopped));
        let outcome = told.recv().map_err(Into::into).and_then(use_it);
        let _ = stop.send(());
        node.join().map_err(|_| "the node panicked")??;
        outcome
    })
}
