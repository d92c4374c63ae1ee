//! A node's status page, metrics and health checks in the HTTP server of an application: run `cargo run --example http`, and
//! open the printed address in a browser.

use artillery_ddata::{
    Node,
    http::{NodeSlot, RouterBuilder},
};
use axum::{Router, routing::get};
use tokio::{net::TcpListener, sync::oneshot};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The server answers before the node has started: a large data directory may take minutes to load.
    let slot = NodeSlot::new();
    let artillery = RouterBuilder::new(&slot);
    let artillery = match std::env::var("ARTILLERY_TOKEN") {
        Ok(token) => artillery.token(token.into_bytes()),
        // Without a token the server must not be reachable from other machines.
        Err(_) => artillery,
    };
    let app = Router::new().route("/", get(async || "the application\n")).nest("/artillery", artillery.build());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/artillery", listener.local_addr()?);
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async move { stopped.await.unwrap_or_default() };
    let server = tokio::spawn(async move { axum::serve(listener, app).with_graceful_shutdown(stopped).await });

    // The secret is public, so the node listens on loopback only.
    let node = Node::builder().cluster("http").secret("not a secret, an example").listen(([127, 0, 0, 1], 0).into());
    let progress = slot.clone();
    let node = node.expect(1).mdns(false).on_loading(move |loading| progress.loads(loading)).start().await?;
    slot.started(&node);
    node.ready().await?;
    node.kv().put("greeting", "hello").await?;
    println!("press Ctrl-C to stop");
    tokio::signal::ctrl_c().await?;
    // The node first: the streams of open pages end with it, and the server waits for them.
    node.shutdown().await;
    let _ = stop.send(());
    server.await??;
    Ok(())
}
