//! Explores a small chain exhaustively.
use artillery_ddata::control::coordinator::Mutant;
use artillery_model::{bounds::Bounds, explore::explore};
use std::time::Duration;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let get = |name: &str, default: u64| {
        args.iter().position(|a| a == name).map_or(default, |at| args[at + 1].parse().unwrap())
    };
    let bounds = Bounds {
        writes: get("--writes", 2) as usize,
        ticks: get("--ticks", 6),
        faults: get("--faults", 1) as u32,
        changes: get("--changes", 1) as u32,
        elections: get("--elections", 0) as u32,
        in_flight: get("--in-flight", 1) as usize,
        late_renewals: get("--late", 0) == 1,
        coordinator: (get("--mutant", 0) == 1).then_some(Mutant::RemoveAtOnce),
        replica: None,
    };
    println!("{bounds}");
    let t = std::time::Instant::now();
    let e =
        explore(bounds, get("--threads", 2) as usize, get("--bfs", 0) == 1, Duration::from_secs(get("--seconds", 60)));
    println!("{e:?} {:?}", t.elapsed());
    println!(
        "{}",
        std::fs::read_to_string("/proc/self/status").unwrap().lines().find(|l| l.starts_with("VmHWM")).unwrap()
    );
}
