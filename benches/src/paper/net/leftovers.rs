//! Leftovers of killed runs: namespaces, and processes in them.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use super::command::run;

/// The prefix of every namespace of this program. The id of its process follows.
pub(super) const PREFIX: &str = "artillery-paper-";

/// Removes the namespaces of runs whose process is gone.
pub(super) fn remove() {
    let Ok(output) = run("ip", &["netns", "list"]) else { return };
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = listed.lines().filter_map(|line| line.split_whitespace().next());
    let left: Vec<_> = names.filter(|name| owner(name).is_some_and(|owner| !runs(owner))).collect();
    if !left.is_empty() {
        eprintln!("{} namespaces were left behind by an earlier run: removing them", left.len());
    }
    left.into_iter().for_each(remove_namespace);
}

/// Ends every process in a namespace but this one, and removes the namespace.
pub(super) fn remove_namespace(namespace: &str) {
    // After a failure here the next run removes the namespace.
    if let Ok(output) = run("ip", &["netns", "pids", namespace]) {
        let pids = String::from_utf8_lossy(&output.stdout).into_owned();
        let own = i32::try_from(std::process::id()).ok();
        for pid in pids.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(|pid| Some(*pid) != own) {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
    let _ = run("ip", &["netns", "del", namespace]);
}

/// The process that made a namespace, if this program did.
fn owner(namespace: &str) -> Option<u32> {
    namespace.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

/// Whether a process with this id and this program's name is alive.
fn runs(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| is_ours(&name))
}

/// Whether a process may own namespaces. Tests make some too: their program is named after the library.
fn is_ours(name: &str) -> bool {
    name.starts_with("paper") || name.starts_with("artillery_bench")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_namespaces_have_an_owner() {
        assert_eq!(owner("artillery-paper-4711-switch"), Some(4711));
        for other in ["artillery-paper-", "artillery-paper-x-n1", "artillery-4711-n1", "switch"] {
            assert_eq!(owner(other), None, "{other}");
        }
    }

    #[test]
    fn reused_process_id_is_no_owner() {
        assert!(!runs(1) && !runs(u32::MAX));
        assert!(is_ours("paper\n") && runs(std::process::id()));
    }
}
