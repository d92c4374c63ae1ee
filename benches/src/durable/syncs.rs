//! The limit of a durable write: bare loops that append and sync concurrently, on the disk of the nodes.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use artillery_core::internal::clock;

use crate::throughput::Failed;

/// Bytes that are appended before each sync: the smallest group of a journal.
const APPENDED: usize = 4096;

/// The average over all loops.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Syncs {
    /// Appends with a sync each, per second.
    pub per_second: f64,
    /// The mean time of a sync, in milliseconds.
    pub mean_ms: f64,
}

/// Runs a loop in each of these folders for `length`.
pub fn measure(folders: &[PathBuf], length: Duration) -> Result<Syncs, Failed> {
    let found = thread::scope(|scope| {
        let loops: Vec<_> = folders.iter().map(|folder| scope.spawn(|| one_loop(folder, length))).collect();
        let ended = loops.into_iter().map(|one| one.join().map_err(|_| "a loop of syncs panicked")?);
        ended.collect::<Result<Vec<Syncs>, Failed>>()
    })?;
    let mean = |of: fn(&Syncs) -> f64| found.iter().map(of).sum::<f64>() / found.len().max(1) as f64;
    Ok(Syncs { per_second: mean(|one| one.per_second), mean_ms: mean(|one| one.mean_ms) })
}

fn one_loop(folder: &Path, length: Duration) -> Result<Syncs, Failed> {
    let path = folder.join("syncs");
    let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
    let bytes = [7; APPENDED];
    let (began, mut syncs, mut in_sync) = (clock::now(), 0u64, Duration::ZERO);
    while clock::now() - began < length {
        file.write_all(&bytes)?;
        let before = clock::now();
        file.sync_data()?;
        (syncs, in_sync) = (syncs + 1, in_sync + (clock::now() - before));
    }
    let seconds = (clock::now() - began).as_secs_f64();
    drop(file);
    fs::remove_file(path)?;
    Ok(Syncs { per_second: syncs as f64 / seconds, mean_ms: in_sync.as_secs_f64() * 1e3 / syncs.max(1) as f64 })
}
