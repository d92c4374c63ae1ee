//! Turns a periodically read list into candidates. [`Listing`] decides on changes and does no I/O.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_core::Stream;
use tokio::time::{Sleep, sleep, timeout};

use super::{Candidate, Candidates, Discovery, Seed, Source, lookup};

pub(super) const MAX_PLACES: usize = 256;

/// A place is withdrawn once it is missing from this number of successive lists: a file may be half written, and a name
/// server may return only some of the addresses.
pub(super) const LOOKS_UNTIL_GONE: u32 = 3;

/// Time limit for one answer of the function of a [`PolledDiscovery`].
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Minimum pause between two reads.
const MIN_PERIOD: Duration = Duration::from_millis(100);

/// Derives changes from the successive lists of one source.
pub(super) struct Listing {
    source: Source,
    /// The current places in the order of discovery, each with the number of successive lists that omitted it.
    places: Vec<(Seed, u32)>,
    failed: bool,
}

impl Listing {
    pub(super) fn new(source: Source) -> Self {
        Self { source, places: Vec::new(), failed: false }
    }

    /// Applies a list, and returns the changes. At most [`MAX_PLACES`] are kept: known ones first, since the order of
    /// lists may vary.
    pub(super) fn on_list(&mut self, list: impl IntoIterator<Item = Seed>) -> Vec<Candidate> {
        self.failed = false;
        let known: BTreeMap<_, _> =
            self.places.iter().enumerate().map(|(at, (place, _))| (place.clone(), at)).collect();
        self.places.iter_mut().for_each(|(_, missed)| *missed += 1);
        let (mut fresh, mut in_turn) = (BTreeSet::new(), Vec::new());
        for place in list {
            if let Some(&at) = known.get(&place) {
                self.places[at].1 = 0;
            } else if fresh.len() < MAX_PLACES && fresh.insert(place.clone()) {
                in_turn.push(place);
            }
        }
        let mut news = Vec::new();
        self.places.retain(|(place, missed)| {
            let stays = *missed < LOOKS_UNTIL_GONE;
            if !stays {
                news.push(Candidate::at(self.source.clone(), place).withdrawn());
            }
            stays
        });
        for place in in_turn.into_iter().take(MAX_PLACES - self.places.len()) {
            news.push(Candidate::at(self.source.clone(), &place));
            self.places.push((place, 0));
        }
        news
    }

    /// Logs a failed read: the first of a series as a warning. All places stay.
    pub(super) fn on_failure(&mut self, why: &str) {
        if self.failed {
            tracing::debug!(source = %self.source, why, "cannot read a list of addresses");
        } else {
            tracing::warn!(source = %self.source, why, known = self.places.len(), "cannot read a list of addresses");
        }
        self.failed = true;
    }
}

pub(super) type ListAnswer = Result<Vec<Seed>, String>;

type AskedList = Pin<Box<dyn Future<Output = ListAnswer> + Send>>;

