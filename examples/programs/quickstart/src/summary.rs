//! What is said on the way, and at the end.

use artillery_programs::exit::Failure;
use serde::Serialize;

/// Tells a person what is going on.
pub(super) struct Story {
    /// On standard error: standard output belongs to the summary.
    pub(super) aside: bool,
}

impl Story {
    pub(super) fn say(&self, line: &str) {
        if self.aside { eprintln!("{line}") } else { println!("{line}") }
    }
}

/// As `docs/json.md` has it.
#[derive(Debug, Default, Serialize)]
pub(super) struct Summary {
    pub(super) found_by: Option<&'static str>,
    pub(super) nodes: usize,
    pub(super) acked: usize,
    pub(super) verified: usize,
    pub(super) clean_reads: Vec<u64>,
    pub(super) dirty_reads: u64,
    pub(super) version_queries: u64,
    pub(super) failovers: u64,
    pub(super) seconds: f64,
}

impl Summary {
    pub(super) fn print(&self) -> Result<(), Failure> {
        println!("{}", serde_json::to_string(self).map_err(Failure::failed)?);
        Ok(())
    }
}
