//! What a killed run leaves behind: namespaces, and processes in them.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use super::command::{ip, run};

/// Every namespace of this program begins so; the number of its process follows.
pub(super) const PREFIX: &str = "artillery-chaos-";

/// Removes the namespaces of runs that are over.
pub(super) fn remove() {
    let Ok(output) = run("ip", &["netns", "list"]) else { return };
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    for namespace in listed.lines().filter_map(|line| line.split_whitespace().next()) {
        if owner(namespace).is_some_and(|owner| !runs(owner)) {
            tracing::warn!(namespace, "removing what an earlier run has left behind");
            remove_namespace(namespace);
        }
    }
}

/// Ends every process in a namespace, and removes it.
pub(super) fn remove_namespace(namespace: &str) {
    // Errors are ignored, since no caller is left to handle them: the next run removes what stays behind.
    if let Ok(output) = run("ip", &["netns", "pids", namespace]) {
        let pids = String::from_utf8_lossy(&output.stdout).into_owned();
        let own = i32::try_from(std::process::id()).ok();
        for pid in pids.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(|pid| Some(*pid) != own) {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
    let _ = ip(&["netns", "del", namespace]);
}

/// The process that made this namespace, if the name is one of ours.
fn owner(namespace: &str) -> Option<u32> {
    namespace.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

/// Whether a process runs that may be this program.
fn runs(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("chaos"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_namespaces_have_an_owner() {
        assert_eq!(owner("artillery-chaos-4711-router"), Some(4711));
        for other in ["artillery-chaos-", "artillery-chaos-x-n1", "artillery-4711-n1", "router"] {
            assert_eq!(owner(other), None, "{other}");
        }
    }

    #[test]
    fn a_reused_process_id_is_no_run() {
        assert!(!runs(1) && !runs(u32::MAX));
    }
}
