//! The loss of the head, followed by a new node that joins the chain.

use std::time::Duration;

use artillery_ddata::{Node, Place};
use artillery_programs::{exit::Failure, story::Story};
use tokio::time::{Instant, sleep, timeout};

use super::{
    form::Admission,
    ledger::{Acked, Ledger},
};

const NAME: &str = "dora";

const FAILOVER_TIMEOUT: Duration = Duration::from_secs(20);

/// Stops the head's node and starts another one. Returns the number of failovers.
pub(super) async fn provoke(
    story: &Story,
    nodes: &mut Vec<Node>,
    admission: &Admission,
    ledger: &mut Ledger,
) -> Result<u64, Failure> {
    let before = nodes.len();
    let gone = nodes.remove(0);
    story.say(&format!("Now {}, the head, is stopped without notice, and the others keep writing …", gone.name()));
    let begin = Instant::now();
    gone.abort().await;
    for node in nodes.iter() {
        let (key, value) = (format!("{}/after", node.name()), format!("written without {}", gone.name()));
        let done = node.kv().with_timeout(FAILOVER_TIMEOUT).put(&key, value.clone()).await?;
        ledger.add(&key, Acked { version: done.version, value });
    }
    let pause = begin.elapsed().as_secs_f64();
    let first = nodes.first().ok_or_else(|| Failure::failed("no node is left"))?;
    seen(first, before - 1).await?;
    let heads: Vec<_> = nodes.iter().filter(|node| node.place() == Place::Head).map(Node::name).collect();
    story.say(&format!("Writes continued after {pause:.1} s: {} is the new head.", heads.join(", ")));
    let new = admission.builder(NAME).start().await.map_err(Failure::failed)?;
    story.say(&format!("  {NAME} is a new node, listening at {}", new.addr()));
    nodes.push(new.clone());
    let ready = timeout(FAILOVER_TIMEOUT, new.ready()).await;
    ready.map_err(|_| Failure::failed(format!("{NAME} was not ready in time")))?.map_err(Failure::failed)?;
    seen(&new, before).await?;
    story.say(&format!("{NAME} has caught up and serves as the {}.", new.place()));
    Ok(1)
}

/// Waits until a node serves in a chain of `members` members.
async fn seen(node: &Node, members: usize) -> Result<(), Failure> {
    let seen = async {
        while node.status().await.chains.first().is_none_or(|chain| !chain.open || chain.members.len() != members) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(FAILOVER_TIMEOUT, seen)
        .await
        .map_err(|_| Failure::failed(format!("no chain of {members} members formed in time")))
}
