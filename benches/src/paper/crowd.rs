//! The clients of one chain, each in a network namespace.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use artillery_core::internal::clock;
use artillery_ddata::{Client, NodeId, Place};
use bytes::Bytes;
use tokio::task::JoinSet;

use super::{
    chain::{Chain, Lab},
    load::{Caller, Line, Work},
    tally::Tally,
};
use crate::throughput::{
    Failed,
    book::Book,
    crew::{Driver, join, spread, wait_until},
    processes::Contact,
    results::System,
    stats::Window,
};

/// Time within which a client connects to the member that will serve all its reads.
const SETTLING_TIME: Duration = Duration::from_millis(150);

/// Maximum number of clients that are tried per seat.
const MAX_TRIES: usize = 40;

/// Callers at each client that fill the keys, or verify their last values.
const FILLERS: usize = 16;

/// A client and the member that serves its reads.
struct Seat {
    driver: Arc<Driver>,
    client: Client,
    node: NodeId,
    place: Place,
}

/// The clients of one chain.
pub struct Crowd {
    seats: Vec<Seat>,
    copies: u32,
    /// Whether errors are counted instead of ending the run.
    pub tolerant: bool,
    /// How often each client refreshes its routing. A client whose calls all succeed would not discover new members.
    pub refresh: Option<Duration>,
}

impl Crowd {
    /// Connects `per_member` clients for each member. In CRAQ that many read at each member; in CR all read at the
    /// tail.
    ///
    /// # Errors
    /// A client can't connect, or no client chooses one of the members.
    pub fn gather(lab: &Lab, chain: &Chain, per_member: usize) -> Result<Self, Failed> {
        let wanted = per_member * chain.members();
        let most = if chain.system == System::Cr { wanted } else { per_member };
        let mut seats: Vec<Seat> = Vec::new();
        for attempt in 0..MAX_TRIES * wanted {
            if seats.len() == wanted {
                return Ok(Self { seats, copies: chain.members() as u32, tolerant: false, refresh: None });
            }
            let driver = lab.driver(seats.len())?.clone();
            let (contact, at) = (chain.contact.clone(), attempt % chain.members());
            let is_settled = chain.readable_members() == 1;
            let (client, node, place) = driver.run(async move { sticky(&contact, at, is_settled).await })?;
            if seats.iter().filter(|seat| seat.node == node).count() < most {
                seats.push(Seat { driver, client, node, place });
            } else {
                driver.run(async move {
                    client.close().await;
                    Ok(())
                })?;
            }
        }
        Err("clients never choose some of the members".into())
    }

    /// The number of clients.
    pub fn clients(&self) -> usize {
        self.seats.len()
    }

    /// The first client whose reads are served by a member at this place.
    pub fn at(&self, place: Place) -> Option<usize> {
        self.seats.iter().position(|seat| seat.place == place)
    }

    /// `callers` reading callers, distributed over all clients.
    pub fn readers(&self, callers: usize) -> Vec<(usize, Caller)> {
        let reader = |number| (number % self.clients().max(1), Caller { work: Work::Read, number, writers: 1 });
        (0..callers).map(reader).collect()
    }

    /// `writers` writing callers, distributed over all clients. Together they make `per_second` writes per second.
    pub fn writers(&self, writers: usize, per_second: Option<f64>) -> Vec<(usize, Caller)> {
        let work = Work::Write { per_second: per_second.map(|all| all / writers.max(1) as f64) };
        (0..writers).map(|number| (number % self.clients().max(1), Caller { work, number, writers })).collect()
    }

    /// Runs the callers at their clients until the window ends.
    pub fn run(&self, book: &Arc<Book>, window: Window, jobs: &[(usize, Caller)]) -> Result<Tally, Failed> {
        self.run_beside(book, window, jobs, (book, &[]))
    }

