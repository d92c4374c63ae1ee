use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use tokio::time::sleep;

use super::{Cluster, ClusterState, TestMachine, Trouble};
use crate::NodeId;

/// How long a node stays away after a random crash, at most.
const LONGEST_CRASH: u64 = 4000;

/// Causes one interruption after another, until the cluster is calm or dropped.
pub(super) async fn interrupt(cluster: Weak<ClusterState>, trouble: Trouble) {
    loop {
        let Some(pause) = wait(&cluster, 600) else { return };
        sleep(pause).await;
        let Some(present) = present(&cluster) else { return };
        present.interrupted.store(true, Ordering::Relaxed);
        let crashes = trouble.crashes && (!trouble.interruptions || present.setup.network.chance() < 0.25);
        let machine = present.any_machine();
        drop(present);
        if crashes {
            crash(&cluster, machine).await;
        } else {
            disturb(&cluster, machine.id().node).await;
        }
        let Some(cluster) = cluster.upgrade() else { return };
        cluster.interrupted.store(false, Ordering::Relaxed);
    }
}

fn present(cluster: &Weak<ClusterState>) -> Option<Arc<ClusterState>> {
    cluster.upgrade().filter(|cluster| !cluster.is_calm())
}

fn wait(cluster: &Weak<ClusterState>, longest_ms: u64) -> Option<Duration> {
    let chance = present(cluster)?.setup.network.chance();
    Some(Duration::from_millis(1) + Duration::from_millis(longest_ms).mul_f64(chance))
}

/// Kills a node, and starts it again later. Only if all nodes serve: then none of the others is joining, so no data and
/// no majority is lost.
async fn crash(cluster: &Weak<ClusterState>, machine: Arc<TestMachine>) {
    let Some(lasts) = wait(cluster, LONGEST_CRASH) else { return };
    let Some(victim) = present(cluster) else { return };
    if victim.machines().len() < 3 || machine.node().is_none() || victim.is_settled(false).await.is_err() {
        return;
    }
    victim.crash(machine.id());
    drop(victim);
    sleep(lasts).await;
    // The check needs all nodes, so this crash ends even in a calm cluster.
    let Some(inner) = cluster.upgrade() else { return };
    Cluster { inner }.restart(machine.id()).await;
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
    fn any_machine(&self) -> Arc<TestMachine> {
        let machines = self.machines();
        let at = (self.setup.network.chance() * machines.len() as f64) as usize;
        machines[at.min(machines.len() - 1)].clone()
    }
}
