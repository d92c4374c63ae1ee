//! A client on a host without a node: `cargo run --example client_of_another_host CLUSTER HOST:PORT`, with the
//! cluster's secret in `ARTILLERY_SECRET`. HOST:PORT is the address or host name of any node.

use artillery_ddata::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(cluster), Some(seed)) = (args.next(), args.next()) else {
        return Err("usage: client_of_another_host CLUSTER HOST:PORT".into());
    };
    let secret = std::env::var("ARTILLERY_SECRET")?;
    let client = Client::builder().cluster(cluster).secret(secret).seed(seed).connect().await?;
    let kv = client.kv();
    kv.put("from/afar", "hello").await?;
    println!("{:?}", kv.get("from/afar").await?.value());
    Ok(())
}
