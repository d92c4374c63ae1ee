//! Resolves host names, with a bound on time and threads.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use rand::RngExt;
use tokio::{
    sync::{Semaphore, SemaphorePermit, oneshot, watch},
    time::timeout,
};

pub(super) const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of pending look-ups. Each occupies a thread until the resolver answers.
const MAX_LOOKUPS: usize = 32;

/// Maximum number of addresses of a name that one dial uses. A name server may list any number.
const MAX_ADDRS: usize = 16;

type Answer = Option<Result<Vec<SocketAddr>, (io::ErrorKind, String)>>;

type Work = Box<dyn FnOnce() + Send>;

static LOOKUPS: Lookups = Lookups::new(MAX_LOOKUPS, |work| start("artillery-lookup", work));

/// Resolves a host to at most [`MAX_ADDRS`] distinct addresses in the resolver's order. If there are more, a random
/// selection is returned, so that no address is left out permanently.
#[allow(clippy::disallowed_methods, reason = "randomness: handed to pure code")]
pub(super) async fn look_up(host: &str, port: u16) -> Result<Vec<SocketAddr>, ResolveError> {
    let all = look_up_all(host, port).await?;
    Ok(some_of(all, MAX_ADDRS, |below| rand::rng().random_range(0..below)))
}

/// Resolves a host to all its distinct addresses, in the resolver's order.
pub(super) async fn look_up_all(host: &str, port: u16) -> Result<Vec<SocketAddr>, ResolveError> {
    LOOKUPS.look_up_by(host, port, LOOKUP_TIMEOUT, |host, port| Ok((host, port).to_socket_addrs()?.collect())).await
}

/// Selects at most `most` addresses without changing their order. `pick` returns a random number below its argument.
fn some_of(mut all: Vec<SocketAddr>, most: usize, mut pick: impl FnMut(usize) -> usize) -> Vec<SocketAddr> {
    while all.len() > most {
        all.remove(pick(all.len()));
    }
    all
}

/// Why a candidate has no address now.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// The resolver reported an error, or no thread could be started for it.
    #[error("can't look up {host}: {error}")]
    Lookup {
        /// The host and port.
        host: String,
        /// The error of the resolver or of the system.
        error: io::Error,
    },
    /// The resolver did not answer in time, or too many other look-ups were pending.
    #[error("could not resolve {host} within {after:?}")]
    Timeout {
        /// The host and port.
        host: String,
        /// The time limit.
        after: Duration,
    },
    /// The host name has no address, or the lookup panicked.
    #[error("{host} has no address")]
    Nothing {
        /// The host and port.
        host: String,
    },
}

/// The pending look-ups. A resolver may need far longer than [`LOOKUP_TIMEOUT`], and names are resolved periodically,
/// so each name and port has at most one thread, and the number of threads is bounded.
struct Lookups {
    /// By name and port.
    under_way: Mutex<BTreeMap<(String, u16), watch::Receiver<Answer>>>,
    /// Each thread holds a permit until it ends.
    permits: Semaphore,
    start: fn(Work) -> io::Result<()>,
}

