//! How the programs end: exit codes and the final error message.

use std::{env, fmt, num::NonZeroUsize, process::ExitCode, thread, time::Duration};

use artillery_ddata::{Error, admin::AdminError};
use tokio::runtime::Builder;

/// Exit code of success.
pub const DONE: u8 = 0;
/// Exit code of a failure, and of an absent key.
pub const FAILED: u8 = 1;
/// Exit code of invalid arguments.
const USAGE: u8 = 2;
/// Exit code of a write or an order that may or may not have been applied.
const UNKNOWN: u8 = 3;
/// Exit code of a write whose condition didn't hold.
pub const CONFLICT: u8 = 4;

/// The reason why a program ends early.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    /// `outcome_unknown`, `refused` or `not_applied` for a failed call, otherwise `None`, also for an operator's order
    /// that a node rejected.
    pub kind: Option<&'static str>,
    message: String,
}

impl Failure {
    /// A failure with exit code [`FAILED`].
    pub fn failed(message: impl fmt::Display) -> Self {
        Self { code: FAILED, kind: None, message: message.to_string() }
    }

    /// An invalid argument, which the message must name.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self { code: USAGE, kind: None, message: message.to_string() }
    }

    /// The same failure, if an earlier attempt may have been applied: `earlier` states why its outcome is unknown.
    pub fn after_unknown(self, earlier: &Self) -> Self {
        let message = format!("{self}; an earlier attempt may have been carried out: {earlier}");
        Self { message, code: UNKNOWN, kind: Some("outcome_unknown") }
    }

    /// Whether an argument is invalid.
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

impl<R: fmt::Display> From<AdminError<R>> for Failure {
    fn from(error: AdminError<R>) -> Self {
        match error {
            AdminError::NotSent(error) => error.into(),
            AdminError::Rejected(reason) => Self::failed(reason),
            unknown => Self { code: UNKNOWN, kind: Some("outcome_unknown"), message: unknown.to_string() },
        }
    }
}

/// Maximum time for which lingering tasks, such as a name lookup, may delay the exit.
const LAST_WAIT: Duration = Duration::from_millis(500);

/// Builds tokio's current-thread scheduler if there is one thread only, since it then has no threads to coordinate.
fn scheduler(threads: Option<usize>) -> Builder {
    let asked = env::var("TOKIO_WORKER_THREADS").ok().and_then(|threads| threads.parse().ok());
    if asked.or(threads) == Some(1) { Builder::new_current_thread() } else { Builder::new_multi_thread() }
}

/// Runs a program, and prints the reason of a failure to standard error.
pub fn run(program: impl Future<Output = Result<u8, Failure>>) -> ExitCode {
    run_by(scheduler(thread::available_parallelism().ok().map(NonZeroUsize::get)), program)
}

/// Like [`run`], for a program that is fastest on one thread; `TOKIO_WORKER_THREADS` overrides this.
pub fn run_on_one_thread(program: impl Future<Output = Result<u8, Failure>>) -> ExitCode {
    run_by(scheduler(Some(1)), program)
}

fn run_by(mut scheduler: Builder, program: impl Future<Output = Result<u8, Failure>>) -> ExitCode {
    let runtime = match scheduler.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: could not start the async runtime: {error}");
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
