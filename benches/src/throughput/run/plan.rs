//! The plan of a run: the measurements and their durations.

use std::{path::PathBuf, time::Duration};

use artillery_core::{config::TransportConfig, internal::clock};

use crate::{
    VALUE,
    throughput::{crew::Orders, results::Settings, stats::Window},
};

/// How a thread calls the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// Each thread has its own client and runtime.
    Own,
    /// All threads share a client, which runs on its own threads.
    Shared,
    /// All threads share a client, and the thread that waits first drives it for all.
    Carried,
}

/// The plan of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The path of the program `node`.
    pub node: PathBuf,
    /// The path of this program.
    pub own: PathBuf,
    /// Numbers of callers, ascending.
    pub callers: Vec<u32>,
    /// Samples of each point.
    pub rounds: u32,
    /// Time before each sample.
    pub warm_up: Duration,
    /// Length of each sample.
    pub sample: Duration,
    /// Keys of a cluster.
    pub keys: usize,
    /// How threads call.
    pub way: Way,
    /// Threads, in addition to its own, of a handle for concurrent callers.
    pub workers: usize,
    /// Fractions of a core to which each node is limited, one after the other.
    pub shares: Vec<f64>,
    /// Callers for each member of a chain whose nodes are limited, so that a longer chain gets more load.
    pub callers_per_member: u32,
    /// Lengths of the chains whose nodes are limited.
    pub share_members: Vec<u32>,
    /// Read shares with which these chains are measured, in percent.
    pub share_reads: Vec<u32>,
}

impl Plan {
    /// 1, 2, 3, 4, 5, 10, 20, …, 100 callers: about ten minutes.
    pub fn full(node: PathBuf, own: PathBuf) -> Self {
        Self {
            node,
            own,
            callers: (1..=5).chain((10..=100).step_by(10)).collect(),
            rounds: 5,
            warm_up: Duration::from_millis(80),
            sample: Duration::from_millis(300),
            keys: 10_000,
            way: Way::Carried,
            workers: 0,
            shares: vec![0.2, 0.1],
            callers_per_member: 60,
            share_members: vec![1, 3, 5],
            share_reads: vec![100, 99, 90, 50],
        }
    }

    /// Few points and short samples: checks that the run works, not how fast it is.
    pub fn quick(node: PathBuf, own: PathBuf) -> Self {
        Self {
            callers: vec![1, 10],
            rounds: 2,
            warm_up: Duration::from_millis(50),
            sample: Duration::from_millis(150),
            keys: 1000,
            shares: vec![0.2],
            share_reads: vec![100, 90],
            ..Self::full(node, own)
        }
    }

    /// The settings that are stored with the results.
    pub fn settings(&self) -> Settings {
        let transport = TransportConfig::default();
        Settings {
            value_bytes: VALUE,
            keys: self.keys,
            rounds: self.rounds,
            warm_up_ms: self.warm_up.as_millis() as u64,
            sample_ms: self.sample.as_millis() as u64,
            blocking: match self.way {
                Way::Own => "a client and a current-thread runtime for each thread".to_owned(),
                Way::Shared => "one client for all threads, on a runtime of its own".to_owned(),
                Way::Carried => "one client for all threads, driven by whichever of them waits first".to_owned(),
            },
            concurrent: match self.workers {
                0 => "one handle on a current-thread runtime".to_owned(),
                workers => format!("one handle on a runtime of {workers} threads"),
            },
            callers_per_member: self.callers_per_member,
            transport: format!(
                "UDP payloads up to {}, segmentation offload {}, socket buffers {} KiB",
                transport.max_udp_payload,
                if transport.segmentation_offload { "on" } else { "off" },
                transport.socket_buffer_bytes >> 10
            ),
        }
    }

    pub(super) fn orders(&self, reads_percent: u32, seed: u64) -> Orders {
        let from = clock::now() + self.warm_up;
        Orders { reads_percent, seed, window: Window { from, until: from + self.sample } }
    }
}
