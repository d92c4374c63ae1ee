//! Callers that wait for orders and then call.

use std::{
    ops::Range,
    pin::Pin,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use artillery_core::{Timestamp, internal::clock};
use tokio::{
    runtime::{Builder, Handle},
    sync::{mpsc, oneshot},
    task::JoinSet,
};

use super::{
    Failed,
    book::{Book, Turn},
    lines::{Blocking, Line},
    stats::{Tally, Window},
};

/// The orders to all callers.
#[derive(Debug, Clone, Copy)]
pub struct Orders {
    /// Percentage of reads. The other operations are writes.
    pub reads_percent: u32,
    /// The seed of random choices.
    pub seed: u64,
    /// The time of the sample.
    pub window: Window,
}

impl Orders {
    fn turn(&self, writer: usize, writers: usize) -> Turn {
        Turn { writer, writers, reads_percent: self.reads_percent, seed: self.seed, window: self.window }
    }
}

/// Callers of one system.
pub trait Crew {
    /// Adds callers until there are `callers`.
    fn grow(&mut self, callers: u32) -> Result<(), Failed>;

    /// Runs all callers for one sample.
    fn sample(&mut self, orders: Orders) -> Result<Tally, Failed>;
}

/// How long an answer may be overdue before it is treated as lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for the result of another thread.
fn wait<T>(found: &Receiver<Result<T, Failed>>, orders: Option<&Orders>) -> Result<T, Failed> {
    wait_until(found, orders.map_or(Timestamp::ZERO, |orders| orders.window.until))
}

/// Waits for the result of another thread, which is busy until `until`.
pub fn wait_until<T>(found: &Receiver<Result<T, Failed>>, until: Timestamp) -> Result<T, Failed> {
    let busy = until.saturating_since(clock::now());
    found.recv_timeout(busy + PATIENCE).map_err(|error| match error {
        RecvTimeoutError::Timeout => Failed::from("a caller doesn't return"),
        RecvTimeoutError::Disconnected => Failed::from("a caller has ended"),
    })?
}

type Make = Arc<dyn Fn() -> Result<Box<dyn Blocking>, Failed> + Send + Sync>;

/// Threads with one call at a time each.
pub struct Threads {
    book: Arc<Book>,
    make: Make,
    threads: Vec<Thread>,
}

struct Thread {
    /// Sends turns to the thread, which ends when this is dropped.
    turns: Option<mpsc::Sender<Turn>>,
    /// The results of the thread. `None`: the thread has connected.
    found: Receiver<Result<Option<Tally>, Failed>>,
    thread: Option<JoinHandle<()>>,
}

impl Threads {
    /// No threads yet. Each will call through its own result of `make`.
    pub fn new(book: Arc<Book>, make: impl Fn() -> Result<Box<dyn Blocking>, Failed> + Send + Sync + 'static) -> Self {
        Self { book, make: Arc::new(make), threads: Vec::new() }
    }
}

impl Crew for Threads {
    fn grow(&mut self, callers: u32) -> Result<(), Failed> {
        let there = self.threads.len();
        for _ in there..callers as usize {
            self.threads.push(Thread::start(self.book.clone(), self.make.clone())?);
        }
        self.threads[there..].iter().try_for_each(|thread| wait(&thread.found, None).map(drop))
    }

    fn sample(&mut self, orders: Orders) -> Result<Tally, Failed> {
        let writers = self.threads.len();
        for (writer, thread) in self.threads.iter().enumerate() {
            let turns = thread.turns.as_ref().ok_or("a caller has ended")?;
            turns.blocking_send(orders.turn(writer, writers))?;
        }
        let mut all = Tally::new()?;
        for thread in &self.threads {
            all.add(&wait(&thread.found, Some(&orders))?.ok_or("a caller has counted nothing")?)?;
        }
        Ok(all)
    }
}

impl Thread {
    fn start(book: Arc<Book>, make: Make) -> Result<Self, Failed> {
        let (turns, mut orders) = mpsc::channel(1);
        let (finds, found) = sync_channel(1);
        let run = move || {
            let failed = follow(&book, &make, &mut orders, &finds).err();
            // The receiver may have been dropped.
            let _ = failed.map(|failed| finds.send(Err(failed)));
        };
        let thread = thread::Builder::new().name("caller".into()).stack_size(1 << 20).spawn(run)?;
        Ok(Self { turns: Some(turns), found, thread: Some(thread) })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.turns = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn follow(
    book: &Book,
    make: &Make,
    orders: &mut mpsc::Receiver<Turn>,
    finds: &SyncSender<Result<Option<Tally>, Failed>>,
) -> Result<(), Failed> {
    let mut line = make()?;
    finds.send(Ok(None))?;
    while let Some(turn) = line.rest(orders) {
        let (window, mut tally) = (turn.window, Tally::new()?);
        let mut asks = book.asks(turn);
        let mut before = clock::now();
        while before < window.until {
            let ask = asks.next_ask();
            line.call(ask)?;
            let after = clock::now();
            tally.note(ask.is_read(), before, after, &window);
            before = after;
        }
        finds.send(Ok(Some(tally)))?;
    }
    Ok(())
}

/// A runtime that is always driven, by one or several dedicated threads.
pub struct Driver {
    handle: Handle,
    /// Dropping it stops the runtime.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    /// Starts a runtime with `workers` threads besides its own; 0: a current-thread runtime.
    pub fn start(workers: usize) -> Result<Self, Failed> {
        Self::start_where(workers, || Ok(()))
    }

    /// Like [`start`](Self::start), but its thread first calls `enter`, which may move it, for example to a network
    /// namespace.
    pub fn start_where(
        workers: usize,
        enter: impl FnOnce() -> Result<(), Failed> + Send + 'static,
    ) -> Result<Self, Failed> {
        let mut builder = if workers == 0 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
        builder.worker_threads(workers.max(1)).enable_all();
        let (stop, stopped) = oneshot::channel::<()>();
        let (finds, found) = sync_channel(1);
        let run = move || {
            // The threads of a runtime start in the namespace of the thread that builds it.
            let made = enter().and_then(|()| Ok(builder.build()?));
            match made {
                Ok(runtime) => {
                    let _ = finds.send(Ok(runtime.handle().clone()));
                    drop(runtime.block_on(stopped));
                }
                Err(failed) => drop(finds.send(Err(failed))),
            }
        };
        let thread = thread::Builder::new().name("driver".into()).spawn(run)?;
        Ok(Self { handle: wait(&found, None)?, stop: Some(stop), thread: Some(thread) })
    }

    /// The handle with which tasks are spawned.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs a future on the runtime, and waits for its result.
    pub fn run<T: Send + 'static>(
        &self,
        what: impl Future<Output = Result<T, Failed>> + Send + 'static,
    ) -> Result<T, Failed> {
        wait(&self.begin(what), None)
    }

    /// Runs a future on the runtime, and returns the receiver of its result.
    pub fn begin<T: Send + 'static>(
        &self,
        what: impl Future<Output = Result<T, Failed>> + Send + 'static,
    ) -> Receiver<Result<T, Failed>> {
        let (finds, found) = sync_channel(1);
        self.handle.spawn(async move { drop(finds.send(what.await)) });
        found
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Processes the keys below `keys`: a task for each of `firsts` continues from there in steps of `step`.
pub async fn spread<F: Future<Output = Result<(), Failed>> + Send>(
    firsts: Range<usize>,
    step: usize,
    keys: usize,
    what: impl Fn(usize) -> F + Clone + Send + 'static,
) -> Result<(), Failed> {
    let mut tasks = JoinSet::new();
    for first in firsts {
        let what = what.clone();
        tasks.spawn(async move {
            for at in (first..keys).step_by(step) {
                what(at).await?;
            }
            Ok(())
        });
    }
    join(tasks).await
}

/// Waits for all tasks, or for the first one that fails.
pub async fn join(mut tasks: JoinSet<Result<(), Failed>>) -> Result<(), Failed> {
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// Creates the line of a caller, in the runtime that will drive it.
pub type MakeLine<L> = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<L, Failed>> + Send>>>;

/// Tasks with one call at a time each, distributed evenly over several runtimes.
pub struct Tasks<L> {
    book: Arc<Book>,
    parts: Vec<Part<L>>,
}

struct Part<L> {
    make: MakeLine<L>,
    lines: Vec<L>,
    /// Dropped last: lines may need it until they end.
    driver: Arc<Driver>,
}

impl<L: Line> Tasks<L> {
    /// No tasks yet, on these runtimes.
    pub fn new(book: Arc<Book>, parts: impl IntoIterator<Item = (Arc<Driver>, MakeLine<L>)>) -> Self {
        let part = |(driver, make)| Part { make, lines: Vec::new(), driver };
        Self { book, parts: parts.into_iter().map(part).collect() }
    }
}

impl<L: Line> Crew for Tasks<L> {
    fn grow(&mut self, callers: u32) -> Result<(), Failed> {
        let parts = self.parts.len();
        for (n, part) in self.parts.iter_mut().enumerate() {
            while part.lines.len() < (callers as usize + n) / parts {
                part.lines.push(part.driver.run((part.make)())?);
            }
        }
        Ok(())
    }

    fn sample(&mut self, orders: Orders) -> Result<Tally, Failed> {
        let (mut writer, writers) = (0, self.parts.iter().map(|part| part.lines.len()).sum());
        let mut begun = Vec::with_capacity(writers);
        for (n, part) in self.parts.iter_mut().enumerate() {
            for line in part.lines.drain(..) {
                let (book, turn) = (self.book.clone(), orders.turn(writer, writers));
                begun.push((n, part.driver.begin(async move { work(line, &book, turn).await })));
                writer += 1;
            }
        }
        let mut all = Tally::new()?;
        for (n, found) in begun {
            let (line, tally) = wait(&found, Some(&orders))?;
            all.add(&tally)?;
            self.parts[n].lines.push(line);
        }
        Ok(all)
    }
}

async fn work<L: Line>(mut line: L, book: &Book, turn: Turn) -> Result<(L, Tally), Failed> {
    let (window, mut tally) = (turn.window, Tally::new()?);
    let mut asks = book.asks(turn);
    let mut before = clock::now();
    while before < window.until {
        let ask = asks.next_ask();
        line.call(ask).await?;
        let after = clock::now();
        tally.note(ask.is_read(), before, after, &window);
        before = after;
    }
    Ok((line, tally))
}
