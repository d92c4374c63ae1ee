//! A description of the machine on which a run is made.

use std::{fs, io, process::Command, thread};

use rustix::time::{ClockId, clock_gettime};

use super::results::Machine;

const TICKS_PER_SECOND: f64 = 100.0;

/// The current state of this machine.
pub fn machine() -> Machine {
    let is_clean = output("git", &["status", "--porcelain", "--untracked-files=no"]).is_empty();
    let unknown = |text: String| if text.is_empty() { "unknown".to_owned() } else { text };
    Machine {
        date: unknown(output("date", &["-u", "+%Y-%m-%d %H:%M"])),
        commit: unknown(output("git", &["rev-parse", "--short", "HEAD"])) + if is_clean { "" } else { "+" },
        kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        processor: unknown(processor(&read("/proc/cpuinfo"))),
        cores: thread::available_parallelism().map_or(1, usize::from),
        compiler: unknown(output("rustc", &["--version"])),
        load_before: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or_default(),
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

fn processor(cpuinfo: &str) -> String {
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map(|(_, name)| name.trim().to_owned()).unwrap_or_default()
}

/// Processor time of this process, in seconds.
pub fn own_cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Processor time of a process, in seconds.
pub fn cpu_of(pid: u32) -> io::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    busy(&stat).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat has an unknown format")))
}

/// Idle time of all cores together, in seconds.
pub fn idle_cpu() -> io::Result<f64> {
    idle(&fs::read_to_string("/proc/stat")?).ok_or_else(|| io::Error::other("/proc/stat has an unknown format"))
}

/// The fourth and fifth number: idle, and idle while a process waits for a disk.
fn idle(stat: &str) -> Option<f64> {
    let mut fields = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace().skip(3);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS_PER_SECOND)
}

/// User and system time, fields 14 and 15, counted after the name in brackets.
fn busy(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks = |field: usize| fields.split_ascii_whitespace().nth(field - 3)?.parse::<f64>().ok();
    Some((ticks(14)? + ticks(15)?) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_brackets_do_no_harm() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 13 14 20 0 3 0 99";
        assert_eq!(busy(stat), Some(2.0));
        assert_eq!(busy("nonsense"), None);
    }

    #[test]
    fn idle_cores() {
        assert_eq!(idle("cpu  1 2 3 400 50 6 7 8 9 10\ncpu0 1"), Some(4.5));
        assert_eq!((idle("cpu0 1 2 3 4 5"), idle("")), (None, None));
    }

    #[test]
    fn this_machine_has_what_it_needs() {
        assert!(cpu_of(std::process::id()).is_ok());
        assert_eq!(processor("x: y\nmodel name\t: A B\n"), "A B");
        let machine = machine();
        assert!(machine.cores > 0 && machine.date.len() == "2026-11-21 10:45".len(), "{machine}");
    }
}
