//! Limits processes to a fraction of a core, by control groups of either version.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use super::processes;

/// The period of quotas, in microseconds. Short, since an exhausted quota shows as latency until the period ends.
const PERIOD: u32 = 10_000;

/// Factor over the weight of an ordinary group: a node gets its share even while other programs are busy.
const AHEAD: u32 = 10;

/// The folder in which control groups for processors are created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Quotas {
    /// Version 1: the folder of the controller `cpu`.
    V1(PathBuf),
    /// Version 2: the folder of all controllers.
    V2(PathBuf),
}

/// The limit on a process. The process must have exited before this is dropped.
#[derive(Debug)]
pub struct Share {
    folder: PathBuf,
}

static MADE: AtomicU32 = AtomicU32::new(0);

impl Quotas {
    /// Finds the control groups, and checks that one can be created.
    pub fn find() -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mounts").map_err(|error| format!("/proc/self/mounts: {error}"))?;
        let has_cpu = |folder: &Path| {
            let all = fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
            all.split_whitespace().any(|controller| controller == "cpu")
        };
        let found = Self::of_mounts(&mounts, has_cpu).ok_or("no control groups for processors are available")?;
        found.group(0.5).map(drop).map_err(|error| format!("no control group can be created ({error})"))?;
        Ok(found)
    }

    fn of_mounts(mounts: &str, has_cpu: impl Fn(&Path) -> bool) -> Option<Self> {
        let of_line = |line: &str| {
            let mut fields = line.split(' ').skip(1);
            let (folder, kind, options) = (PathBuf::from(fields.next()?), fields.next()?, fields.next()?);
            match kind {
                "cgroup" if options.split(',').any(|option| option == "cpu") => Some(Self::V1(folder)),
                "cgroup2" if has_cpu(&folder) => Some(Self::V2(folder)),
                _ => None,
            }
        };
        mounts.lines().find_map(of_line)
    }

    /// Limits a process to this fraction of a core.
    ///
    /// # Errors
    /// An error of the system, with the name of the file.
    pub fn hold(&self, pid: u32, part: f64) -> io::Result<Share> {
        let share = self.group(part)?;
        put(&share.folder.join("cgroup.procs"), &pid.to_string())?;
        Ok(share)
    }

    fn group(&self, part: f64) -> io::Result<Share> {
        let (Self::V1(root) | Self::V2(root)) = self;
        if matches!(self, Self::V2(_)) {
            put(&root.join("cgroup.subtree_control"), "+cpu")?;
        }
        let name = format!("artillery-bench-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let folder = root.join(name);
        processes::make_folder(&folder).map_err(|error| named(&folder, &error))?;
        let share = Share { folder };
        for (file, text) in self.settings(part) {
            put(&share.folder.join(file), &text)?;
        }
        Ok(share)
    }

    fn settings(&self, part: f64) -> Vec<(&'static str, String)> {
        let quota = (f64::from(PERIOD) * part).round();
        match self {
            Self::V1(_) => vec![
                ("cpu.cfs_period_us", PERIOD.to_string()),
                ("cpu.cfs_quota_us", quota.to_string()),
                ("cpu.shares", (1024 * AHEAD).to_string()),
            ],
            Self::V2(_) => vec![("cpu.max", format!("{quota} {PERIOD}")), ("cpu.weight", (100 * AHEAD).to_string())],
        }
    }
}

fn put(file: &Path, text: &str) -> io::Result<()> {
    fs::write(file, text).map_err(|error| named(file, &error))
}

fn named(path: &Path, error: &dyn fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}

impl Drop for Share {
    fn drop(&mut self) {
        processes::remove_folder(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(mounts: &str, v2_has_cpu: bool) -> Option<Quotas> {
        Quotas::of_mounts(mounts, |_| v2_has_cpu)
    }

    #[test]
    fn both_versions_are_found() {
        let v1 = "cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0\n\
                  cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n\
                  cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
        assert_eq!(found(v1, false), Some(Quotas::V1("/sys/fs/cgroup/cpu,cpuacct".into())));
        let v2 = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        assert_eq!(found(v2, true), Some(Quotas::V2("/sys/fs/cgroup".into())));
        assert_eq!(found(v2, false), None, "the controller isn't delegated");
        assert_eq!(found("cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\nnonsense\n", true), None);
    }

    #[test]
    fn a_fifth_of_a_core() {
        let is = |quotas: Quotas, file: &'static str, text: &str| {
            assert!(quotas.settings(0.2).contains(&(file, text.to_owned())), "{file}");
        };
        is(Quotas::V1("/x".into()), "cpu.cfs_period_us", "10000");
        is(Quotas::V1("/x".into()), "cpu.cfs_quota_us", "2000");
        is(Quotas::V2("/x".into()), "cpu.max", "2000 10000");
    }

    #[test]
    fn refused_file_is_named() {
        let error = Quotas::V1("/nowhere".into()).group(0.2).unwrap_err().to_string();
        assert!(error.contains("/nowhere/artillery-bench-"), "{error}");
    }
}
