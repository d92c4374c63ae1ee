//! Locks, elections and registrations under many seeds.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use tokio::time::sleep;

use super::super::*;
use crate::{
    Batch, Kv, Version,
    recipes::{FencingToken, Guard, Instance, RegistrationError, RegistryEvent},
};

const TTL: Duration = Duration::from_secs(2);

/// A resource outside of the cluster, and what its holders saw.
#[derive(Default)]
struct Resource {
    /// The highest token, and its holder.
    highest: Option<(FencingToken, usize)>,
    guards: Vec<Weak<Guard>>,
    acquired: Vec<FencingToken>,
    /// The writes that were conditional on the lock, by their versions.
    fenced: BTreeMap<Version, FencingToken>,
    refused: usize,
}

impl Resource {
    fn acquire(&mut self, guard: &Arc<Guard>) {
        self.guards.retain(|other| other.strong_count() > 0);
        let is_held = |other: &Weak<Guard>| other.upgrade().is_some_and(|other| other.is_held());
        assert!(!self.guards.iter().any(is_held), "two guards are held");
        assert!(self.acquired.last() < Some(&guard.token()), "tokens don't rise");
        self.acquired.push(guard.token());
        self.guards.push(Arc::downgrade(guard));
    }

    /// A write of this holder, as it arrives.
    fn write(&mut self, token: FencingToken, holder: usize) {
        match self.highest {
            Some((highest, _)) if token < highest => self.refused += 1,
            Some((highest, former)) if token == highest => assert_eq!(former, holder, "one token, two holders"),
            _ => self.highest = Some((token, holder)),
        }
    }
}

async fn contend(number: usize, kv: Kv, resource: Arc<Mutex<Resource>>) {
    let lock = kv.lock("jobs").with_ttl(TTL);
    for round in 0..4_u32 {
        let Ok(guard) = lock.acquire().timeout(Duration::from_secs(20)).await else { continue };
        let guard = Arc::new(guard);
        resource.lock().unwrap().acquire(&guard);
        for _ in 0..round {
            if !guard.is_held() {
                break;
            }
            let batch = Batch::new().held(&guard).put("data", format!("{number}/{round}"));
            if let Ok(done) = kv.write(batch).timeout(TTL).await {
                resource.lock().unwrap().fenced.insert(done.version, guard.token());
            }
            // A holder that is delayed after its check.
            let (resource, token) = (resource.clone(), guard.token());
            tokio::spawn(async move {
                sleep(TTL / 3 * round).await;
                resource.lock().unwrap().write(token, number);
            });
            sleep(TTL / 2).await;
        }
        if round % 2 == 0
            && let Ok(guard) = Arc::try_unwrap(guard)
        {
            let _ = guard.release().await;
        }
    }
}

async fn locks(cluster: Cluster) {
    let handles = [cluster.client(), cluster.client(), cluster.kv(cluster.head()), cluster.kv(cluster.tail())];
    let resource = Arc::new(Mutex::new(Resource::default()));
    let tasks: Vec<_> = handles
        .into_iter()
        .enumerate()
        .map(|(number, kv)| tokio::spawn(contend(number, kv, resource.clone())))
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let resource = resource.lock().unwrap();
    assert!(resource.acquired.len() >= 4, "{:?}", resource.acquired);
    assert!(resource.fenced.values().is_sorted(), "{:?}", resource.fenced);
}

#[test]
fn a_lock_excludes_under_trouble() {
    explore(0..40, locks);
    Cluster::builder().nodes(4).replicas(2).chains(3).trouble(Trouble::rough()).explore(0..10, |cluster| async move {
        // The keys of a fenced batch belong to one chain, which only the name in braces decides.
        locks_of_many_chains(cluster).await;
    });
}

async fn locks_of_many_chains(cluster: Cluster) {
    let kv = cluster.client();
    for name in ["a", "b", "c", "}", ""] {
        let lock = kv.lock(name).with_ttl(TTL);
        if let Ok(guard) = lock.acquire().timeout(Duration::from_secs(20)).await {
            let _ = kv.write(Batch::new().held(&guard).put("report/{a}", name)).await;
        }
    }
}

