//! A file that refuses late writes of a former holder of a lock: its first line has the fencing token of the last writer.
//! An advisory lock makes the check and the replacement one step.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use artillery_ddata::{ClusterId, Node, recipes::FencingToken};
use rustix::fs::{FlockOperation, flock};

const SECRET: &str = "not a secret, an example";

/// A file that only the present holder of the lock may replace. All writers must use this type.
struct FencedFile(PathBuf);

#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("token {highest} was used before: another process holds the lock")]
    Fenced { highest: String },
    #[error("the file belongs to cluster {cluster}; an operator must adopt the other one")]
    OtherCluster { cluster: String },
    #[error(transparent)]
    File(#[from] io::Error),
}

impl FencedFile {
    /// Replaces the contents, for the holder with this token.
    fn write(&self, token: FencingToken, contents: &str) -> Result<(), WriteError> {
        let _lock = self.lock()?;
        let (own_cluster, own) = (token.cluster().to_string(), token.to_string());
        match self.parts()? {
            Some((cluster, _, _)) if cluster != own_cluster => return Err(WriteError::OtherCluster { cluster }),
            // Text with a fixed number of digits is ordered as the numbers are.
            Some((_, highest, _)) if highest > own => return Err(WriteError::Fenced { highest }),
            _ => {}
        }
        Ok(self.replace(&own_cluster, &own, contents)?)
    }

    /// Accepts the tokens of another cluster, such as one that was created anew and begins with low tokens. For an
    /// operator who knows that no process of the former cluster writes.
    fn adopt(&self, cluster: ClusterId) -> io::Result<()> {
        let _lock = self.lock()?;
        let contents = self.parts()?.map_or_else(String::new, |(_, _, contents)| contents);
        self.replace(&cluster.to_string(), &"0".repeat(32), &contents)
    }

    /// The contents; `None`: nothing was written yet.
    fn read(&self) -> io::Result<Option<String>> {
        Ok(self.parts()?.map(|(_, _, contents)| contents))
    }

    /// Waits for the other writers. The lock ends with the returned file, also when the process dies.
    fn lock(&self) -> io::Result<File> {
        // The file itself is replaced, and its replacement would not be locked.
        let lock = File::create(self.0.with_extension("lock"))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        Ok(lock)
    }

    /// The cluster, the token and the contents.
    fn parts(&self) -> io::Result<Option<(String, String, String)>> {
        let text = match fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let parts = text.split_once('\n').and_then(|(line, contents)| {
            let (cluster, token) = line.split_once(' ')?;
            Some((cluster.to_owned(), token.to_owned(), contents.to_owned()))
        });
        parts.map(Some).ok_or_else(|| io::Error::other("the file has no token in its first line"))
    }

    /// Readers see the former file or the new one, also after a power failure.
    fn replace(&self, cluster: &str, token: &str, contents: &str) -> io::Result<()> {
        let path = self.0.with_extension("new");
        let mut new = File::create(&path)?;
        write!(new, "{cluster} {token}\n{contents}")?;
        new.sync_all()?;
        fs::rename(&path, &self.0)?;
        let folder = self.0.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::builder().cluster("fence-file").secret(SECRET).expect(1).mdns(false);
    let node = node.listen("127.0.0.1:0".parse()?).start().await?;
    node.ready().await?;
    let folder = tempfile::tempdir()?;
    let (kv, file) = (node.kv(), FencedFile(folder.path().join("report.txt")));

    let lock = kv.lock("report");
    let first = lock.acquire().await?;
    file.write(first.token(), "of the first holder")?;
    assert!(first.is_held());
    // The first holder is paused here, for longer than its time to live. The deletion of its key has the same effect.
    kv.delete(first.key()).await?;
    let second = lock.acquire().await?;
    file.write(second.token(), "of the second holder")?;
    // The first holder continues, and has looked at its guard before the pause.
    match file.write(first.token(), "of the first holder, late") {
        Err(error @ WriteError::Fenced { .. }) => println!("refused: {error}"),
        other => return Err(format!("the late write must be refused: {other:?}").into()),
    }
    second.release().await?;
    println!("the file is {:?}", file.read()?);
    file.adopt(ClusterId(1))?;
    node.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use artillery_ddata::testing::Cluster;

    use super::*;

    const TTL: Duration = Duration::from_secs(2);

    fn token(cluster: u128, number: u128) -> FencingToken {
        FencingToken::from_u128(ClusterId(cluster), number)
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_holder_is_refused() {
        let cluster = Cluster::builder().nodes(4).replicas(3).seed(7).start().await;
        // The spare can be paused without effect on the chain.
        let paused = *cluster.nodes().iter().find(|node| !cluster.chain().contains(node)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (kv, other, file) = (cluster.kv(paused), cluster.client(), FencedFile(folder.path().join("file")));
        let first = kv.lock("report").with_ttl(TTL).acquire().await.unwrap();
        file.write(first.token(), "first").unwrap();
        assert!(first.is_held());
        cluster.pause(paused);
        let second = other.lock("report").with_ttl(TTL).acquire().timeout(TTL * 5).await.unwrap();
        file.write(second.token(), "second").unwrap();
        cluster.resume(paused);
        assert!(matches!(file.write(first.token(), "late"), Err(WriteError::Fenced { .. })));
        assert_eq!(file.read().unwrap().unwrap(), "second");
    }

    #[test]
    fn another_cluster_is_refused_until_it_is_adopted() {
        let folder = tempfile::tempdir().unwrap();
        let file = FencedFile(folder.path().join("file"));
        assert_eq!(file.read().unwrap(), None);
        file.write(token(1, 9), "old\nof two lines").unwrap();
        assert!(matches!(file.write(token(2, 10), "new"), Err(WriteError::OtherCluster { .. })));
        file.adopt(ClusterId(2)).unwrap();
        assert_eq!(file.read().unwrap().unwrap(), "old\nof two lines");
        file.write(token(2, 1), "new").unwrap();
        assert!(matches!(file.write(token(1, 10), "late"), Err(WriteError::OtherCluster { .. })));
        assert_eq!(file.read().unwrap().unwrap(), "new");
    }

    #[test]
    fn the_highest_token_of_concurrent_writers_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let writer = |number: u128| {
            let file = FencedFile(path.clone());
            for turn in 0..25 {
                // Each writer has its own tokens, in an order of its own.
                let token = token(1, (turn * 7 * (number + 1) % 25) * 4 + number);
                match file.write(token, &token.to_string()) {
                    Ok(()) | Err(WriteError::Fenced { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|number| drop(scope.spawn(move || writer(number)))));
        let highest = token(1, 24 * 4 + 3).to_string();
        assert_eq!(FencedFile(path).parts().unwrap().unwrap(), (ClusterId(1).to_string(), highest.clone(), highest));
    }
}
