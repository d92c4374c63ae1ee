//! The limit of a cold start: a bare read of the same files, and a bare insert of the same number of records into the
//! same store. Each node's share runs in its own process, like the node.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use artillery_core::internal::clock;
use artillery_ddata::{ChainId, Sequence, Version};
use artillery_proto::{
    Epoch,
    store::{Held, MemoryStore, Store, StoreBatch, StoreOp},
};
use bytes::{Bytes, BytesMut};
use clap::ValueEnum;
use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};

use super::records::{KEY_BYTES, VALUE_BYTES, key};
use crate::throughput::{Failed, machine::own_cpu, processes::Process};

/// Records that are inserted at once.
const BATCH: usize = 1000;
/// Longer than any bare part takes.
const PATIENCE: Duration = Duration::from_secs(1800);

/// The order of the records in a bare insert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// By key, like the records of a checkpoint: the fastest order.
    Keys,
    /// As the records were written: in no order of their keys.
    Written,
}

/// The durations of the bare parts, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bare {
    /// Reading the files.
    pub read: f64,
    /// Inserting the records.
    pub insert: f64,
    /// Processor time of both.
    pub cpu: f64,
}

impl Bare {
    /// Read and insert, one after the other.
    pub fn sum(&self) -> f64 {
        self.read + self.insert
    }
}

fn journal(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("journal-") {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// The length of a journal in bytes.
pub fn journal_bytes(dir: &Path) -> io::Result<u64> {
    journal(dir)?.iter().map(|file| Ok(fs::metadata(file)?.len())).sum()
}

/// Drops a journal from the page cache, so that it is read from the disk.
pub fn forget(dir: &Path) -> io::Result<()> {
    for file in journal(dir)? {
        let file = File::open(file)?;
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// Reads a journal, and inserts `records` records into an empty store.
pub fn measure(dir: &Path, records: u64, order: Order) -> Result<Bare, Failed> {
    let (began, cpu) = (clock::now(), own_cpu());
    let mut buffer = vec![0; 1 << 20];
    for file in journal(dir)? {
        let mut file = File::open(file)?;
        while file.read(&mut buffer)? > 0 {}
    }
    let (read, read_cpu) = (clock::now() - began, own_cpu() - cpu);
    let mut numbers: Vec<u64> = (0..records).collect();
    if order == Order::Keys {
        numbers.sort_by_cached_key(|&n| key(n));
    }
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_seed(clock::now().as_nanos()));
    let (began, cpu) = (clock::now(), own_cpu());
    for numbers in numbers.chunks(BATCH) {
        insert(&*store, numbers)?;
    }
    let (insert, insert_cpu) = (clock::now() - began, own_cpu() - cpu);
    if store.size(ChainId(0)).keys != records {
        return Err("the store doesn't hold all records".into());
    }
    Ok(Bare { read: read.as_secs_f64(), insert: insert.as_secs_f64(), cpu: read_cpu + insert_cpu })
}

/// Keys and values are slices of one buffer, as in a node that reads a file.
fn insert(store: &dyn Store, numbers: &[u64]) -> Result<(), Failed> {
    let mut buffer = BytesMut::with_capacity(numbers.len() * (KEY_BYTES + VALUE_BYTES));
    for &n in numbers {
        buffer.extend_from_slice(&key(n));
        let at = buffer.len();
        buffer.resize(at + VALUE_BYTES, n as u8);
        buffer[at..at + 8].copy_from_slice(&n.to_le_bytes());
    }
    let buffer: Bytes = buffer.freeze();
    let put = |(at, &n): (usize, &u64)| {
        let key = at * (KEY_BYTES + VALUE_BYTES)..at * (KEY_BYTES + VALUE_BYTES) + KEY_BYTES;
        let value = buffer.slice(key.end..key.end + VALUE_BYTES);
        let held = Held::new(Version { epoch: Epoch(1), sequence: Sequence(n + 1) }, Some(value));
        StoreOp::Put { key: buffer.slice(key), held }
    };
    let ops = numbers.iter().enumerate().map(put).collect();
    store.apply(&StoreBatch { chain: ChainId(0), keep_from: Sequence::ZERO, ops })?;
    Ok(())
}

/// Measures the bare parts of all directories concurrently, in processes of this program.
pub fn measure_apart(program: &Path, dirs: &[PathBuf], records: u64, order: Order) -> Result<Vec<Bare>, Failed> {
    let order = if order == Order::Keys { "keys" } else { "written" };
    let start = |dir: &PathBuf| {
        let mut command = Command::new(program);
        command.arg("--bare").arg(dir).args(["--records", &records.to_string(), "--order", order]);
        Process::start(command.stderr(Stdio::inherit()))
    };
    let started = dirs.iter().map(start).collect::<io::Result<Vec<_>>>()?;
    started.iter().map(|process| Ok(serde_json::from_str(&process.said_within(PATIENCE)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::records::first_value, *};

    #[test]
    fn a_bare_insert_holds_what_a_node_would() {
        let store = MemoryStore::with_seed(1);
        insert(&store, &[5, 3]).unwrap();
        let held = store.read(ChainId(0), &key(3), Sequence::MAX).unwrap().unwrap();
        assert_eq!(held.value, Some(first_value(3)));
        assert_eq!(store.size(ChainId(0)).keys, 2);
    }
}
