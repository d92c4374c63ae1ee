//! Signals to stop, and to reload files.

use std::io;

use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receives SIGINT and SIGTERM from its creation on.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for either signal.
    pub async fn asked_to_stop(&mut self) {
        self.next().await;
    }

    /// Waits for either signal, and returns its number.
    pub async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => Number::INT.as_raw(),
            _ = self.terminate.recv() => Number::TERM.as_raw(),
        }
    }
}

/// Ignores Ctrl-Z from now on.
///
/// # Errors
/// The system refuses the handler.
pub fn ignore_suspension() -> io::Result<()> {
    signal(SignalKind::from_raw(Number::TSTP.as_raw())).map(drop)
}

/// Receives SIGHUP from its creation on.
pub struct Hangups(Signal);

impl Hangups {
    /// Installs the handler.
    ///
    /// # Errors
    /// The system refuses the handler.
    pub fn listen() -> io::Result<Self> {
        Ok(Self(signal(SignalKind::hangup())?))
    }

    /// Waits for the next SIGHUP.
    pub async fn next(&mut self) {
        self.0.recv().await;
    }
}
