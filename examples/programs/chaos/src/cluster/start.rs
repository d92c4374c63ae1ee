//! Starts nodes and additional processes.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::atomic::Ordering,
};

use artillery_programs::exit::Failure;

use super::{
    super::{fault::name, net::service_address, process::Process},
    Cluster, DRIFT_PPM, HTTP, LEASE, RESP,
};

/// An additional process, in the namespace that belongs to no node.
pub(in super::super) struct Other {
    pub(in super::super) process: Process,
    pub(in super::super) log: PathBuf,
    data: Option<PathBuf>,
}

impl Other {
    /// The last non-empty line of its log.
    pub(in super::super) fn last_line(&self) -> String {
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
    }

    /// Kills the process if it is still running, and removes its directory.
    pub(in super::super) async fn remove(self) -> Result<(), Failure> {
        self.process.kill().await?;
        // The directory doesn't exist if the process ended before creating it.
        let _ = self.data.map(std::fs::remove_dir_all);
        Ok(())
    }
}

impl Cluster {
    /// Starts a node unless it runs.
    pub(in super::super) fn start(&self, node: usize) -> Result<(), Failure> {
        self.start_with(node, &[])
    }

    pub(in super::super) fn start_with(&self, node: usize, more: &[&str]) -> Result<(), Failure> {
        let log = self.log(node);
        let namespace = self.net().namespace(node);
        let mut args = self.args(node);
        args.extend(more.iter().map(|flag| (*flag).to_owned()));
        self.nodes.run(node, || {
            if let Some(directories) = &self.directories {
                directories.starts(node);
            }
            Process::start(&namespace, &self.programs.node, &args, &self.secret, &log)
        })
    }

    /// Starts an additional process, with a new directory if the cluster is durable. `called` is its name, if it has
    /// one.
    pub(in super::super) fn start_other(&self, called: Option<String>) -> Result<Other, Failure> {
        let what = if called.is_some() { "twin" } else { "young" };
        let file = format!("{what}-{}", self.others.fetch_add(1, Ordering::Relaxed) + 1);
        let (spare, namespace, address) = self.spare();
        // Port 0 selects a new port. If a port were reused, peers could not detect that the previous process is gone.
        let mut args = self.common_args(spare, SocketAddr::from((address, 0)));
        args.extend(called.into_iter().flat_map(|name| ["--name".to_owned(), name]));
        let data = self.is_durable().then(|| self.logs.join("data").join(&file));
        args.extend(data.iter().flat_map(|data| ["--data".to_owned(), data.display().to_string()]));
        let log = self.logs.join(format!("{file}.log"));
        let process = Process::start(&namespace, &self.programs.node, &args, &self.secret, &log)?;
        Ok(Other { process, log, data })
    }

    /// The number that belongs to no node, its namespace and its address.
    fn spare(&self) -> (usize, String, Ipv4Addr) {
        let net = self.net();
        let spare = net.spare();
        (spare, net.namespace(spare), net.address(spare))
    }

    fn args(&self, node: usize) -> Vec<String> {
        let at = |port| SocketAddr::from((service_address(node), port)).to_string();
        let mut args = self.common_args(node, self.quic(node));
        args.extend(["--open".to_owned(), "--name".to_owned(), name(node)]);
        for (flag, addr) in [("--resp", at(RESP)), ("--http", at(HTTP))] {
            args.extend([flag.to_owned(), addr]);
        }
        if let Some(directories) = &self.directories {
            args.extend(["--data".to_owned(), directories.of(node).display().to_string()]);
        }
        args
    }

    fn common_args(&self, number: usize, at: SocketAddr) -> Vec<String> {
        let listen = if self.roams { SocketAddr::from((Ipv4Addr::UNSPECIFIED, at.port())) } else { at };
        let mut args = vec!["--cluster".to_owned(), self.name.clone(), "--listen".to_owned(), listen.to_string()];
        args.extend(["--no-mdns", "--log", "info"].map(str::to_owned));
        for (flag, number) in [
            ("--expect", self.nodes.len().to_string()),
            ("--replicas", self.replicas.to_string()),
            ("--lease-ms", LEASE.as_millis().to_string()),
            ("--drift-ppm", DRIFT_PPM.to_string()),
        ] {
            args.extend([flag.to_owned(), number]);
        }
        for other in (0..self.nodes.len()).filter(|other| *other != number) {
            args.extend(["--seed".to_owned(), self.quic(other).to_string()]);
        }
        args
    }
}
