//! A long-running client: `steady_client CLUSTER HOST:PORT…`, with the cluster's secret in `ARTILLERY_SECRET`. It
//! writes continuously and prints the number of each write that succeeded. After connecting, it receives the addresses
//! of nodes from the cluster alone.

use std::time::Duration;

use artillery_ddata::Client;
use tokio::time::sleep;

/// The timeout of one write. The next write is another call, as in an application.
const LIMIT: Duration = Duration::from_secs(1);

const PAUSE: Duration = Duration::from_millis(50);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let cluster = args.next().ok_or("usage: steady_client CLUSTER HOST:PORT…")?;
    let client = Client::builder().cluster(cluster).secret(std::env::var("ARTILLERY_SECRET")?).seeds(args);
    let kv = client.timeout(Duration::from_secs(30)).connect().await?.kv();
    for number in 1_u64.. {
        match kv.put("steady", number.to_string()).timeout(LIMIT).await {
            Ok(_) => println!("wrote {number}"),
            Err(error) => eprintln!("{number}: {error}"),
        }
        sleep(PAUSE).await;
    }
    Ok(())
}
