use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::sleep;

use super::{ClusterState, TestMachine, Trouble};
use crate::NodeId;

/// How long a node stays away after a random crash, at most.
const LONGEST_CRASH: u64 = 4000;

/// Causes one interruption after another, until the cluster is calm or dropped.
pub(super) async fn interrupt(cluster: Weak<ClusterState>) {
    loop {
        let Some(pause) = wait(&cluster, 600) else { return };
        sleep(pause).await;
        let Some(present) = present(&cluster) else { return };
        let Trouble { interruptions, crashes, .. } = *present.trouble();
        let crashes = crashes && (!interruptions || present.setup.network.chance() < 0.25);
        let machine = present.any_machine();
        drop(present);
        if crashes {
            crash(&cluster, machine).await;
        } else if interruptions {
            disturb(&cluster, machine.id().node).await;
        }
    }
}

fn present(cluster: &Weak<ClusterState>) -> Option<Arc<ClusterState>> {
    cluster.upgrade().filter(|cluster| !cluster.is_calm())
}

fn wait(cluster: &Weak<ClusterState>, longest_ms: u64) -> Option<Duration> {
    let chance = present(cluster)?.setup.network.chance();
    Some(Duration::from_millis(1) + Duration::from_millis(longest_ms).mul_f64(chance))
}

/// Kills a node, and starts it again later. Only if all nodes run and serve, and no path is cut: then no data and no
/// majority is lost.
async fn crash(cluster: &Weak<ClusterState>, machine: Arc<TestMachine>) {
    let Some(lasts) = wait(cluster, LONGEST_CRASH) else { return };
    let Some(victim) = present(cluster) else { return };
    if !victim.may_lose_one() || victim.is_settled(false).await.is_err() || !victim.may_lose_one() {
        return;
    }
    victim.crash(machine.id());
    machine.set_by_trouble(true);
    drop(victim);
    sleep(lasts).await;
    // This ends even in a calm cluster, unless the test has given the node an order since.
    let Some(cluster) = cluster.upgrade().filter(|_| machine.is_down_by_trouble()) else { return };
    machine.set_by_trouble(false);
    cluster.start(&machine).await;
}

async fn disturb(cluster: &Weak<ClusterState>, node: NodeId) {
    let Some(lasts) = wait(cluster, 1500) else { return };
    let Some(begun) = present(cluster) else { return };
    let (network, other) = (begun.setup.network.clone(), begun.any_machine().id().node);
    let kind = (network.chance() * 3.0) as u32;
    match kind {
        0 => begun.pause(node),
        1 => network.set_apart(node),
        _ => network.cut(node, other),
    }
    drop(begun);
    sleep(lasts).await;
    let Some(cluster) = cluster.upgrade() else { return };
    match kind {
        0 => cluster.resume(node),
        1 => network.rejoin(node),
        _ => network.mend(node, other),
    }
}

impl ClusterState {
    /// Whether all nodes run, without a cut between them, and they are enough that one may be lost.
    fn may_lose_one(&self) -> bool {
        let machines = self.present_machines();
        machines.len() >= 3 && self.setup.network.is_whole() && machines.iter().all(|machine| machine.node().is_some())
    }

    fn present_machines(&self) -> Vec<Arc<TestMachine>> {
        self.machines().into_iter().filter(|machine| !machine.has_left()).collect()
    }

    fn any_machine(&self) -> Arc<TestMachine> {
        let machines = self.present_machines();
        let at = (self.setup.network.chance() * machines.len() as f64) as usize;
        machines[at.min(machines.len().saturating_sub(1))].clone()
    }
}
