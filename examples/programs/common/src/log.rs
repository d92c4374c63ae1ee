//! Events of the program and of the library, on standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt,
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// From now on writes the events of this program and of Artillery that have this level or a more severe one. Libraries
/// below add all of theirs from level `debug` on, and only their errors otherwise.
pub fn begin(program: &str, level: LevelFilter) {
    let others = if level >= LevelFilter::DEBUG { level } else { level.min(LevelFilter::ERROR) };
    // openraft reports each unreachable node as an error; Artillery itself reports those that matter.
    let log = if level >= LevelFilter::DEBUG { level } else { LevelFilter::OFF };
    // What happens to a node is for its operator. Programs with several nodes of their own report it themselves.
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
    // Fails only if a subscriber is installed already, which is fine too.
    let _ = tracing_subscriber::registry().with(lines).with(wanted).try_init();
}
