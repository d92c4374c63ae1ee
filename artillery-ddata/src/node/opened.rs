//! From `Opened` to `Started` (see `stage`): a node gets its sockets, and looks for its cluster.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use artillery_core::internal::watch;
use artillery_core::{
    Cluster, MemberId,
    transport::{ForeignPeer, Service},
};
use artillery_proto::data_dir::BegunStore;
use tokio::{runtime::Handle, sync::mpsc};

use super::{
    data::{Data, Others, Reporting},
    durable::NodeDir,
    foreign::MEETING_QUEUE,
    formed::Unformed,
    machine::Machine,
    service::DataService,
    stage::{Reached, Stage, Started},
    starting::{StartError, blocking},
};
use crate::{
    config::{Config, Threads},
    control::formation::{After, Formation, FormationMessage, FormationSettings, InvalidFormation},
    driver::{
        forming::Forming,
        lanes::Hub,
        phase::{NodePhase, Stopped},
        serve::Server,
    },
    local::{Local, room::Sizes},
    rpc::router::Router,
    store::Store,
};

const FORMATION_QUEUE: usize = 64;

/// A node without sockets.
pub(crate) struct Opened {
    data: Arc<Data>,
    service: Arc<DataService>,
    messages: mpsc::Receiver<(MemberId, FormationMessage)>,
    meetings: mpsc::Receiver<ForeignPeer>,
    /// The store in the node's directory, until it is loaded.
    unloaded: Option<BegunStore>,
}

impl Opened {
    pub(crate) fn new(
        config: &Config,
        machine: Machine,
        (me, name): (MemberId, &str),
        store: Arc<dyn Store>,
        after: Option<After>,
        chain_threads: Vec<Handle>,
        dir: Option<(NodeDir, BegunStore)>,
    ) -> Self {
        let (formation, messages) = mpsc::channel(FORMATION_QUEUE);
        let (met, meetings) = mpsc::channel(MEETING_QUEUE);
        let (dir, unloaded) = dir.unzip();
        let data = Arc::new(Data {
            config: config.clone(),
            local: Arc::new(Local::new(me, name.to_owned()).with_clock(machine.clock.clone())),
            machine,
            chains: Arc::default(),
            store,
            dir,
            after,
            chain_threads,
            stage: Stage::default(),
            phase: watch::Sender::new(NodePhase::Seeking),
            is_leaving: AtomicBool::new(false),
            reporting: Reporting::default(),
            others: watch::Sender::<Others>::default(),
        });
        let (chains, entrances) = (data.chains.clone(), Box::new(Arc::downgrade(&data)));
        let service = Arc::new(DataService { chains, entrances, formation, meetings: met });
        Self { data, service, messages, meetings, unloaded }
    }

    /// Loads the node's directory, if it has one. With failover, the directory of a node that already has a cluster is
    /// loaded later, while the node renews its lease.
    pub(crate) async fn load(mut self) -> Result<Self, StartError> {
        let waits = self.data.config.failover && self.data.dir.as_ref().and_then(NodeDir::founding).is_some();
        if let Some(store) = self.unloaded.take_if(|_| !waits) {
            let data = self.data.clone();
            blocking(move || data.load(store)).await?;
        }
        Ok(self)
    }

    pub(crate) fn service(&self) -> Arc<dyn Service> {
        self.service.clone()
    }

    /// Starts the parts that use sockets, and starts to look for the node's cluster.
    pub(crate) fn start(self, cluster: &Cluster, seed: u128) -> Result<(Arc<Data>, Arc<Router>), InvalidFormation> {
        let Self { data, messages, meetings, unloaded, .. } = self;
        let endpoint = cluster.endpoint().clone();
        let is_driven = data.config.threads != Threads::Shared;
        let max_value_bytes = data.config.limits.max_value_bytes as u64;
        let router = Router::of_node(data.local.clone(), endpoint.clone(), max_value_bytes, is_driven);
        let hub = Arc::new(Hub::new(endpoint));
        let sizes = Sizes::new(data.config.limits.queue_bytes, &data.config.transport);
        let node = Box::new(Arc::downgrade(&data));
        let server = Arc::new(Server::new(data.local.clone(), router.clone(), max_value_bytes, sizes, node));
        let started = Started { cluster: cluster.clone(), router: router.clone(), hub, server };
        let started = Arc::new(started);
        data.stage.enter(Reached::Started(started.clone()));
        data.seek(&started, seed, messages, Unformed { meetings, unloaded })?;
        Ok((data, router))
    }
}

impl Data {
    fn seek(
        self: &Arc<Self>,
        started: &Arc<Started>,
        seed: u128,
        messages: mpsc::Receiver<(MemberId, FormationMessage)>,
        unformed: Unformed,
    ) -> Result<(), InvalidFormation> {
        let cluster = &started.cluster;
        let (me, settings) = (self.info(cluster), self.formation_settings(cluster));
        let known = self.dir.as_ref().and_then(NodeDir::founding).map(Arc::new);
        let formation = match &known {
            Some(founding) => Formation::member(me, settings, founding.clone())?,
            None => Formation::new(me, settings, seed)?,
        };
        let forming = Forming {
            me: self.id(),
            clock: self.machine.clock.clone(),
            formation,
            messages,
            events: cluster.events(),
            hub: started.hub.clone(),
            incarnations: BTreeMap::new(),
            yields: self.local.follow_yields(),
            cluster: cluster.clone(),
            is_stuck: false,
            has_directory: self.dir.is_some(),
            shown: self.reporting.formation.clone(),
        };
        self.end_with_membership(cluster);
        self.start_reports(cluster);
        // The formation of a node that already has a cluster forms no other one.
        let (now, later) = if known.is_some() { (Some(unformed), None) } else { (None, Some(unformed)) };
        let (data, stuck) = (Arc::downgrade(self), Arc::downgrade(self));
        let forming = forming.run(self.phases(), move |founding| {
            if let (Some(data), Some(unformed)) = (data.upgrade(), later) {
                data.formed(&founding, unformed);
            }
        });
        tokio::spawn(async move {
            if forming.await
                && let Some(data) = stuck.upgrade()
            {
                data.stop(Stopped::Unformed);
            }
        });
        if let Some((founding, unformed)) = known.zip(now) {
            self.formed(&founding, unformed);
        }
        Ok(())
    }

    fn formation_settings(&self, cluster: &Cluster) -> FormationSettings {
        let expect = u16::try_from(self.config.expect).unwrap_or(u16::MAX);
        let defaults = FormationSettings::new(self.config.cluster.clone(), expect, self.config.chains);
        FormationSettings {
            search: if cluster.looks_for_others() { defaults.search } else { Duration::ZERO },
            timing: self.config.timing(),
            after: self.after.clone(),
            existing: self.config.existing,
            ..defaults
        }
    }
}
