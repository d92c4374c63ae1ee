//! Five nodes, and joining ones, for the suite that cuts links.

use artillery_proto::control::{
    Term,
    conformance::{self, Rig},
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

use artillery_proto::guards::Guards;
use tokio::time::sleep;

use super::{
    super::{Embedded, EmbeddedSettings},
    network::{Net, founding},
};
use crate::{
    MemberId,
    control::{
        Bootstrap, ConfigLog, Configs, NodeInfo,
        log::{BoxFuture, ConfigChange, LogEntry, LogIndex, ProposalFuture},
    },
};

/// Each seed produces another order of elections and messages.
const SEEDS: std::ops::Range<u64> = 0..10;

struct Five {
    net: Net,
    founding: Bootstrap,
    settings: EmbeddedSettings,
}

impl Five {
    /// A snapshot is made after every few entries, so that a node that lags behind receives one. All entries stay
    /// readable.
    async fn start(seed: u64) -> Self {
        let settings = EmbeddedSettings { snapshot_every: 8, ..EmbeddedSettings::default() };
        let five = Self { net: Net::new(seed, Guards::ALL), founding: founding(5), settings };
        for n in 0..5 {
            five.net.start(n, &five.founding, &five.settings).await;
        }
        five
    }

    fn log(&self, node: MemberId) -> Embedded {
        self.net.log(node).unwrap()
    }
}

impl Rig for Five {
    fn nodes(&self) -> Vec<MemberId> {
        self.net.logs().into_iter().map(|(founder, _)| founder.id).collect()
    }

    fn come(&self) -> BoxFuture<'_, NodeInfo> {
        Box::pin(async {
            let n = self.net.logs().len();
            self.net.start(n, &self.founding, &self.settings).await;
            self.net.logs()[n].0.clone()
        })
    }

    fn cut(&self, from: MemberId, to: MemberId) {
        self.net.world().cuts.insert((from.node, to.node));
    }

    fn heal(&self) {
        self.net.heal();
    }

    fn pass(&self) -> BoxFuture<'_, ()> {
        Box::pin(sleep(Duration::from_millis(2)))
    }

    fn leads(&self, node: MemberId) -> Option<Term> {
        self.log(node).leads()
    }

    fn configs(&self, node: MemberId) -> Arc<Configs> {
        self.log(node).configs()
    }

    fn entries(&self, node: MemberId) -> Vec<LogEntry> {
        let log = self.log(node);
        (1..).map_while(|at| log.entry(LogIndex(at)).unwrap()).collect()
    }

    fn voter_sets(&self, node: MemberId) -> Vec<BTreeSet<MemberId>> {
        self.log(node).voter_sets()
    }

    fn append(&self, node: MemberId, term: Term, at: LogIndex, change: ConfigChange) -> ProposalFuture<'_> {
        let log = self.log(node);
        Box::pin(async move { log.append(term, at, change).await })
    }

    fn set_voters(&self, node: MemberId, term: Term, voters: BTreeSet<MemberId>) -> ProposalFuture<'_> {
        let log = self.log(node);
        Box::pin(async move { log.set_voters(term, voters).await })
    }
}

#[tokio::test(start_paused = true)]
async fn joint_set_stuck() {
    for seed in SEEDS {
        conformance::joint_set_stuck(&Five::start(seed).await).await;
    }
}

#[tokio::test(start_paused = true)]
async fn catch_up() {
    for seed in SEEDS {
        conformance::catch_up(&Five::start(seed).await).await;
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_then_refused() {
    for seed in SEEDS {
        conformance::unknown_then_refused(&Five::start(seed).await).await;
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_then_taken() {
    for seed in SEEDS {
        conformance::unknown_then_taken(&Five::start(seed).await).await;
    }
}