impl Lookups {
    const fn new(most: usize, start: fn(Work) -> io::Result<()>) -> Self {
        Self { under_way: Mutex::new(BTreeMap::new()), permits: Semaphore::const_new(most), start }
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeMap<(String, u16), watch::Receiver<Answer>>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look_up_by(
        &'static self,
        host: &str,
        port: u16,
        after: Duration,
        resolver: impl FnOnce(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> Result<Vec<SocketAddr>, ResolveError> {
        let name = format!("{host}:{port}");
        // The time limit includes the wait for a permit.
        let answered = timeout(after, self.answer((host.to_owned(), port), resolver)).await;
        let found = answered.map_err(|_| ResolveError::Timeout { host: name.clone(), after })?;
        let mut known = BTreeSet::new();
        let mut addrs = found.map_err(|error| ResolveError::Lookup { host: name.clone(), error })?;
        addrs.retain(|addr| known.insert(*addr));
        if addrs.is_empty() { Err(ResolveError::Nothing { host: name }) } else { Ok(addrs) }
    }

    /// The resolver's answer: no addresses if its thread ended without one.
    async fn answer(
        &'static self,
        name: (String, u16),
        resolver: impl FnOnce(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> io::Result<Vec<SocketAddr>> {
        let running = self.under_way().get(&name).cloned();
        let mut answer = match running {
            Some(running) => running,
            None => {
                let permit = self.permits.acquire().await.map_err(io::Error::other)?;
                self.begin(name, permit, resolver)?
            }
        };
        let answered = answer.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone());
        answered.unwrap_or_else(|| Ok(Vec::new())).map_err(|(kind, why)| io::Error::new(kind, why))
    }

    /// Joins the pending look-up of this name, or starts one.
    fn begin(
        &'static self,
        name: (String, u16),
        permit: SemaphorePermit<'static>,
        resolver: impl FnOnce(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> io::Result<watch::Receiver<Answer>> {
        let mut all = self.under_way();
        if let Some(running) = all.get(&name) {
            return Ok(running.clone());
        }
        let (sender, answer) = watch::channel(None);
        let wanted = name.clone();
        (self.start)(Box::new(move || {
            let _permit = permit;
            // Created by the thread: if the thread cannot start, the closure is dropped while the lock is held above,
            // and `LookupEnd` would lock again.
            let ends = LookupEnd(self, wanted);
            let (host, port) = &ends.1;
            let answer = resolver(host, *port).map_err(|error| (error.kind(), error.to_string()));
            // Removed before the answer is published: the next look-up of this name must ask the resolver again.
            drop(ends);
            sender.send_replace(Some(answer));
        }))?;
        all.insert(name, answer.clone());
        Ok(answer)
    }
}

/// Removes the pending look-up when dropped, also by a panic.
struct LookupEnd(&'static Lookups, (String, u16));

impl Drop for LookupEnd {
    fn drop(&mut self) {
        self.0.under_way().remove(&self.1);
    }
}

/// Starts a thread for a call that may block for a long time. Neither the runtime nor the process waits for its end.
pub(super) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// Runs a call that may block for a long time on a thread of its own.
pub(super) async fn beside<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let (sender, done) = oneshot::channel();
    start("artillery-read", move || drop(sender.send(work())))?;
    done.await.unwrap_or_else(|_| Err(io::Error::other("the call has panicked")))
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    };

    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_resolver_without_an_answer_costs_one_thread_for_each_name() {
        let asked = Arc::new(AtomicUsize::new(0));
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let look_up = |after| {
            let (asked, held) = (asked.clone(), held.clone());
            LOOKUPS.look_up_by("silent.example", 7400, after, move |_, port| {
                asked.fetch_add(1, Ordering::SeqCst);
                let _ = held.lock().unwrap_or_else(PoisonError::into_inner).recv();
                Ok(vec![([10, 0, 0, 1], port).into(), ([10, 0, 0, 1], port).into()])
            })
        };
        for _ in 0..10 {
            let error = look_up(Duration::from_millis(5)).await.unwrap_err();
            assert!(matches!(error, ResolveError::Timeout { .. }), "{error}");
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        // From here on, no look-up blocks.
        drop(release);
        let found = look_up(LONG).await;
        assert_eq!(found.unwrap(), ["10.0.0.1:7400".parse().unwrap()], "each once");
        // Answers are not cached.
        look_up(LONG).await.unwrap();
        assert!(asked.load(Ordering::SeqCst) >= 2);
    }

    #[tokio::test]
    async fn a_resolver_that_fails_is_an_error_and_asked_again() {
        let fails =
            LOOKUPS.look_up_by("failing.example", 1, LONG, |_, _| Err(io::Error::other("no name server"))).await;
        assert!(fails.unwrap_err().to_string().contains("failing.example:1: no name server"));
        let panics = LOOKUPS.look_up_by("failing.example", 1, LONG, |_, _| panic!("on purpose")).await;
        assert!(matches!(panics, Err(ResolveError::Nothing { .. })), "{panics:?}");
        let finds =
            LOOKUPS.look_up_by("failing.example", 1, LONG, |_, port| Ok(vec![([10, 0, 0, 2], port).into()])).await;
        assert_eq!(finds.unwrap(), ["10.0.0.2:1".parse().unwrap()]);
    }

    #[tokio::test]
    async fn a_thread_that_cannot_be_started_is_an_error_and_holds_up_no_other_look_up() {
        static WITHOUT_THREADS: Lookups = Lookups::new(1, |work| {
            drop(work);
            Err(io::ErrorKind::WouldBlock.into())
        });
        for _ in 0..3 {
            let error = WITHOUT_THREADS.look_up_by("db.example", 1, LONG, |_, _| Ok(Vec::new())).await.unwrap_err();
            assert!(matches!(error, ResolveError::Lookup { .. }), "{error}");
        }
        assert_eq!((WITHOUT_THREADS.under_way().len(), WITHOUT_THREADS.permits.available_permits()), (0, 1));
    }

    #[tokio::test]
    async fn look_ups_beyond_the_bound_wait_within_their_time_limit() {
        static THREE: Lookups = Lookups::new(3, |work| start("artillery-lookup", work));
        let asked = Arc::new(AtomicUsize::new(0));
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let look_up = |name: usize, after| {
            let (asked, held) = (asked.clone(), held.clone());
            async move {
                let host = format!("n{name}.example");
                let resolver = move |_: &str, port| {
                    asked.fetch_add(1, Ordering::SeqCst);
                    let _ = held.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    Ok(vec![([10, 0, 0, 1], port).into()])
                };
                THREE.look_up_by(&host, 7400, after, resolver).await
            }
        };
        for name in 0..20 {
            let error = look_up(name, Duration::from_millis(5)).await.unwrap_err();
            assert!(matches!(error, ResolveError::Timeout { .. }), "{error}");
        }
        assert_eq!(THREE.permits.available_permits(), 0);
        assert_eq!(THREE.under_way().len(), 3);
        let waiting = tokio::spawn(look_up(20, LONG));
        drop(release);
        waiting.await.unwrap().unwrap();
        let _all_have_ended = THREE.permits.acquire_many(3).await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 4, "no resolver is called for an expired caller");
    }

    #[test]
    fn of_more_addresses_than_fit_each_is_taken_at_some_time() {
        let all: Vec<SocketAddr> = (0..40).map(|n| ([10, 0, 0, n], 7400).into()).collect();
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut taken = BTreeSet::new();
        for _ in 0..40 {
            let some = some_of(all.clone(), MAX_ADDRS, |below| random.random_range(0..below));
            assert!(some.len() == MAX_ADDRS && some.is_sorted(), "the order is kept: {some:?}");
            taken.extend(some);
        }
        assert_eq!(taken.len(), all.len());
        assert_eq!(some_of(all[..16].to_vec(), MAX_ADDRS, |_| unreachable!()), all[..16]);
    }
}
