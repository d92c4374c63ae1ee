//! Random starts of a journal, compared with the groups that were written and synced.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

/// A journal over several starts, and its expected content.
pub(super) struct Run {
    rng: ChaCha8Rng,
    pub(super) disk: SimulatedDisk,
    guards: Guards,
    /// Whether a session injects faults: failed syncs, a full disk, and pages that the kernel discards. [`Run::start`]
    /// arms a failing sync in any case.
    pub(super) fails: bool,
    /// All entries that may be found, oldest first.
    pub(super) written: Vec<(GroupNumber, JournalEntry)>,
    /// The number of `written` entries that were synced.
    synced: usize,
    /// No group below this one is needed.
    floor: GroupNumber,
    number: u64,
}

impl Run {
    pub(super) fn new(seed: u64, guards: Guards) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let (disk, floor) = (harsh(seed), GroupNumber(0));
        Self { rng, disk, guards, fails: true, written: Vec::new(), synced: 0, floor, number: 0 }
    }

    /// Runs one start of the journal, ended by a restart or a power cut. `Err` states what is broken: entries are lost
    /// or reappear, needed groups are gone, or the journal is damaged.
    pub(super) fn start(&mut self, start: u64) -> Result<(), String> {
        if self.rng.random_range(0..3) == 0 {
            self.disk.cut_power_after(self.rng.random_range(0..20));
        }
        let failing = self.rng.random_range(0..20);
        self.disk.fail_sync_after((failing < 4).then_some(failing));
        let steps = self.rng.random_range(1..40);
        self.session(start, steps)?;
        self.disk.fail_sync_after(None);
        if self.disk.is_off() || self.rng.random() {
            self.disk.restart();
        } else {
            self.disk.cut_power();
        }
        Ok(())
    }

    /// Opens the journal, compares its entries with `written`, and appends more. Some sessions discard cached pages
    /// between the check and the opening: after a failed sync, the check may have read bytes that aren't on the disk.
    pub(super) fn session(&mut self, start: u64, steps: u32) -> Result<(), String> {
        let forgets = self.fails && self.rng.random_range(0..3) == 0;
        let opened = opened_with(&self.disk, start, self.guards, || {
            if forgets {
                self.disk.forget_pages();
            }
        });
        self.disk.fail_sync_after(None);
        let (mut journal, found) = match opened {
            Ok(opened) => opened,
            Err(JournalError::Failed(_) | JournalError::Full) => return Ok(()),
            Err(error) => return Err(format!("start {start}: {error}")),
        };
        self.compare(start, &journal, found)?;
        self.work(&mut journal, steps);
        Ok(())
    }

    fn compare(
        &mut self,
        start: u64,
        journal: &Journal,
        found: Vec<(GroupNumber, JournalEntry)>,
    ) -> Result<(), String> {
        let needed =
            |entries: &[(GroupNumber, JournalEntry)]| entries.iter().filter(|(at, _)| *at < self.floor).count();
        let (found, gone) = (&found[needed(&found)..], needed(&self.written));
        if !self.written[gone..].starts_with(found) {
            let (found, written) = (found.iter().map(|(at, _)| at.0), self.written.iter().map(|(at, _)| at.0));
            return Err(format!(
                "start {start} found {:?} of {:?}",
                found.collect::<Vec<_>>(),
                written.collect::<Vec<_>>()
            ));
        }
        if gone + found.len() < self.synced {
            return Err(format!("start {start} found {} entries, {} were synced", gone + found.len(), self.synced));
        }
        if journal.first() > self.floor {
            return Err(format!("start {start}: the first group is {}, {} is needed", journal.first(), self.floor));
        }
        self.written.truncate(gone + found.len());
        self.synced = self.written.len();
        Ok(())
    }

    fn work(&mut self, journal: &mut Journal, steps: u32) {
        for _ in 0..steps {
            let entries: Vec<_> = (0..self.rng.random_range(0..4))
                .map(|_| {
                    self.number += 1;
                    let len = if self.rng.random_range(0..10) == 0 { 9000 } else { self.rng.random_range(0..1500) };
                    entry(self.number, len)
                })
                .collect();
            let full = self.fails && self.rng.random_range(0..8) == 0;
            if full {
                let room = (1 << 30) - self.disk.free().unwrap_or(0);
                self.disk.set_room(room + self.rng.random_range(0..9000));
            }
            let next = journal.next();
            let appended = journal.append(&entries);
            self.disk.set_room(1 << 30);
            if appended != Err(JournalError::Full) {
                self.written.extend(entries.iter().map(|entry| (next, entry.clone())));
            } else if self.rng.random() {
                continue;
            }
            if appended.is_err_and(|error| error != JournalError::Full) {
                return;
            }
            if self.rng.random_range(0..3) == 0 {
                let fails = self.fails && self.rng.random_range(0..12) == 0;
                self.disk.fail_sync_after(fails.then_some(0));
                // After a failed sync the journal refuses another one. Only the mutant `SyncAgain` lets the second
                // attempt succeed.
                if journal.sync().or_else(|_| journal.sync()).is_err() {
                    return;
                }
                self.synced = self.written.len();
                if self.rng.random_range(0..6) == 0 {
                    self.floor = GroupNumber(self.rng.random_range(self.floor.0..=journal.next().0));
                    let most = self.rng.random_range(0..4);
                    if journal.release(self.floor).and_then(|()| journal.remove_freed(most)).is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// Runs eleven starts, with all choices drawn from `seed`. Returns the number of power cuts that lost something
/// readable; errors as [`Run::start`].
pub(super) fn run(seed: u64, guards: Guards) -> Result<u64, String> {
    let mut run = Run::new(seed, guards);
    (1..12).try_for_each(|start| run.start(start))?;
    Ok(run.disk.counts().lossy_cuts)
}
