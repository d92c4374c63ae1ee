//! How the programs end: exit codes, and the message on the way out.

use std::{env, fmt, num::NonZeroUsize, process::ExitCode, thread, time::Duration};

use artillery_ddata::Error;
use tokio::runtime::Builder;

/// Done.
pub const DONE: u8 = 0;
/// The program failed, or the key is absent.
pub const FAILED: u8 = 1;
/// The arguments make no sense.
const USAGE: u8 = 2;
/// A write may have been applied or not.
const UNKNOWN: u8 = 3;
/// The condition of a write didn't hold.
pub const CONFLICT: u8 = 4;

/// Why a program ends early.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    /// What became of the data, where a call failed.
    pub kind: Option<&'static str>,
    message: String,
}

impl Failure {
    /// Something went wrong.
    pub fn failed(message: impl fmt::Display) -> Self {
        Self { code: FAILED, kind: None, message: message.to_string() }
    }

    /// An argument makes no sense; the message names it.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self { code: USAGE, kind: None, message: message.to_string() }
    }

    /// Whether the arguments are to blame.
    pub fn is_usage(&self) -> bool {
        self.code == USAGE
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (code, kind) = match &error {
            Error::OutcomeUnknown { .. } => (UNKNOWN, "outcome_unknown"),
            Error::Refused { .. } => (FAILED, "refused"),
            _ => (FAILED, "not_applied"),
        };
        Self { code, kind: Some(kind), message: error.to_string() }
    }
}

/// The longest that lingering tasks, a name lookup say, may hold up the end of a program.
const LAST_WAIT: Duration = Duration::from_millis(500);

/// Builds tokio's current-thread scheduler for one thread: it has no other threads to watch or wake.
fn scheduler(threads: Option<usize>) -> Builder {
    let asked = env::var("TOKIO_WORKER_THREADS").ok().and_then(|threads| threads.parse().ok());
    if asked.or(threads) == Some(1) { Builder::new_current_thread() } else { Builder::new_multi_thread() }
}

/// Runs a program to its end, and prints to standard error why it failed.
pub fn run(program: impl Future<Output = Result<u8, Failure>>) -> ExitCode {
    run_by(scheduler(thread::available_parallelism().ok().map(NonZeroUsize::get)), program)
}

/// Like [`run`], for a program that is fastest on one thread, unless `TOKIO_WORKER_THREADS` says otherwise.
pub fn run_on_one_thread(program: impl Future<Output = Result<u8, Failure>>) -> ExitCode {
    run_by(scheduler(Some(1)), program)
}

fn run_by(mut scheduler: Builder, program: impl Future<Output = Result<u8, Failure>>) -> ExitCode {
    let runtime = match scheduler.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: no runtime: {error}");
            return ExitCode::from(FAILED);
        }
    };
    let code = runtime.block_on(program).unwrap_or_else(|failure| {
        eprintln!("error: {failure}");
        failure.code
    });
    runtime.shutdown_timeout(LAST_WAIT);
    ExitCode::from(code)
}
