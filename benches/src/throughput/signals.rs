//! Ends all started processes before this one exits on SIGINT or SIGTERM.

use std::{process::ExitCode, thread};

use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};

use super::Failed;

/// Runs a program. Calls `end` afterwards, or before this process exits on SIGINT or SIGTERM.
pub fn run(end: impl Fn() + Copy + Send + 'static, program: impl FnOnce() -> Result<(), Failed>) -> ExitCode {
    let done = end_on_signals(end).and_then(|()| program());
    end();
    exit_code(done)
}

/// Prints the error, if any, and returns the exit code.
pub fn exit_code(done: Result<(), Failed>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn end_on_signals(end: impl Fn() + Send + 'static) -> Result<(), Failed> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = runtime
        .block_on(async { Ok::<_, Failed>((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)) })?;
    let wait = move || {
        let code = runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => 130,
                _ = terminate.recv() => 143,
            }
        });
        end();
        std::process::exit(code);
    };
    thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}
