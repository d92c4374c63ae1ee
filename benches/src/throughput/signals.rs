//! On SIGINT and SIGTERM, all started processes end before this one.

use std::thread;

use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};

use super::Failed;

/// On SIGINT or SIGTERM, calls `end` and then exits this process.
///
/// # Errors
/// An error of the system.
pub fn end_on_signals(end: impl Fn() + Send + 'static) -> Result<(), Failed> {
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
