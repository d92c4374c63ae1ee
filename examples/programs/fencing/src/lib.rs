//! A row of a database that is written under a lock, with and without a check of the token.

use std::{path::Path, time::Duration};

use rusqlite::{Connection, Result};

/// The row, and a journal of the tokens whose writes were accepted.
pub struct Row {
    connection: Connection,
    is_checked: bool,
}

impl Row {
    /// Creates the database.
    ///
    /// # Errors
    /// Those of SQLite, here and below.
    pub fn create(path: &Path) -> Result<()> {
        Connection::open(path)?.execute_batch(
            "CREATE TABLE job (token TEXT NOT NULL, counter INTEGER NOT NULL);
             INSERT INTO job VALUES ('', 0);
             CREATE TABLE accepted (number INTEGER PRIMARY KEY AUTOINCREMENT, token TEXT NOT NULL);",
        )
    }

    /// Opens the database. With `is_checked`, the row refuses a token below its own.
    pub fn open(path: &Path, is_checked: bool) -> Result<Self> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_secs(30))?;
        Ok(Self { connection, is_checked })
    }

    /// Counts, for the holder with this token. Returns whether the write was accepted.
    pub fn write(&mut self, token: &str) -> Result<bool> {
        let condition = if self.is_checked { "token <= ?1" } else { "?1 = ?1" };
        let update = format!("UPDATE job SET token = ?1, counter = counter + 1 WHERE {condition}");
        let transaction = self.connection.transaction()?;
        let is_accepted = transaction.execute(&update, [token])? == 1;
        if is_accepted {
            transaction.execute("INSERT INTO accepted (token) VALUES (?1)", [token])?;
        }
        transaction.commit()?;
        Ok(is_accepted)
    }

    /// The tokens whose writes were accepted, in that order.
    pub fn accepted(&self) -> Result<Vec<String>> {
        let mut journal = self.connection.prepare("SELECT token FROM accepted ORDER BY number")?;
        journal.query_map([], |row| row.get(0))?.collect()
    }
}
