//! What the library has to say, on standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt,
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// From now on events of this program and of Artillery are written, of this level and above. Libraries below speak up from
/// `debug` on, before that only of errors.
pub fn begin(program: &str, level: LevelFilter) {
    let others = if level >= LevelFilter::DEBUG { level } else { level.min(LevelFilter::ERROR) };
    // It takes every node that is gone for an error; the library says itself what matters of that.
    let log = if level >= LevelFilter::DEBUG { level } else { LevelFilter::OFF };
    let wanted = Targets::new()
        .with_default(others)
        .with_target("artillery", level)
        .with_target(program, level)
        .with_target("openraft", log);
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    // Fails only if there is a subscriber already, which is fine too.
    let _ = tracing_subscriber::registry().with(lines).with(wanted).try_init();
}
