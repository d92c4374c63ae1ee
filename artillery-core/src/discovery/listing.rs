//! A list that is read again and again, as candidates. What decides is pure.

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

/// The most places of one list.
pub(super) const MAX_PLACES: usize = 256;

/// A place is withdrawn once it is missing in this number of successive lists: a file may be half written, a name server may answer with
/// some of the addresses.
pub(super) const LOOKS_UNTIL_GONE: u32 = 3;

/// How long one answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The shortest time between two questions.
const MIN_PERIOD: Duration = Duration::from_millis(100);

/// What follows from the lists of one source.
pub(super) struct Listing {
    source: Source,
    /// The present places, in the order in which they were found, and how many lists in succession have lacked each.
    places: Vec<(Seed, u32)>,
    /// The last list failed.
    failed: bool,
}

impl Listing {
    pub(super) fn new(source: Source) -> Self {
        Self { source, places: Vec::new(), failed: false }
    }

    /// The news in a list. Places beyond [`MAX_PLACES`] are left out, the known ones last: the order may differ each time.
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

    /// There is no list now: the places stay.
    pub(super) fn on_failure(&mut self, why: &str) {
        if self.failed {
            tracing::debug!(source = %self.source, why, "a list of addresses can't be read");
        } else {
            tracing::warn!(source = %self.source, why, known = self.places.len(), "a list of addresses can't be read");
        }
        self.failed = true;
    }
}

/// A list, or why there is none.
pub(super) type ListAnswer = Result<Vec<Seed>, String>;

type AskedList = Pin<Box<dyn Future<Output = ListAnswer> + Send>>;

/// A stream over the news in the lists that `ask` returns, one each period. It never ends.
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

/// The addresses of a host name, looked up every 5 s: for a name that has the addresses of all nodes, as a headless service of
/// Kubernetes has. Each address is a candidate of its own, where a [`Seed`] leads to one of them.
///
/// An address is withdrawn once it is missing in three successive answers. While the name can't be looked up, all stay.
#[derive(Debug, Clone)]
pub struct DnsDiscovery {
    name: Seed,
    period: Duration,
}

impl DnsDiscovery {
    /// The addresses of this name, with this port.
    pub fn new(name: Seed) -> Self {
        Self { name, period: Duration::from_secs(5) }
    }

    /// Looks up so often (at least 100 ms apart).
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
                // All addresses: one that is left out would be treated as missing.
                let found = lookup::look_up_all(host, port).await.map_err(|error| error.to_string())?;
                Ok(found.into_iter().map(Seed::from).collect())
            }
        })
    }
}

/// Places that a function returns: the shortest way to an own source, for example a registry of services.
///
/// The function is called again and again. When it fails, or takes longer than 10 s, all places stay; a place is withdrawn once it is missing in three
/// successive lists. Of one list, 256 places are used.
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
    /// A source of this name, which calls `ask` at once and then each period (at least 100 ms).
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
