//! Faults of directories: changes them while their nodes are down, and checks whether the nodes notice.

use std::{cell::RefCell, collections::BTreeMap, fs, path::Path, process::ExitStatus, time::Duration};

use artillery_programs::{chance::Dice, exit::Failure};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::{
    cluster::Cluster,
    directories::Directories,
    fault::{Fault, Kind, name},
    set::NodeSet,
};

/// How long nodes may take to refuse a directory or to become ready, including restarts of the others.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The exit code of a node that refuses its directory.
const REFUSES: Option<i32> = Some(1);
/// Logged by a node whose directory holds less than other nodes know that it held.
const ROLLED_BACK: &str = "is an older copy, or a second one";

#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct RuinTally {
    /// Counts per change and reaction.
    pub(super) outcomes: BTreeMap<String, u64>,
    /// Wrong reactions of nodes to changed directories.
    pub(super) wrong: Vec<String>,
}

pub(super) struct Ruin<'a> {
    cluster: &'a Cluster,
    directories: &'a Directories,
    fault: Fault,
    tally: &'a RefCell<RuinTally>,
    damaged: BTreeMap<usize, String>,
    /// Nodes that were started with `--replace-damaged`.
    replaced: NodeSet,
}

impl<'a> Ruin<'a> {
    /// Changes the directories of a fault. Their nodes must be down.
    pub(super) fn strike(
        cluster: &'a Cluster,
        directories: &'a Directories,
        fault: Fault,
        tally: &'a RefCell<RuinTally>,
    ) -> Result<Self, Failure> {
        let mut dice = Dice::new(fault.pick);
        let mut damaged = BTreeMap::new();
        for node in fault.touched.iter() {
            match fault.kind {
                Kind::Damage => _ = damaged.insert(node, directories.damage(node, &mut dice)?),
                Kind::Restore => directories.restore(node)?,
                _ => directories.wipe(node)?,
            }
        }
        Ok(Self { cluster, directories, fault, tally, damaged, replaced: NodeSet::default() })
    }

    fn count(&self, what: &str) {
        *self.tally.borrow_mut().outcomes.entry(what.to_owned()).or_default() += 1;
    }

    fn wrong(&self, node: usize, what: &str) {
        self.tally.borrow_mut().wrong.push(format!("{}: {} {what}", self.fault, name(node)));
    }

    /// Starts the nodes with damaged or restored directories, and waits for their reactions. Nodes that refused a
    /// damaged directory are started again to move it aside; other refused directories are deleted.
    pub(super) async fn come_back(&mut self) -> Result<(), Failure> {
        let Fault { kind, touched, .. } = self.fault;
        if kind == Kind::Wipe {
            touched.iter().for_each(|_| self.count("wiped"));
            return Ok(());
        }
        let others = self.fault.killed().without(touched);
        others.iter().try_for_each(|node| self.cluster.start(node))?;
        if kind == Kind::Damage {
            // Damage in the very last writes of a killed node isn't detected: such a node must not open the chain
            // alone.
            self.until_served(touched).await?;
        }
        let mut begins = BTreeMap::new();
        for node in touched.iter() {
            begins.insert(node, fs::metadata(self.cluster.log(node)).map_or(0, |log| log.len()));
            self.cluster.start(node)?;
        }
        for (node, begin) in begins {
            let ended = self.noticed(node).await;
            let said = said(&self.cluster.log(node), begin);
            match kind {
                Kind::Damage => self.damage_is_noticed(node, ended, &said).await?,
                _ => self.restoration_is_noticed(node, ended, &said).await?,
            }
        }
        Ok(())
    }

    /// Waits until a node outside `but` serves its chain.
    async fn until_served(&self, but: NodeSet) -> Result<(), Failure> {
        let begin = Instant::now();
        while self.cluster.view().await.keeps(but).is_zero() {
            if begin.elapsed() > NOTICE_TIMEOUT {
                let why = format!("no member serves after {NOTICE_TIMEOUT:?}, during {}", self.fault);
                return Err(Failure::failed(why));
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Waits until a node has ended, and returns its status. `None` if it is ready despite its damaged directory, or
    /// after [`NOTICE_TIMEOUT`].
    async fn noticed(&self, node: usize) -> Option<ExitStatus> {
        let begin = Instant::now();
        while begin.elapsed() < NOTICE_TIMEOUT {
            if let Some(status) = self.cluster.nodes.ended(node) {
                return Some(status);
            }
            let may_stay = self.fault.kind == Kind::Damage;
            if may_stay && self.cluster.status(node).await.is_some_and(|status| status["ready"] == true) {
                return None;
            }
            sleep(POLL_INTERVAL).await;
        }
        None
    }

    async fn damage_is_noticed(&mut self, node: usize, ended: Option<ExitStatus>, said: &str) -> Result<(), Failure> {
        let file = self.damaged.get(&node).map_or("", String::as_str);
        let Some(status) = ended else {
            // The damage is in one of two control files, in unused data, or behind the last synced group.
            self.count("damaged, and nothing was lost");
            return Ok(());
        };
        if status.code() == REFUSES && said.contains(ROLLED_BACK) {
            self.count("damaged, and refused as an older copy");
            return self.directories.wipe(node);
        }
        if status.code() == REFUSES && said.contains("is damaged") && said.contains(file) {
            self.count("damaged, and refused");
        } else {
            self.wrong(node, &format!("ended with {status} and didn't name {file}"));
        }
        self.replaced = self.replaced.and(NodeSet::of(node));
        self.cluster.start_with(node, &["--replace-damaged"])
    }

    async fn restoration_is_noticed(
        &mut self,
        node: usize,
        ended: Option<ExitStatus>,
        said: &str,
    ) -> Result<(), Failure> {
        match ended {
            Some(status) if status.code() == REFUSES && said.contains(ROLLED_BACK) => {
                self.count("restored, and refused");
            }
            Some(status) => self.wrong(node, &format!("ended with {status}, not for its older directory")),
            None => self.wrong(node, "was admitted with an older directory"),
        }
        self.cluster.nodes.kill(NodeSet::of(node)).await?;
        self.directories.wipe(node)
    }

    /// Checks, once all nodes are ready, that damaged directories were moved aside.
    pub(super) fn end(&self) -> Result<(), Failure> {
        for node in self.replaced.iter() {
            if !self.directories.take_damaged(node)? {
                self.wrong(node, "didn't move the damaged directory aside");
            }
        }
        Ok(())
    }
}

/// The text that a node has logged after the first `begin` bytes.
fn said(log: &Path, begin: u64) -> String {
    let all = fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(all.get(begin as usize..).unwrap_or_default()).into_owned()
}
