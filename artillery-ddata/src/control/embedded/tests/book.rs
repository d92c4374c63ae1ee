//! Observations of a group in a test, and contradictions among them.

use artillery_proto::control::Term;
use std::{collections::BTreeMap, sync::Arc};

use crate::{
    Incarnation, MemberId, NodeId,
    control::{
        ConfigLog, Configs,
        log::{AppendError, ConfigChange, ConfigLogError, LogEntry, LogIndex},
    },
};

#[derive(Default)]
pub(super) struct Book {
    pub(super) violation: Option<String>,
    pub(super) appended: u64,
    pub(super) confirmed: u64,
    /// The number of changes, which makes each change unique.
    proposed: u128,
    entries: BTreeMap<LogIndex, LogEntry>,
    configs: BTreeMap<LogIndex, Arc<Configs>>,
    leaders: BTreeMap<Term, MemberId>,
    /// The last entry that each incarnation has applied, as observed.
    applied: BTreeMap<MemberId, LogIndex>,
    acknowledged: BTreeMap<Term, LogIndex>,
    /// Changes that were proposed and can't be in the log.
    refused: Vec<ConfigChange>,
    /// The last entry known to be committed.
    floor: LogIndex,
}

impl Book {
    /// A change without effect that differs from every other.
    pub(super) fn change(&mut self) -> ConfigChange {
        self.proposed += 1;
        let nobody = NodeId::from_bytes([0xff; 16]);
        let id = MemberId { node: nobody, incarnation: Incarnation { store: self.proposed, starts: 0 } };
        ConfigChange::Nodes { add: Vec::new(), remove: vec![id] }
    }

    pub(super) fn terms(&self) -> usize {
        self.leaders.len()
    }

    pub(super) fn floor(&self) -> LogIndex {
        self.floor
    }

    fn fail(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    pub(super) fn read(&mut self, by: &str, entry: LogEntry) {
        self.floor = self.floor.max(entry.index);
        let other = self.entries.entry(entry.index).or_insert_with(|| entry.clone()).clone();
        if other != entry {
            self.fail(format!("{by} has {entry:?}, where others have {other:?}"));
        }
    }

    pub(super) fn observe(&mut self, id: MemberId, log: &dyn ConfigLog) {
        let leads = log.leads();
        let configs = log.configs();
        let applied = configs.applied();
        let before = self.applied.insert(id, applied).unwrap_or_default();
        if applied < before {
            self.fail(format!("{id} went backwards from {before} to {applied}"));
        }
        if *self.configs.entry(applied).or_insert_with(|| configs.clone()) != configs {
            self.fail(format!("{id} has other configurations at {applied} than others have"));
        }
        self.floor = self.floor.max(applied);
        if let Some(term) = leads {
            let leader = *self.leaders.entry(term).or_insert(id);
            if leader != id {
                self.fail(format!("{leader} and {id} lead in term {term}"));
            }
            let known = self.acknowledged.range(..term).map(|(_, &index)| index).max().unwrap_or_default();
            if applied < known {
                self.fail(format!("{id} leads in term {term} from {applied}: {known} was acknowledged before"));
            }
        }
    }

    pub(super) fn append_done(
        &mut self,
        term: Term,
        at: LogIndex,
        change: ConfigChange,
        done: &Result<(), AppendError>,
    ) {
        match done {
            Ok(()) => {
                self.appended += 1;
                let last = self.acknowledged.entry(term).or_default();
                *last = at.max(*last);
                self.read("a client", LogEntry { index: at, term, change });
            }
            Err(AppendError::OutcomeUnknown(_)) => {}
            Err(_) => self.refused.push(change),
        }
    }

    /// Records the end of a confirmation that began when `floor` was known.
    pub(super) fn confirm_done(&mut self, id: MemberId, floor: LogIndex, done: &Result<LogIndex, ConfigLogError>) {
        if let &Ok(index) = done {
            self.confirmed += 1;
            if index < floor {
                self.fail(format!("{id} confirmed {index} when {floor} had been committed before"));
            }
            self.floor = self.floor.max(index);
        }
    }

    pub(super) fn close(&mut self) {
        let placed = self.entries.values().find(|entry| self.refused.contains(&entry.change));
        if let Some(entry) = placed.cloned() {
            self.fail(format!("{entry:?} was refused, and is in the log"));
        }
    }
}
