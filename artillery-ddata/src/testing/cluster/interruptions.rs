use std::{sync::Weak, time::Duration};

use tokio::time::sleep;

use super::ClusterState;

/// Causes one interruption after another, until the cluster is calm or dropped.
pub(super) async fn interrupt(cluster: Weak<ClusterState>) {
    loop {
        let Some(pause) = wait(&cluster, 600) else { return };
        sleep(pause).await;
        let (Some(lasts), Some(undo)) = (wait(&cluster, 1500), begin(&cluster)) else { return };
        sleep(lasts).await;
        let Some(cluster) = cluster.upgrade() else { return };
        undo(&cluster);
    }
}

fn wait(cluster: &Weak<ClusterState>, longest_ms: u64) -> Option<Duration> {
    let cluster = cluster.upgrade().filter(|cluster| !cluster.is_calm())?;
    Some(Duration::from_millis(1) + Duration::from_millis(longest_ms).mul_f64(cluster.setup.network.chance()))
}

type EndInterruption = Box<dyn FnOnce(&ClusterState) + Send>;

fn begin(cluster: &Weak<ClusterState>) -> Option<EndInterruption> {
    let cluster = cluster.upgrade().filter(|cluster| !cluster.is_calm())?;
    let (one, other) = (cluster.any_member(), cluster.any_member());
    Some(match (cluster.setup.network.chance() * 3.0) as u32 {
        0 => {
            cluster.pause(one);
            Box::new(move |cluster| cluster.resume(one))
        }
        1 => {
            cluster.setup.network.set_apart(one);
            Box::new(move |cluster| cluster.setup.network.rejoin(one))
        }
        _ => {
            cluster.setup.network.cut(one, other);
            Box::new(move |cluster| cluster.setup.network.mend(one, other))
        }
    })
}