/// A stream of the changes between the lists that `ask` returns. It pauses for `period` (at least [`MIN_PERIOD`]) after
/// each list or failure, and never ends.
pub(super) fn follow<F>(source: Source, period: Duration, mut ask: impl FnMut() -> F + Send + 'static) -> Candidates
where
    F: Future<Output = ListAnswer> + Send + 'static,
{
    let ask = Box::new(move || Box::pin(ask()) as AskedList);
    let (period, listing) = (period.max(MIN_PERIOD), Listing::new(source));
    Box::pin(FollowedList { ask, period, listing, news: VecDeque::new(), step: FollowStep::Ask })
}

struct FollowedList {
    ask: Box<dyn FnMut() -> AskedList + Send>,
    period: Duration,
    listing: Listing,
    news: VecDeque<Candidate>,
    step: FollowStep,
}

enum FollowStep {
    Ask,
    Asked(AskedList),
    Pause(Pin<Box<Sleep>>),
}

impl Stream for FollowedList {
    type Item = Candidate;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Candidate>> {
        let this = &mut *self;
        loop {
            if let Some(candidate) = this.news.pop_front() {
                return Poll::Ready(Some(candidate));
            }
            this.step = match &mut this.step {
                FollowStep::Ask => FollowStep::Asked((this.ask)()),
                FollowStep::Asked(asked) => {
                    match ready!(asked.as_mut().poll(context)) {
                        Ok(list) => this.news.extend(this.listing.on_list(list)),
                        Err(why) => this.listing.on_failure(&why),
                    }
                    FollowStep::Pause(Box::pin(sleep(this.period)))
                }
                FollowStep::Pause(pause) => {
                    ready!(pause.as_mut().poll(context));
                    FollowStep::Ask
                }
            }
        }
    }
}

/// The addresses of a host name, resolved every 5 s by default. At most 256 are used. For a name that resolves to all
/// nodes, like that of a headless service in Kubernetes. Each address becomes a candidate of its own, whereas a
/// [`Seed`] leads to just one of them.
///
/// An address is withdrawn once three successive answers omit it. While the name cannot be resolved, all addresses
/// stay.
#[derive(Debug, Clone)]
pub struct DnsDiscovery {
    name: Seed,
    period: Duration,
}

impl DnsDiscovery {
    /// Yields the addresses of this name, with its port.
    pub fn new(name: Seed) -> Self {
        Self { name, period: Duration::from_secs(5) }
    }

    /// Changes the pause between two look-ups (at least 100 ms).
    pub fn every(self, period: Duration) -> Self {
        Self { period, ..self }
    }
}

impl Discovery for DnsDiscovery {
    fn candidates(&self) -> Candidates {
        let name = self.name.clone();
        follow(Source::Dns(name.to_string()), self.period, move || {
            let name = name.clone();
            async move {
                let Some((host, port)) = name.host() else { return Ok(vec![name]) };
                // Uses all addresses: one that a random selection omits would be treated as missing.
                let found = lookup::look_up_all(host, port).await.map_err(|error| error.to_string())?;
                Ok(found.into_iter().map(Seed::from).collect())
            }
        })
    }
}

/// The places returned by a function: the simplest custom source, for example for a service registry.
///
/// The function is called periodically. When it fails, or takes longer than 10 s, all places stay. A place is withdrawn
/// once it is missing from three successive lists. At most 256 places of a list are used.
///
/// ```
/// use std::time::Duration;
///
/// use artillery_core::discovery::{PolledDiscovery, Seed};
///
/// async fn ask_registry() -> Result<Vec<Seed>, std::io::Error> {
///     Ok(vec![Seed::from(std::net::SocketAddr::from(([10, 0, 0, 5], 7400)))])
/// }
///
/// let source = PolledDiscovery::new("registry", Duration::from_secs(5), ask_registry);
/// ```
pub struct PolledDiscovery {
    name: String,
    period: Duration,
    ask: std::sync::Arc<dyn Fn() -> AskedList + Send + Sync>,
}

impl PolledDiscovery {
    /// Creates a source with this name, which calls `ask` at once, and again after a pause of `period` (at least 100
    /// ms).
    pub fn new<F, E>(name: impl Into<String>, period: Duration, ask: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Vec<Seed>, E>> + Send + 'static,
        E: fmt::Display + 'static,
    {
        let ask = move || Box::pin(within(ANSWER_TIMEOUT, ask())) as AskedList;
        Self { name: name.into(), period, ask: std::sync::Arc::new(ask) }
    }
}

async fn within<E: fmt::Display>(limit: Duration, asked: impl Future<Output = Result<Vec<Seed>, E>>) -> ListAnswer {
    match timeout(limit, asked).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {limit:?}")),
    }
}

impl fmt::Debug for PolledDiscovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolledDiscovery")
            .field("name", &self.name)
            .field("period", &self.period)
            .finish_non_exhaustive()
    }
}

impl Discovery for PolledDiscovery {
    fn candidates(&self) -> Candidates {
        let ask = self.ask.clone();
        follow(Source::Other(self.name.clone()), self.period, move || ask())
    }
}

#[cfg(test)]
mod tests;
