//! Signals to stop, and to reload files.

use std::io;

use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receives SIGINT and SIGTERM from its creation on.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// SIGHUP and SIGQUIT.
    others: Option<(Signal, Signal)>,
}

impl Signals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn listen() -> io::Result<Self> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, others: None })
    }

    /// Receives SIGHUP and SIGQUIT too from now on.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn listen_to_all(&mut self) -> io::Result<()> {
        self.others = Some((signal(SignalKind::hangup())?, signal(SignalKind::quit())?));
        Ok(())
    }

    /// Waits for a signal.
    pub async fn asked_to_stop(&mut self) {
        self.next().await;
    }

    /// Waits for a signal, and returns its number.
    pub async fn next(&mut self) -> i32 {
        let others = async {
            match &mut self.others {
                Some((hangup, quit)) => tokio::select! {
                    _ = hangup.recv() => Number::HUP.as_raw(),
                    _ = quit.recv() => Number::QUIT.as_raw(),
                },
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => Number::INT.as_raw(),
            _ = self.terminate.recv() => Number::TERM.as_raw(),
            other = others => other,
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
