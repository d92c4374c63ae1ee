//! Follows the instances of a registry.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
};

use bytes::Bytes;

use super::{Instance, Registry};
use crate::view::{View, ViewError};

/// A change of a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegistryEvent {
    /// An instance is registered, or has another value.
    Up(Instance),
    /// An instance was removed, or expired. This is the last one that was reported.
    Down(Instance),
}

/// The changes of a registry, from a [view](crate::view) of its instances. A slow caller
/// receives the differences to the instances that it knows, and no intermediate changes.
pub struct RegistryWatch {
    view: View,
    prefix: Bytes,
    reported: BTreeMap<Bytes, Instance>,
    ready: VecDeque<RegistryEvent>,
    has_begun: bool,
}

impl Registry {
    /// Follows the registry: first the present instances, then each change. All watches of a registry in a process share
    /// one watch at the cluster.
    ///
    /// # Errors
    /// Those of [`Kv::view`](crate::Kv::view).
    pub async fn watch(&self) -> Result<RegistryWatch, ViewError> {
        let prefix = self.prefix();
        let view = self.kv().view(&prefix).await?;
        Ok(RegistryWatch { view, prefix, reported: BTreeMap::new(), ready: VecDeque::new(), has_begun: false })
    }
}

impl RegistryWatch {
    /// Waits for the next event. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The error with which the view ended. A view survives failovers and lost connections.
    pub async fn next(&mut self) -> Result<RegistryEvent, ViewError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            if std::mem::replace(&mut self.has_begun, true) {
                self.view.changed().await?;
            }
            self.compare();
        }
    }

    /// The instances as this process knows them now, in the order of their ids.
    pub fn instances(&self) -> Vec<Instance> {
        let instance = |entry: crate::kv::Entry| Instance {
            id: entry.key.slice(self.prefix.len()..),
            value: entry.value,
            version: entry.version,
        };
        self.view.iter().map(instance).collect()
    }

    /// Queues the differences between the view and the reported instances.
    fn compare(&mut self) {
        let present: BTreeMap<_, _> =
            self.instances().into_iter().map(|instance| (instance.id.clone(), instance)).collect();
        for (id, instance) in &self.reported {
            if !present.contains_key(id) {
                self.ready.push_back(RegistryEvent::Down(instance.clone()));
            }
        }
        for (id, instance) in &present {
            if self.reported.get(id).is_none_or(|reported| reported.value != instance.value) {
                self.ready.push_back(RegistryEvent::Up(instance.clone()));
            }
        }
        self.reported = present;
    }
}

impl fmt::Debug for RegistryWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryWatch").field("view", &self.view).finish_non_exhaustive()
    }
}
