//! The processes of a run's nodes, which faults and orders stop and start.

use std::{
    os::unix::process::ExitStatusExt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use artillery_programs::exit::Failure;
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use super::{fault::name, process::Process, set::NodeSet};

/// How long a node may take to stop on request, including the longest pause.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Slot {
    process: Option<Process>,
    /// SIGTERM was sent.
    is_leaving: bool,
    is_killed: bool,
}

/// At most one process for each node.
pub(super) struct Nodes(Mutex<Vec<Slot>>);

impl Nodes {
    pub(super) fn new(nodes: u32) -> Self {
        Self(Mutex::new((0..nodes).map(|_| Slot::default()).collect()))
    }

    pub(super) fn len(&self) -> usize {
        self.slots().len()
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        // A slot is written as a whole, so a poisoned lock is harmless.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn runs(&self, node: usize) -> bool {
        self.slots()[node].process.is_some()
    }

    /// Starts a node unless it runs: the heal of a fault and the end of an order may both start it.
    pub(super) fn run(&self, node: usize, start: impl FnOnce() -> Result<Process, Failure>) -> Result<(), Failure> {
        let slot = &mut self.slots()[node];
        if slot.process.is_none() {
            *slot = Slot { process: Some(start()?), ..Slot::default() };
        }
        Ok(())
    }

    /// Signals a node if it runs.
    pub(super) fn signal(&self, node: usize, signal: Signal) -> Result<(), Failure> {
        // `all_run` detects a node that has ended by itself.
        let slots = self.slots();
        slots[node].process.as_ref().map_or(Ok(()), |process| process.signal(signal))
    }

    /// Kills nodes at once, and waits until they have ended.
    pub(super) async fn kill(&self, nodes: NodeSet) -> Result<(), Failure> {
        for node in nodes.iter() {
            self.slots()[node].is_killed = true;
            self.signal(node, Signal::KILL)?;
        }
        for node in nodes.iter() {
            let process = std::mem::take(&mut self.slots()[node]).process;
            if let Some(process) = process {
                process.kill().await?;
            }
        }
        Ok(())
    }

    /// Sends SIGTERM to nodes, and waits until each has ended, or was killed by a fault.
    pub(super) async fn stop(&self, nodes: NodeSet) -> Result<(), Failure> {
        for node in nodes.iter() {
            let is_there = self.runs(node);
            self.slots()[node].is_leaving = is_there;
            self.signal(node, Signal::TERM)?;
        }
        for node in nodes.iter() {
            self.stopped(node).await?;
        }
        Ok(())
    }

    async fn stopped(&self, node: usize) -> Result<(), Failure> {
        let begin = Instant::now();
        while begin.elapsed() < STOP_TIMEOUT {
            let is_killed = self.slots()[node].is_killed;
            if let Some(status) = self.ended(node) {
                let failed = || Failure::failed(format!("{} ended with {status} after SIGTERM", name(node)));
                // The node may have ended before it installed its signal handler.
                let by_signal = status.signal() == Some(Signal::TERM.as_raw());
                return if status.success() || by_signal || is_killed { Ok(()) } else { Err(failed()) };
            }
            // A fault has killed that process, and may have started another one since.
            if !self.slots()[node].is_leaving {
                return Ok(());
            }
            sleep(POLL_INTERVAL).await;
        }
        Err(Failure::failed(format!("{} did not end within {STOP_TIMEOUT:?} of SIGTERM", name(node))))
    }

    /// The exit status of a node that has ended; this empties its slot.
    pub(super) fn ended(&self, node: usize) -> Option<std::process::ExitStatus> {
        let slot = &mut self.slots()[node];
        let status = slot.process.as_mut().and_then(Process::ended)?;
        *slot = Slot::default();
        Some(status)
    }

    /// Fails if a node has ended by itself.
    pub(super) fn all_run(&self) -> Result<(), Failure> {
        for (node, slot) in self.slots().iter_mut().enumerate().filter(|(_, slot)| !slot.is_leaving) {
            if let Some(status) = slot.process.as_mut().and_then(Process::ended) {
                return Err(Failure::failed(format!("{} has ended by itself: {status}", name(node))));
            }
        }
        Ok(())
    }
}
