//! `ctl snapshot`, and `ctl check` of its files.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use artillery_ddata::{
    Kv,
    backup::{self, Backup, BackupReport, ChainBackup, CheckError},
    kv::{HashKey, random_hash_key},
};
use artillery_programs::exit::{self, Failure};
use serde_json::json;
use tokio::time::Instant;

use super::output::{Output, plain_table};

/// While it runs, a line on standard error states the progress this often.
const REPORTED_EVERY: Duration = Duration::from_secs(5);

pub(super) async fn run(kv: &Kv, path: &Path, output: Output) -> Result<u8, Failure> {
    if path == Path::new("-") {
        write(kv.backup(), io::stdout(), |_| Ok(())).await?;
        return Ok(exit::DONE);
    }
    // Never over an earlier backup: this one may fail.
    let file = create(path).map_err(|error| at(path, error))?;
    let incomplete = Incomplete(path);
    write(kv.backup(), file, File::sync_all).await?;
    sync_name(path).map_err(|error| at(path, error))?;
    std::mem::forget(incomplete);
    check(path, None, output).await
}

/// A file that is removed unless it becomes complete, also if a signal ends the backup.
struct Incomplete<'a>(&'a Path);

impl Drop for Incomplete<'_> {
    fn drop(&mut self) {
        // Ignored: an incomplete file is refused by name, too.
        let _ = std::fs::remove_file(self.0);
    }
}

/// Creates a file that only its owner can read.
fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes the name of a new file durable.
fn sync_name(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if cfg!(unix) { File::open(dir)?.sync_all() } else { Ok(()) }
}

fn at(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::failed(format!("{}: {error}", path.display()))
}

/// Writes a backup, and reports its progress.
async fn write<W: Write + Send + 'static>(
    mut backup: Backup,
    mut file: W,
    sync: impl FnOnce(&W) -> io::Result<()> + Send + 'static,
) -> Result<(), Failure> {
    let (mut reported, mut restarts) = (Instant::now(), 0);
    while let Some(bytes) = backup.next().await {
        let bytes = bytes?;
        // A full pipe must not block the thread that keeps the connections.
        file = written(file, move |file| file.write_all(&bytes)).await?;
        let progress = backup.progress();
        if progress.restarts > restarts {
            restarts = progress.restarts;
            eprintln!("the members no longer keep the updates since the beginning: begun again");
        }
        if reported.elapsed() >= REPORTED_EVERY {
            reported = Instant::now();
            eprintln!("{} bytes", progress.bytes);
        }
    }
    written(file, move |file| file.flush().and_then(|()| sync(file))).await?;
    Ok(())
}

async fn written<W: Send + 'static>(
    mut file: W,
    work: impl FnOnce(&mut W) -> io::Result<()> + Send + 'static,
) -> Result<W, Failure> {
    let done = tokio::task::spawn_blocking(move || work(&mut file).map(|()| file)).await.map_err(Failure::failed)?;
    done.map_err(|error| Failure::failed(format!("the backup can't be written: {error}")))
}

/// Reads a backup, and prints its contents.
pub(super) async fn check(path: &Path, key: Option<HashKey>, output: Output) -> Result<u8, Failure> {
    let key = key.unwrap_or_else(random_hash_key);
    let reading: PathBuf = path.to_owned();
    let checked = tokio::task::spawn_blocking(move || backup::check(File::open(reading)?, key)).await;
    let report = checked.map_err(Failure::failed)?.map_err(|error: CheckError| at(path, error))?;
    print(&report, key, output);
    Ok(exit::DONE)
}

fn print(report: &BackupReport, key: HashKey, output: Output) {
    let BackupReport { end, chains } = report;
    if output.json {
        for ChainBackup { chain, at, sums, .. } in chains {
            output.object(&json!({
                "chain": chain.0,
                "cluster_id": end.cluster.to_string(),
                "history": end.history.to_string(),
                "hash_key": key.to_string(),
                "sequence": at.0,
                "records": sums.records,
                "bytes": sums.bytes,
                "contents": format!("{:032x}", sums.contents),
                "versions": format!("{:032x}", sums.versions),
            }));
        }
        return;
    }
    let mut table = plain_table(&["chain", "sequence", "records", "bytes", "contents", "versions"]);
    for ChainBackup { chain, at, sums, .. } in chains {
        table.add_row([
            chain.0.to_string(),
            at.0.to_string(),
            sums.records.to_string(),
            sums.bytes.to_string(),
            format!("{:032x}", sums.contents),
            format!("{:032x}", sums.versions),
        ]);
    }
    output.bytes(format!("cluster {}, history {}", end.cluster, end.history).as_bytes());
    output.bytes(table.trim_fmt().as_bytes());
    output.bytes(format!("hash key {key}").as_bytes());
}
