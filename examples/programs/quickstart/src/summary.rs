//! The summary at the end.

use artillery_programs::exit::Failure;
use serde::Serialize;

/// The summary that `docs/json.md` describes.
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
    pub(super) restarted: usize,
    pub(super) seconds: f64,
}

impl Summary {
    pub(super) fn print(&self) -> Result<(), Failure> {
        println!("{}", serde_json::to_string(self).map_err(Failure::failed)?);
        Ok(())
    }
}
