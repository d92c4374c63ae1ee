//! A database that refuses late writes of a former holder of a lock: it stores the highest fencing token, and checks it
//! in the transaction of each write. The same works with every database that has transactions.

use artillery_ddata::{ClusterId, Node, recipes::FencingToken};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

const SECRET: &str = "not a secret, an example";

/// The lines of a report, which only the present holder of the lock may extend.
struct Report(Connection);

#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("token {highest} was used before: another process holds the lock")]
    Fenced { highest: String },
    #[error("the report belongs to cluster {cluster}; an operator must adopt the other one")]
    OtherCluster { cluster: String },
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
}

impl Report {
    fn open(connection: Connection) -> Result<Self, rusqlite::Error> {
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS fence (
                 one INTEGER PRIMARY KEY CHECK (one = 1), cluster TEXT NOT NULL, token TEXT NOT NULL
             );
             CREATE TABLE IF NOT EXISTS report (line TEXT NOT NULL);",
        )?;
        Ok(Self(connection))
    }

    /// Adds a line, for the holder with this token. The check and the write are one transaction, so no other write can
    /// take place between them.
    fn add(&mut self, token: FencingToken, line: &str) -> Result<(), WriteError> {
        // A deferred transaction would read before it locks the database for its write.
        let transaction = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let fence: Option<(String, String)> = transaction
            .query_row("SELECT cluster, token FROM fence", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        // Text with a fixed number of digits is ordered as the numbers are.
        let (own_cluster, own) = (token.cluster().to_string(), token.to_string());
        match fence {
            Some((cluster, _)) if cluster != own_cluster => return Err(WriteError::OtherCluster { cluster }),
            Some((_, highest)) if highest > own => return Err(WriteError::Fenced { highest }),
            _ => {}
        }
        transaction.execute("REPLACE INTO fence VALUES (1, ?1, ?2)", params![own_cluster, own])?;
        transaction.execute("INSERT INTO report VALUES (?1)", [line])?;
        transaction.commit()?;
        Ok(())
    }

    /// Accepts the tokens of another cluster, such as one that was created anew and begins with low tokens. For an
    /// operator who knows that no process of the former cluster writes.
    fn adopt(&mut self, cluster: ClusterId) -> Result<(), rusqlite::Error> {
        self.0.execute("REPLACE INTO fence VALUES (1, ?1, '')", [cluster.to_string()]).map(drop)
    }

    fn lines(&self) -> Result<Vec<String>, rusqlite::Error> {
        let mut lines = self.0.prepare("SELECT line FROM report ORDER BY rowid")?;
        lines.query_map([], |row| row.get(0))?.collect()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::builder().cluster("fence-sqlite").secret(SECRET).expect(1).mdns(false);
    let node = node.listen("127.0.0.1:0".parse()?).start().await?;
    node.ready().await?;
    let (kv, mut report) = (node.kv(), Report::open(Connection::open_in_memory()?)?);

    let lock = kv.lock("report");
    let first = lock.acquire().await?;
    report.add(first.token(), "a line of the first holder")?;
    assert!(first.is_held());
    // The first holder is paused here, for longer than its time to live. The deletion of its key has the same effect.
    kv.delete(first.key()).await?;
    let second = lock.acquire().await?;
    report.add(second.token(), "a line of the second holder")?;
    // The first holder continues, and has looked at its guard before the pause.
    match report.add(first.token(), "a late line of the first holder") {
        Err(error @ WriteError::Fenced { .. }) => println!("refused: {error}"),
        other => return Err(format!("the late write must be refused: {other:?}").into()),
    }
    report.add(second.token(), "another line of the second holder")?;
    second.release().await?;
    println!("{:#?}", report.lines()?);
    report.adopt(ClusterId(1))?;
    node.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use artillery_ddata::testing::Cluster;

    use super::*;

    const TTL: Duration = Duration::from_secs(2);

    fn report() -> Report {
        Report::open(Connection::open_in_memory().unwrap()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_holder_is_refused() {
        let cluster = Cluster::builder().nodes(4).replicas(3).seed(7).start().await;
        // The spare can be paused without effect on the chain.
        let paused = *cluster.nodes().iter().find(|node| !cluster.chain().contains(node)).unwrap();
        let (kv, other, mut report) = (cluster.kv(paused), cluster.client(), report());
        let first = kv.lock("report").with_ttl(TTL).acquire().await.unwrap();
        report.add(first.token(), "first").unwrap();
        assert!(first.is_held());
        cluster.pause(paused);
        let second = other.lock("report").with_ttl(TTL).acquire().timeout(TTL * 5).await.unwrap();
        report.add(second.token(), "second").unwrap();
        cluster.resume(paused);
        let late = report.add(first.token(), "late");
        assert!(matches!(late, Err(WriteError::Fenced { highest }) if highest == second.token().to_string()));
        report.add(second.token(), "third").unwrap();
        assert_eq!(report.lines().unwrap(), ["first", "second", "third"]);
    }

    #[test]
    fn another_cluster_is_refused_until_it_is_adopted() {
        let token = |cluster, number| FencingToken::from_u128(ClusterId(cluster), number);
        let mut report = report();
        report.add(token(1, 9), "old").unwrap();
        assert!(matches!(report.add(token(2, 10), "new"), Err(WriteError::OtherCluster { .. })));
        report.adopt(ClusterId(2)).unwrap();
        report.add(token(2, 1), "new").unwrap();
        assert!(matches!(report.add(token(1, 10), "late"), Err(WriteError::OtherCluster { .. })));
        assert!(matches!(report.add(token(2, 0), "late"), Err(WriteError::Fenced { .. })));
        assert_eq!(report.lines().unwrap(), ["old", "new"]);
    }

    #[test]
    fn a_stored_token_outlasts_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Report::open(Connection::open(folder.path().join("report")).unwrap()).unwrap();
        let token = |number| FencingToken::from_u128(ClusterId(1), number);
        open().add(token(u128::MAX - 1), "first").unwrap();
        assert!(matches!(open().add(token(9), "late"), Err(WriteError::Fenced { .. })));
        open().add(token(u128::MAX), "second").unwrap();
    }
}
