//! Isolates an application's source, which may block, panic, end, or never stop.

use std::{
    any::Any,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_core::Stream;
use tokio::{
    runtime::{Builder, Runtime},
    sync::{mpsc, watch},
    time::sleep,
};

use super::{Announcement, Candidate, Candidates, Discovery, Source, lookup};

const MAX_WAITING: usize = 64;

/// Number of candidates between two pauses of [`BURST_PAUSE`].
const BURST: usize = 64;

const BURST_PAUSE: Duration = Duration::from_millis(100);

const MAX_ADDRS: usize = 16;

const PANIC_PAUSE: Duration = Duration::from_secs(5);

/// Runs each stream of a source on a thread and in a runtime of its own.
pub(crate) struct ContainedDiscovery {
    source: Arc<dyn Discovery>,
    announced: watch::Sender<Option<Announcement>>,
}

impl ContainedDiscovery {
    pub(crate) fn new(source: Arc<dyn Discovery>) -> Self {
        Self { source, announced: watch::Sender::new(None) }
    }
}

impl Discovery for ContainedDiscovery {
    fn announce(&self, me: &Announcement) {
        self.announced.send_replace(Some(me.clone()));
    }

    fn candidates(&self) -> Candidates {
        let (sender, found) = mpsc::channel(MAX_WAITING);
        let mut thread =
            ContainedThread { source: self.source.clone(), announced: self.announced.subscribe(), found: sender };
        if let Err(error) = lookup::start("artillery-discovery", move || thread.run()) {
            tracing::warn!(%error, "no thread for a source of addresses: it is disabled");
        }
        Box::pin(FoundCandidates(found))
    }
}

struct FoundCandidates(mpsc::Receiver<Candidate>);

impl Stream for FoundCandidates {
    type Item = Candidate;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Candidate>> {
        self.0.poll_recv(context)
    }
}

struct ContainedThread {
    source: Arc<dyn Discovery>,
    announced: watch::Receiver<Option<Announcement>>,
    found: mpsc::Sender<Candidate>,
}

impl ContainedThread {
    /// Runs the source until the receiver of its candidates is dropped. A call that blocks delays only this thread.
    fn run(&mut self) {
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return tracing::warn!(%error, "no runtime for a source of addresses: it is disabled"),
        };
        while let Err(panic) = catch_unwind(AssertUnwindSafe(|| runtime.block_on(self.follow()))) {
            let why = message(&*panic);
            tracing::warn!(why, "a source of addresses has panicked; restarting it in {PANIC_PAUSE:?}");
            self.pause(&runtime);
            if self.found.is_closed() {
                break;
            }
        }
        // Don't wait for blocking tasks: they would keep this thread alive.
        runtime.shutdown_background();
    }

    fn pause(&self, runtime: &Runtime) {
        runtime.block_on(async {
            tokio::select! {
                () = self.found.closed() => {}
                () = sleep(PANIC_PAUSE) => {}
            }
        });
    }

    /// Forwards candidates, and passes announcements to the source. Returns when the receiver of the candidates is
    /// dropped.
    async fn follow(&mut self) {
        // Otherwise the current announcement would be skipped.
        self.announced.mark_changed();
        let mut candidates = self.source.candidates();
        let (mut is_open, mut is_announcing, mut passed) = (true, true, 0_usize);
        loop {
            tokio::select! {
                biased;
                () = self.found.closed() => return,
                changed = self.announced.changed(), if is_announcing => match changed {
                    Ok(()) => {
                        let me = self.announced.borrow_and_update().clone();
                        me.iter().for_each(|me| self.source.announce(me));
                    }
                    Err(_) => is_announcing = false,
                },
                candidate = poll_fn(|context| candidates.as_mut().poll_next(context)), if is_open => match candidate {
                    Some(candidate) => {
                        let candidate = bounded(candidate);
                        if self.found.send(candidate).await.is_err() {
                            return;
                        }
                        passed += 1;
                        if passed.is_multiple_of(BURST) {
                            sleep(BURST_PAUSE).await;
                        }
                    }
                    None => {
                        tracing::debug!("a source of addresses has ended");
                        is_open = false;
                    }
                },
            }
        }
    }
}

/// Limits an application's candidate. Only the operator's list may report `Source::Seed`, so that no other source
/// withdraws or replaces seeds.
fn bounded(mut candidate: Candidate) -> Candidate {
    candidate.addrs.truncate(MAX_ADDRS);
    if let Source::Seed(name) = candidate.source {
        candidate.source = Source::Other(name);
    }
    candidate
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

// Only this feature enables tokio's paused clock.
#[cfg(all(test, feature = "testing"))]
mod tests {
    use tokio::time::Instant;

    use super::*;

    struct Endless;

    impl Stream for Endless {
        type Item = Candidate;

        fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Candidate>> {
            Poll::Ready(Some(Candidate::new(Source::Other("endless".into()), None, Vec::new())))
        }
    }

    impl Discovery for Endless {
        fn candidates(&self) -> Candidates {
            Box::pin(Self)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_never_stops_is_slowed() {
        let (sender, mut found) = mpsc::channel(MAX_WAITING);
        let (_announces, announced) = watch::channel(None);
        let mut thread = ContainedThread { source: Arc::new(Endless), announced, found: sender };
        let began = Instant::now();
        let receive = async {
            for _ in 0..10 * BURST {
                found.recv().await.unwrap();
            }
            drop(found);
            began.elapsed()
        };
        let ((), took) = tokio::join!(thread.follow(), receive);
        assert!(took >= 9 * BURST_PAUSE, "{took:?} of virtual time");
    }
}