#[test]
fn tokens_rise_over_a_power_cut_of_all() {
    Cluster::builder().durable().explore(0..10, |cluster| async move {
        let kv = cluster.client();
        let lock = kv.lock("jobs").with_ttl(TTL);
        let first = lock.acquire().await.unwrap();
        for node in cluster.nodes() {
            cluster.power_cut(node);
        }
        sleep(TTL * 2).await;
        assert!(!first.is_held(), "the holder counts by its own clock");
        cluster.restart_all().await;
        let second = lock.acquire().timeout(TTL * 10).await.unwrap();
        assert!(second.token() > first.token());
        assert!(!first.is_held());
    });
}

/// A holder whose node is paused for longer than its time to live.
#[test]
fn a_paused_holder_is_fenced() {
    Cluster::builder().nodes(4).replicas(3).explore(0..10, |cluster| async move {
        let paused = *cluster.nodes().iter().find(|node| !cluster.chain().contains(node)).unwrap();
        let (first, second) = (cluster.kv(paused), cluster.client());
        let guard = first.lock("jobs").with_ttl(TTL).acquire().await.unwrap();
        cluster.pause(paused);
        let next = second.lock("jobs").with_ttl(TTL).acquire().timeout(TTL * 5).await.unwrap();
        assert!(!guard.is_held() && next.is_held());
        cluster.resume(paused);
        let late = first.write(Batch::new().held(&guard).put("data", "late")).await;
        assert!(late.unwrap_err().conflict().is_some());
        second.write(Batch::new().held(&next).put("data", "new")).await.unwrap();
    });
}

#[test]
fn registrations_stay_and_end_under_trouble() {
    explore(0..20, |cluster| async move {
        let (kv, other) = (cluster.client(), cluster.client());
        let mut here = Vec::new();
        for id in 0..5 {
            let registered = kv.registry("web").with_ttl(TTL).register(format!("{id}"), format!("a:{id}")).await;
            here.extend(registered);
        }
        sleep(TTL * 4).await;
        cluster.set_trouble(Trouble::none());
        cluster.heal();
        cluster.settle().await;
        sleep(TTL * 2).await;
        let found = other.registry("web").instances().await.unwrap();
        assert!(found.len() >= here.len(), "{found:?}");
        drop(here);
        sleep(TTL * 2).await;
        assert_eq!(other.registry("web").instances().await.unwrap(), []);
    });
}

#[tokio::test(start_paused = true)]
async fn renewals_keep_a_lock_beyond_its_time_to_live() {
    let cluster = Cluster::builder().seed(5).start().await;
    let kv = cluster.client();
    let locks = [kv.lock("a"), kv.lock("b"), kv.lock("{c}")];
    let mut held = Vec::new();
    for lock in locks {
        held.push(lock.with_ttl(TTL).acquire().await.unwrap());
    }
    sleep(TTL * 4).await;
    assert!(held.iter().all(Guard::is_held));
}

