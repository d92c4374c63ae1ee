//! The stored results of a run, from which its graphs are drawn.

use std::{fmt, fs, io, path::Path};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The results of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The machine, and when the run was made.
    pub machine: Machine,
    /// The parameters of the run.
    pub settings: Settings,
    /// The parts that were skipped, and why.
    pub skipped: Vec<String>,
    /// The measured points.
    pub points: Vec<Point>,
}

/// The machine and the time of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Day and time of the start, UTC.
    pub date: String,
    /// The commit that was built, with a `+` if files differed from it.
    pub commit: String,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Model of the processor.
    pub processor: String,
    /// Number of cores available to the run.
    pub cores: usize,
    /// Version of the Rust compiler.
    pub compiler: String,
    /// Runnable threads, averaged over the minute before the run: shows the noise of other programs.
    pub load_before: f64,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { date, commit, kernel, processor, cores, load_before, .. } = self;
        write!(f, "{date} UTC, commit {commit}, {cores} × {processor}, {kernel}, load {load_before} before")
    }
}

/// The parameters of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Keys of a cluster.
    pub keys: usize,
    /// Samples of each point.
    pub rounds: u32,
    /// Milliseconds before each sample.
    pub warm_up_ms: u64,
    /// Milliseconds of a sample.
    pub sample_ms: u64,
    /// How threads make calls.
    pub blocking: String,
    /// The runtime of the concurrent callers.
    pub concurrent: String,
    /// Callers for each member of a chain, where nodes were limited to a fraction of a core.
    pub callers_per_member: u32,
    /// Largest UDP payload that was tried, segmentation offload, and socket buffers.
    pub transport: String,
}

/// The graph to which a point belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Graph {
    /// By number of threads with one call at a time each.
    Blocking,
    /// By concurrent callers on one handle.
    Concurrent,
    /// By read share and chain length, each node limited to the same fraction of a core.
    Shares,
}

/// The placement of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Wherever the system puts them.
    Free,
    /// All on one core.
    OneCore,
}

/// The system that was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// A chain that serves reads only at the tail.
    Cr,
    /// A chain that serves reads at every member.
    Craq,
    /// A server that answers each request on a TCP connection immediately.
    Tcp,
    /// A server that answers each request on a QUIC stream immediately.
    Quic,
}

/// The figures of one system at one number of callers. Each list has one entry per sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The graph in which the point is drawn.
    pub graph: Graph,
    /// The placement of threads.
    pub placement: Placement,
    /// The measured system.
    pub system: System,
    /// Members of the chain; 1 for an echo.
    pub members: u32,
    /// Fraction of a core to which each node was limited. `None`: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// The number of concurrent callers.
    pub callers: u32,
    /// Percentage of reads. All other operations are writes.
    pub reads_percent: u32,
    /// Operations per second.
    pub per_second: Vec<f64>,
    /// Median latency of reads, in microseconds.
    pub p50_us: Vec<f64>,
    /// 99th percentile of the latency of reads, in microseconds.
    pub p99_us: Vec<f64>,
    /// Cores on which the callers' process was busy.
    pub client_cores: Vec<f64>,
    /// Cores on which all servers together were busy.
    pub server_cores: Vec<f64>,
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Blocking => "blocking",
            Self::Concurrent => "concurrent",
            Self::Shares => "shares",
        })
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Free => "threads where the system puts them",
            Self::OneCore => "all threads on one core",
        })
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cr => "CR",
            Self::Craq => "CRAQ",
            Self::Tcp => "raw TCP echo",
            Self::Quic => "raw QUIC echo",
        })
    }
}

impl Results {
    /// Reads a file.
    ///
    /// # Errors
    /// The file can't be read, or doesn't have the format of [`store`](Self::store).
    pub fn load(path: &Path) -> io::Result<Self> {
        load(path)
    }

    /// Writes a file, with one line per point.
    pub fn store(&self, path: &Path) -> io::Result<()> {
        fs::write(path, self.text()?)
    }

    fn text(&self) -> serde_json::Result<String> {
        Ok(format!(
            "{{\n\"machine\": {},\n\"settings\": {},\n\"skipped\": {},\n\"points\": {}\n}}\n",
            serde_json::to_string(&self.machine)?,
            serde_json::to_string(&self.settings)?,
            serde_json::to_string(&self.skipped)?,
            lines(&self.points)?
        ))
    }

    /// The points of one line, in order.
    pub fn line(&self, graph: Graph, placement: Placement, system: System) -> Vec<&Point> {
        let is_of = |point: &&Point| (point.graph, point.placement, point.system) == (graph, placement, system);
        self.points.iter().filter(is_of).collect()
    }

    /// The placements in which a graph was measured.
    pub fn placements(&self, graph: Graph) -> Vec<Placement> {
        let measured = |placement: &Placement| {
            self.points.iter().any(|point| (point.graph, point.placement) == (graph, *placement))
        };
        [Placement::Free, Placement::OneCore].into_iter().filter(measured).collect()
    }
}

pub(crate) fn load<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let told = |error: &dyn fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let text = fs::read(path).map_err(|error| told(&error))?;
    serde_json::from_slice(&text).map_err(|error| told(&error))
}

/// A list with one line per point.
pub(crate) fn lines<T: Serialize>(points: &[T]) -> serde_json::Result<String> {
    let points = points.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(format!("[\n{}\n]", points.join(",\n")))
}

#[cfg(test)]
pub(crate) mod made_up {
    use super::*;

    /// A point whose samples are all near `per_second`.
    pub(crate) fn point(graph: Graph, placement: Placement, system: System, callers: u32, per_second: f64) -> Point {
        Point {
            graph,
            placement,
            system,
            members: 3,
            share: None,
            callers,
            reads_percent: 99,
            per_second: vec![per_second * 0.98, per_second, per_second * 1.02],
            p50_us: vec![100.0, 101.5, 99.0],
            p99_us: vec![150.0, 151.0, 149.0],
            client_cores: vec![0.5; 3],
            server_cores: vec![0.5; 3],
        }
    }

    pub(crate) fn results(points: Vec<Point>) -> Results {
        Results {
            machine: Machine {
                date: "2026-11-21 10:45".into(),
                commit: "0123abc".into(),
                kernel: "Linux 6.1".into(),
                processor: "a processor".into(),
                cores: 2,
                compiler: "rustc 1.95".into(),
                load_before: 0.5,
            },
            settings: Settings {
                value_bytes: 1000,
                keys: 10_000,
                rounds: 3,
                warm_up_ms: 100,
                sample_ms: 500,
                blocking: "own runtime".into(),
                concurrent: "one thread".into(),
                callers_per_member: 60,
                transport: "MTU 6500".into(),
            },
            skipped: Vec::new(),
            points,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_results_are_read_back() {
        let points = vec![
            made_up::point(Graph::Blocking, Placement::OneCore, System::Craq, 5, 1000.0),
            made_up::point(Graph::Shares, Placement::Free, System::Tcp, 1, 0.0),
        ];
        let results = made_up::results(points);
        let text = results.text().unwrap();
        assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), results);
        assert!(text.lines().count() >= 8, "each point has its own line");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Results::load(Path::new("/nowhere/results.json")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/results.json"), "{error}");
    }
}
