//! A holder of a lock that a test stops: `fenced_writer CLUSTER HOST:PORT LOCK DATABASE TTL_MS checked|unchecked`, with
//! the cluster's secret in `ARTILLERY_SECRET`.
//!
//! It acquires the lock, prints `held TOKEN`, and waits for a line on standard input. Then it writes its token into the
//! database without another look at the lock, as code does that is paused between its look and its write. It prints
//! whether the write was accepted, whether it still believes that it holds, and whether a batch that requires the lock was
//! accepted. Then it releases the lock and starts over.

use std::{env, error::Error, io, path::Path, time::Duration};

use artillery_ddata::{Batch, Client, client::Spread, kv::WriteError};
use artillery_fencing::Row;

/// Far above any delay on a busy machine.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [cluster, seed, name, database, ttl, checked] = &args[..] else { return Err("six arguments expected".into()) };
    let mut row = Row::open(Path::new(database), checked == "checked")?;
    let client = Client::builder().cluster(cluster).secret(env::var("ARTILLERY_SECRET")?).seed(seed);
    let client = client.spread(Spread::Sticky).connect().await?;
    let kv = client.kv().with_timeout(CALL_TIMEOUT);
    let lock = kv.lock(name).with_ttl(Duration::from_millis(ttl.parse()?));
    loop {
        let guard = lock.acquire().timeout(Duration::MAX).await?;
        if !guard.is_held() {
            continue;
        }
        println!("held {}", guard.token());
        // Standard input blocks a thread.
        let mut line = String::new();
        let read = tokio::task::spawn_blocking(move || io::stdin().read_line(&mut line)).await??;
        if read == 0 {
            return Ok(());
        }
        let write = if row.write(&guard.token().to_string())? { "accepted" } else { "refused" };
        let belief = if guard.is_held() { "held" } else { "lost" };
        let batch = Batch::new().held(&guard).put(format!("last/{{{name}}}"), guard.token().to_string());
        let batch = match kv.write(batch).await {
            Ok(_) => "accepted".to_owned(),
            Err(WriteError::Conflict(_)) => "refused".to_owned(),
            Err(error) => error.to_string(),
        };
        println!("wrote {write} {belief} {batch}");
        // A lost lock can't be released.
        let _ = guard.release().await;
    }
}
