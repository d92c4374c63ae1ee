//! The log of the program and of the library, on standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt,
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// Starts the log. It contains the events of this program and of Artillery at `level` and above. Events of other
/// libraries are included at `level` and above if it is `debug` or finer; otherwise only their errors are.
pub fn begin(program: &str, level: LevelFilter) {
    let others = if level >= LevelFilter::DEBUG { level } else { level.min(LevelFilter::ERROR) };
    // openraft reports each unreachable node as an error; Artillery itself reports the relevant ones.
    let log = if level >= LevelFilter::DEBUG { level } else { LevelFilter::OFF };
    // Node events are meant for a node's operator: at the default level, only `node` logs all of them.
    let events = match program {
        "node" if level >= LevelFilter::WARN => level.max(LevelFilter::INFO),
        "node" => level,
        _ if level == LevelFilter::WARN => LevelFilter::ERROR,
        _ => level,
    };
    let wanted = Targets::new()
        .with_default(others)
        .with_target("artillery", level)
        .with_target(program, level)
        .with_target("artillery_ddata::events", events)
        .with_target("openraft", log);
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    // Fails only if a subscriber is already installed, which is fine.
    let _ = tracing_subscriber::registry().with(lines).with(wanted).try_init();
}
