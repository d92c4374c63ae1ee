//! Looks host names up, with a bound on the time and on the threads.

use std::{
    collections::BTreeMap,
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tokio::{
    sync::{oneshot, watch},
    time::timeout,
};

use super::ResolveError;

/// The longest wait for the resolver.
pub(super) const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// The answer of the resolver, once it is known.
type Answer = Option<Result<Vec<SocketAddr>, (io::ErrorKind, String)>>;

/// The pending look-ups of this process, by name and port. A resolver may need far longer than [`LOOKUP_TIMEOUT`] for an
/// answer, and a name is looked up again and again: there is one thread for each name.
static UNDER_WAY: Mutex<BTreeMap<(String, u16), watch::Receiver<Answer>>> = Mutex::new(BTreeMap::new());

fn under_way() -> MutexGuard<'static, BTreeMap<(String, u16), watch::Receiver<Answer>>> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The addresses of a host, each once, in the resolver's order.
pub(super) async fn look_up(host: &str, port: u16) -> Result<Vec<SocketAddr>, ResolveError> {
    look_up_by(host, port, LOOKUP_TIMEOUT, |host, port| Ok((host, port).to_socket_addrs()?.collect())).await
}

async fn look_up_by(
    host: &str,
    port: u16,
    after: Duration,
    resolver: impl FnOnce(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> Result<Vec<SocketAddr>, ResolveError> {
    let name = format!("{host}:{port}");
    let failed = |error| ResolveError::Lookup { host: name.clone(), error };
    let mut answer = begin((host.to_owned(), port), resolver).map_err(failed)?;
    let answered = timeout(after, answer.wait_for(Option::is_some)).await;
    let found = match answered.map_err(|_| ResolveError::Timeout { host: name.clone(), after })? {
        Ok(answer) => answer.clone(),
        // The thread has ended without an answer.
        Err(_) => None,
    };
    let mut addrs = Vec::new();
    for addr in found.unwrap_or_else(|| Ok(Vec::new())).map_err(|(kind, why)| failed(io::Error::new(kind, why)))? {
        if !addrs.contains(&addr) {
            addrs.push(addr);
        }
    }
    if addrs.is_empty() { Err(ResolveError::Nothing { host: name }) } else { Ok(addrs) }
}

/// Joins the pending look-up of this name, or begins one.
fn begin(
    name: (String, u16),
    resolver: impl FnOnce(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> io::Result<watch::Receiver<Answer>> {
    let mut all = under_way();
    if let Some(running) = all.get(&name) {
        return Ok(running.clone());
    }
    let (sender, answer) = watch::channel(None);
    let ends = LookupEnd(name.clone());
    start("artillery-lookup", move || {
        let answer = resolver(&ends.0.0, ends.0.1).map_err(|error| (error.kind(), error.to_string()));
        // The next look-up of this name must be a new one once this answer is known.
        drop(ends);
        sender.send_replace(Some(answer));
    })?;
    all.insert(name, answer.clone());
    Ok(answer)
}

/// Dropped: the look-up is over, also by a panic.
struct LookupEnd((String, u16));

impl Drop for LookupEnd {
    fn drop(&mut self) {
        under_way().remove(&self.0);
    }
}

/// Starts a thread for a call that may block for long. The end of a runtime, or of the process, doesn't wait for it.
pub(super) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// The result of a call that may block for long.
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

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_resolver_without_an_answer_costs_one_thread_for_each_name() {
        let asked = Arc::new(AtomicUsize::new(0));
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let look_up = |after| {
            let (asked, held) = (asked.clone(), held.clone());
            look_up_by("silent.example", 7400, after, move |_, port| {
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
        // From here on, no look-up waits.
        drop(release);
        let found = look_up(LONG).await;
        assert_eq!(found.unwrap(), ["10.0.0.1:7400".parse().unwrap()], "each once");
        // An answer is not kept.
        look_up(LONG).await.unwrap();
        assert!(asked.load(Ordering::SeqCst) >= 2);
    }

    #[tokio::test]
    async fn a_resolver_that_fails_is_an_error_and_asked_again() {
        let fails = look_up_by("failing.example", 1, LONG, |_, _| Err(io::Error::other("no name server"))).await;
        assert!(fails.unwrap_err().to_string().contains("failing.example:1: no name server"));
        let panics = look_up_by("failing.example", 1, LONG, |_, _| panic!("on purpose")).await;
        assert!(matches!(panics, Err(ResolveError::Nothing { .. })), "{panics:?}");
        let finds = look_up_by("failing.example", 1, LONG, |_, port| Ok(vec![([10, 0, 0, 2], port).into()])).await;
        assert_eq!(finds.unwrap(), ["10.0.0.2:1".parse().unwrap()]);
    }
}