    /// Like [`run`](Self::run), concurrently with other callers that aren't counted.
    pub fn run_beside(
        &self,
        book: &Arc<Book>,
        window: Window,
        jobs: &[(usize, Caller)],
        (others_book, others): (&Arc<Book>, &[(usize, Caller)]),
    ) -> Result<Tally, Failed> {
        let mut begun = Vec::new();
        for (number, seat) in self.seats.iter().enumerate() {
            let line = self.line(seat, book, window)?;
            let uncounted = self.line(seat, others_book, window)?;
            let tally = line.tally.clone();
            let refresh = self.refresh.map(|every| refresh_on(seat.client.clone(), every, window));
            let of_seat = |jobs: &[(usize, Caller)], line: &Line| {
                let callers = jobs.iter().filter(|(at, _)| *at == number);
                callers.map(|(_, caller)| (*caller, line.clone())).collect::<Vec<_>>()
            };
            let callers = [of_seat(jobs, &line), of_seat(others, &uncounted)].concat();
            begun.push(seat.driver.begin(async move {
                work_together(callers, refresh).await?;
                let tally = tally.lock().unwrap_or_else(PoisonError::into_inner).clone();
                Ok(tally)
            }));
        }
        let mut all = Tally::new(window)?;
        for found in begun {
            all.add(&wait_until(&found, window.until)?)?;
        }
        Ok(all)
    }

    fn line(&self, seat: &Seat, book: &Arc<Book>, window: Window) -> Result<Line, Failed> {
        let tally = Arc::new(Mutex::new(Tally::new(window)?));
        let (kv, book, copies, tolerant) = (seat.client.kv(), book.clone(), self.copies, self.tolerant);
        Ok(Line { kv, book, copies, window, tolerant, tally })
    }

    /// Gives every key a value.
    pub fn fill(&self, book: &Arc<Book>) -> Result<(), Failed> {
        self.for_each_key(book, |line, at| async move { line.write(at).await.map(drop) })
    }

    /// Checks that every key holds its last written value.
    pub fn verify(&self, book: &Arc<Book>) -> Result<(), Failed> {
        self.for_each_key(book, |line, at| async move { line.read(at).await })
    }

    fn for_each_key<F: Future<Output = Result<(), Failed>> + Send + 'static>(
        &self,
        book: &Arc<Book>,
        what: impl Fn(Line, usize) -> F + Clone + Send + 'static,
    ) -> Result<(), Failed> {
        let (now, step) = (clock::now(), self.clients() * FILLERS);
        let mut begun = Vec::new();
        for (number, seat) in self.seats.iter().enumerate() {
            let line = self.line(seat, book, Window { from: now, until: now })?;
            let (what, keys, first) = (what.clone(), book.keys(), number * FILLERS);
            let all = spread(first..first + FILLERS, step, keys, move |at| what(line.clone(), at));
            begun.push(seat.driver.begin(all));
        }
        begun.iter().try_for_each(|found| wait_until(found, clock::now()))
    }
}

async fn work_together(
    callers: Vec<(Caller, Line)>,
    refresh: Option<impl Future<Output = Result<(), Failed>> + Send + 'static>,
) -> Result<(), Failed> {
    let mut tasks = JoinSet::new();
    refresh.map(|refresh| tasks.spawn(refresh));
    for (caller, line) in callers {
        tasks.spawn(caller.work(line));
    }
    join(tasks).await
}

/// Refreshes the routing at intervals. A failed refresh is retried at the next one.
async fn refresh_on(client: Client, every: Duration, window: Window) -> Result<(), Failed> {
    let mut pace = tokio::time::interval(every);
    while clock::now() < window.until {
        pace.tick().await;
        let _ = client.refresh(every).await;
    }
    Ok(())
}

async fn connect(contact: &Contact, at: usize) -> Result<Client, Failed> {
    let seed = *contact.addrs.get(at).ok_or("there is no such node")?;
    let client = Client::builder().cluster(&contact.name).secret(&contact.secret);
    Ok(client.seed(seed).connect().await?)
}

/// A client, and the member that will serve all its reads.
async fn sticky(contact: &Contact, at: usize, is_settled: bool) -> Result<(Client, NodeId, Place), Failed> {
    let client = connect(contact, at).await?;
    let until = clock::now() + SETTLING_TIME;
    let (first, mut place) = server(&client).await?;
    let mut node = first;
    // The member that was dialled first serves the reads until the chosen one is connected.
    while node == first && !is_settled && clock::now() < until {
        (node, place) = server(&client).await?;
    }
    Ok((client, node, place))
}

async fn server(client: &Client) -> Result<(NodeId, Place), Failed> {
    let served = client.kv().get(&Bytes::from_static(b"absent")).await?.served;
    Ok((served.node, served.place))
}