#[tokio::test(start_paused = true)]
async fn an_instance_is_kept_updated_and_removed() {
    let cluster = Cluster::builder().seed(5).start().await;
    let kv = cluster.client();
    let registry = kv.registry("web").with_ttl(TTL);
    let here = registry.register("1", "a:1").await.unwrap();
    let there = registry.register("2", "b:1").await.unwrap();
    here.update("a:2").await.unwrap();
    sleep(TTL * 4).await;
    let values = |instances: Vec<Instance>| -> Vec<_> {
        instances.into_iter().map(|instance| (instance.id, instance.value)).collect()
    };
    let expected = [("1".into(), "a:2".into()), ("2".into(), "b:1".into())];
    assert_eq!(values(registry.instances().await.unwrap()), expected);

    // It is registered again after it was lost.
    kv.delete(registry.prefix().to_vec().into_iter().chain(*b"1").collect::<Vec<_>>()).await.unwrap();
    while registry.instances().await.unwrap().len() < 2 {
        sleep(TTL / 20).await;
    }
    assert_eq!(values(registry.instances().await.unwrap()), expected);

    // A restarted process replaces the entry, and the former process doesn't remove it.
    let again = registry.register("2", "c:1").await.unwrap();
    there.replaced().await;
    assert_eq!(there.update("b:2").await, Err(RegistrationError::Replaced));
    there.deregister().await.unwrap();
    assert_eq!(values(registry.instances().await.unwrap())[1], ("2".into(), "c:1".into()));
    again.deregister().await.unwrap();
    drop(here);
    while !registry.instances().await.unwrap().is_empty() {
        sleep(TTL / 20).await;
    }
    cluster.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_value_that_is_too_large_changes_nothing() {
    let cluster = Cluster::builder().seed(5).start().await;
    let kv = cluster.client();
    let registry = kv.registry("web").with_ttl(TTL);
    let here = registry.register("1", "a:1").await.unwrap();
    let refused = here.update(vec![0; 100 << 20]).await.unwrap_err();
    assert!(matches!(refused, RegistrationError::Call(_)));
    sleep(TTL * 3).await;
    assert_eq!(registry.instances().await.unwrap()[0].value, "a:1");
}

#[tokio::test(start_paused = true)]
async fn the_keys_of_a_process_share_updates() {
    let cluster = Cluster::builder().seed(5).start().await;
    let kv = cluster.client();
    let mut held = Vec::new();
    for number in 0..50 {
        held.push(kv.lock(number.to_string()).with_ttl(TTL).acquire().await.unwrap());
    }
    // They fall into step with the first renewals.
    sleep(TTL).await;
    let before = kv.put("a", "v").await.unwrap().version.sequence.0;
    sleep(TTL * 4).await;
    let updates = kv.put("a", "v").await.unwrap().version.sequence.0 - before;
    assert!(held.iter().all(Guard::is_held));
    // Each key alone would be renewed 12 times.
    assert!(updates < 50 * 12 / 5, "{updates} updates");
}

#[tokio::test(start_paused = true)]
async fn a_registry_is_followed() {
    let cluster = Cluster::builder().seed(5).start().await;
    let (kv, other) = (cluster.client(), cluster.client());
    let registry = kv.registry("web").with_ttl(TTL);
    let first = registry.register("1", "a:1").await.unwrap();
    let mut watch = other.registry("web").watch().await.unwrap();
    let event = |event: RegistryEvent| match event {
        RegistryEvent::Up(instance) => (true, instance.id, instance.value),
        RegistryEvent::Down(instance) => (false, instance.id, instance.value),
    };
    assert_eq!(event(watch.next().await.unwrap()), (true, "1".into(), "a:1".into()));
    let second = registry.register("2", "b:1").await.unwrap();
    assert_eq!(event(watch.next().await.unwrap()), (true, "2".into(), "b:1".into()));
    first.update("a:2").await.unwrap();
    assert_eq!(event(watch.next().await.unwrap()), (true, "1".into(), "a:2".into()));
    second.deregister().await.unwrap();
    assert_eq!(event(watch.next().await.unwrap()), (false, "2".into(), "b:1".into()));
    assert_eq!(watch.instances().len(), 1);
    drop(first);
    assert_eq!(event(watch.next().await.unwrap()), (false, "1".into(), "a:2".into()));
}

#[tokio::test(start_paused = true)]
async fn an_election_is_observed() {
    let cluster = Cluster::builder().seed(5).start().await;
    let (kv, other) = (cluster.client(), cluster.client());
    let election = kv.election("db").with_ttl(TTL);
    let mut observed = other.election("db").observe().await.unwrap();
    assert_eq!(observed.next().await.unwrap(), None);
    let first = election.campaign("a").await.unwrap();
    let leader = observed.next().await.unwrap().unwrap();
    assert_eq!((&leader.value[..], leader.token), (&b"a"[..], first.token()));
    first.proclaim("a, ready").await.unwrap();
    assert_eq!(observed.next().await.unwrap().unwrap().value, "a, ready");
    let next = tokio::spawn(election.campaign("b").timeout(TTL * 10).into_future());
    sleep(TTL).await;
    first.resign().await.unwrap();
    let next = next.await.unwrap().unwrap();
    assert_eq!(observed.next().await.unwrap().unwrap().token, next.token());
    assert_eq!(observed.leader().unwrap().value, "b");
    next.resign().await.unwrap();
    assert_eq!(observed.next().await.unwrap(), None);
}
