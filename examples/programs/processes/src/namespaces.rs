//! Network namespaces, and the programs that manage them, each run to completion.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::fd::AsFd,
    path::Path,
    process::{self, Command, Output, Stdio},
};

use rustix::{
    process::{Pid, Signal, geteuid, kill_process},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

/// The reason why this process can't use namespaces; `None` if it can.
pub fn missing() -> Option<&'static str> {
    if !geteuid().is_root() {
        return Some("network namespaces need root");
    }
    (!exists("ip") || !exists("tc")).then_some("iproute2 (`ip` and `tc`) is missing")
}

fn exists(program: &str) -> bool {
    Command::new(program).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Runs a program to completion. Its standard error becomes the text of a failure.
///
/// # Errors
/// The program doesn't start, or fails.
pub fn run(program: &str, args: &[&str]) -> io::Result<Output> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    let output = command.output().map_err(|error| failed(&command, &error.to_string()))?;
    checked(&command, output)
}

/// Runs lines of `ip` or `tc`, in a namespace if one is given.
///
/// # Errors
/// The program doesn't start, or fails.
pub fn batch(program: &str, namespace: Option<&str>, lines: impl IntoIterator<Item = String>) -> io::Result<()> {
    let mut command = Command::new(program);
    if let Some(namespace) = namespace {
        command.args(["-n", namespace]);
    }
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(&command, &error.to_string()))?;
    let text = lines.into_iter().collect::<Vec<_>>().join("\n") + "\n";
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(text.as_bytes()));
    let output = checked(&command, child.wait_with_output()?);
    output.and(written).map_err(|error| io::Error::other(format!("{error}, at one of these lines:\n{text}")))
}

fn checked(command: &Command, output: Output) -> io::Result<Output> {
    if output.status.success() {
        return Ok(output);
    }
    Err(failed(command, String::from_utf8_lossy(&output.stderr).trim()))
}

fn failed(command: &Command, why: &str) -> io::Error {
    let words: Vec<_> = [command.get_program()].into_iter().chain(command.get_args()).collect();
    io::Error::other(format!("{}: {why}", words.join(" ".as_ref()).display()))
}

/// Moves this thread, and threads that it starts later, into a namespace.
///
/// # Errors
/// The namespace doesn't exist, or the system refuses the move.
pub fn enter(namespace: &str) -> io::Result<()> {
    let path = Path::new("/run/netns").join(namespace);
    let file = File::open(&path).map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
    Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Kills every process in a namespace except this one, and removes the namespace.
pub fn remove(namespace: &str) {
    // Ignore errors: the next run removes leftovers.
    if let Ok(output) = run("ip", &["netns", "pids", namespace]) {
        let pids = String::from_utf8_lossy(&output.stdout).into_owned();
        let own = i32::try_from(process::id()).ok();
        let others = pids.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(|pid| Some(*pid) != own);
        for pid in others.filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    let _ = run("ip", &["netns", "del", namespace]);
}

/// A program that creates namespaces. Their names contain the process id of the run that created them.
pub struct Maker {
    /// The prefix of the names of its namespaces. The process id follows.
    pub prefix: &'static str,
    /// Possible prefixes of its process name.
    pub programs: &'static [&'static str],
}

impl Maker {
    /// The prefix of the names of this process's namespaces.
    pub fn own_prefix(&self) -> String {
        format!("{}{}-", self.prefix, process::id())
    }

    /// The namespaces of runs that have ended.
    pub fn leftovers(&self) -> Vec<String> {
        let Ok(output) = run("ip", &["netns", "list"]) else { return Vec::new() };
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        let names = listed.lines().filter_map(|line| line.split_whitespace().next());
        names.filter(|name| self.owner(name).is_some_and(|owner| !self.runs(owner))).map(str::to_owned).collect()
    }

    /// The process that created a namespace, if it is one of this program's.
    fn owner(&self, namespace: &str) -> Option<u32> {
        namespace.strip_prefix(self.prefix)?.split('-').next()?.parse().ok()
    }

    /// Whether a process with this id may be this program.
    pub fn runs(&self, pid: u32) -> bool {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        self.programs.iter().any(|program| name.starts_with(program))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAKER: Maker = Maker { prefix: "artillery-paper-", programs: &["paper", "artillery_proc"] };

    #[test]
    fn only_own_namespaces_have_an_owner() {
        assert_eq!(MAKER.owner("artillery-paper-4711-switch"), Some(4711));
        for other in ["artillery-paper-", "artillery-paper-x-n1", "artillery-4711-n1", "switch"] {
            assert_eq!(MAKER.owner(other), None, "{other}");
        }
    }

    #[test]
    fn reused_process_id_is_no_owner() {
        assert!(!MAKER.runs(1) && !MAKER.runs(u32::MAX) && MAKER.runs(process::id()));
    }
}
