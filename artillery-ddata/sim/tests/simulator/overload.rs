//! Ten times too many callers for half a minute of virtual time, on links with a given rate: measures the latency of
//! admitted writes and the bytes queued at the head.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use artillery_proto::{
    ChainId, Sequence, Timestamp, Version,
    api::{Reply, Write},
    message::{ChainFrame, MAX_CHUNK},
    replica::{Gate, ReplicaSettings},
    runner::{ChainRunner, RunnerOutput, WriteLine, WriteRequest},
    store::{MemoryStore, Store},
};
use bytes::Bytes;

use super::small::{FAR, FRAME, FRAMES, MEMBERS, Received, beginning, member, size};

const CHAIN: ChainId = ChainId(0);
const WINDOW: usize = 4 << 20;
/// Bytes of writes that may wait at the head, as in the driver.
const QUEUE: usize = 1 << 20;
/// Every other caller writes large values.
const SIZES: [usize; 2] = [1 << 10, 64 << 10];
const LARGEST: usize = SIZES[1] + 2 * FRAME;

const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLI;
/// Capacity of a link in one direction, in bytes per second.
const RATE: u64 = 12_500_000;
/// Delay of each link in one direction.
const DELAY: u64 = MILLI;
/// Time down the chain and back without load.
const ROUND_TRIP: u64 = 2 * (MEMBERS as u64 - 1) * DELAY;
/// Round trips allowed per operation, in addition to the time for the bytes ahead of it.
const ROUND_TRIPS: u64 = 2;

/// Number of callers that saturate the links. The test checks that ten times as many achieve no higher throughput.
const SATURATING: usize = 32;
/// Under overload, every fourth pair of callers times out after `PATIENCE` and calls again.
const IMPATIENT: usize = 4;
const PATIENCE: u64 = 50 * MILLI;

fn busy(bytes: usize) -> u64 {
    (bytes as u64 * SECOND).div_ceil(RATE)
}

enum Event {
    /// A link is free for the next frame.
    Free(usize, usize),
    Arrive(usize, usize, Box<ChainFrame>),
    /// A call times out.
    Patience(usize, u64),
}

/// One direction between two nodes. Control frames go first.
#[derive(Default)]
struct Link {
    control: Option<ChainFrame>,
    updates: VecDeque<ChainFrame>,
    is_busy: bool,
}

/// A write that waits at the head, or to be admitted there.
struct Call {
    caller: usize,
    number: u64,
    write: Write,
    bytes: usize,
    accepted: Option<Accepted>,
}

/// The load ahead of a write when it was admitted, including the write itself.
#[derive(Clone, Copy)]
struct Accepted {
    at: u64,
    bytes: usize,
    writes: usize,
}

impl Accepted {
    /// The time that the write may take. Window and queue bound the bytes ahead of it. All of them pass one link, and
    /// each further link starts one frame later.
    fn allowed(&self) -> u64 {
        let bytes = self.bytes.min(WINDOW + LARGEST + QUEUE);
        let frames = 2 * self.writes * FRAME;
        busy(bytes + frames + (MEMBERS - 1) * (MAX_CHUNK + LARGEST)) + ROUND_TRIPS * ROUND_TRIP
    }
}

#[derive(Default, Clone)]
struct Caller {
    number: u64,
    acknowledged: Option<(u64, Version)>,
}

#[derive(Default, Debug)]
struct Figures {
    latencies: Vec<u64>,
    bytes: usize,
    given_up: usize,
    /// The maximum share of its allowed time that an operation took, in percent.
    most: u64,
    window: usize,
    queue: usize,
}

struct World {
    clock: u64,
    chain: Vec<ChainRunner<u64>>,
    stores: Vec<Arc<MemoryStore>>,
    links: BTreeMap<(usize, usize), Link>,
    events: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    callers: Vec<Caller>,
    calling: usize,
    /// Calls whose writes the head has not admitted yet, in order of arrival.
    line: VecDeque<Call>,
    queue: VecDeque<Call>,
    queued: usize,
    /// By token: the call of a write in progress, and the load ahead of it when it left the queue.
    under_way: BTreeMap<u64, (Call, Accepted)>,
    tokens: u64,
    figures: Figures,
}

impl World {
    fn new(callers: usize) -> Self {
        let stores: Vec<_> = (0..MEMBERS).map(|_| Arc::new(MemoryStore::with_seed(1))).collect();
        let runner = |n: usize| {
            let settings =
                ReplicaSettings { window: WINDOW, backlog: 16 << 20, resend: None, ..ReplicaSettings::default() };
            ChainRunner::new(member(n), CHAIN, settings, stores[n].clone(), Arc::new(Gate::new(CHAIN)))
        };
        let mut world = Self {
            clock: 1,
            chain: (0..MEMBERS).map(runner).collect(),
            stores: stores.clone(),
            links: BTreeMap::new(),
            events: BTreeMap::new(),
            scheduled: 0,
            callers: vec![Caller::default(); callers + 1],
            calling: 0,
            line: VecDeque::new(),
            queue: VecDeque::new(),
            queued: 0,
            under_way: BTreeMap::new(),
            tokens: 0,
            figures: Figures::default(),
        };
        for n in 0..MEMBERS {
            world.take(n, beginning(n, CHAIN));
        }
        world.run(|_| false);
        world
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.scheduled += 1;
        self.events.insert((at, self.scheduled), event);
    }

    fn take(&mut self, n: usize, mut turn: Received) {
        let now = Timestamp::from_nanos(self.clock);
        self.chain[n].take(|| now, &mut turn, |_| None);
        while let Some(output) = self.chain[n].poll_output() {
            if let RunnerOutput::Reply(caller, reply) = output {
                self.answered(caller, &reply);
            }
        }
        while self.chain[n].poll_word().is_some() {}
    }

    fn call(&mut self, caller: usize) {
        let known = &mut self.callers[caller];
        known.number += 1;
        let (key, number) = (Bytes::from(format!("overload/{caller}")), known.number);
        let value = Bytes::from(number.to_be_bytes().repeat(SIZES[caller % SIZES.len()] / 8));
        let bytes = FRAME + key.len() + value.len();
        self.line.push_back(Call { caller, number, write: Write::put(key, value), bytes, accepted: None });
        if (caller / SIZES.len()).is_multiple_of(IMPATIENT) && self.calling > SATURATING {
            self.schedule(self.clock + PATIENCE, Event::Patience(caller, number));
        }
    }

    fn gives_up(&mut self, caller: usize, number: u64) {
        let known = &self.callers[caller];
        if caller >= self.calling || known.number != number || known.acknowledged.is_some_and(|(n, _)| n == number) {
            return;
        }
        // An admitted write stays in the queue although its caller no longer waits.
        self.line.retain(|call| call.caller != caller);
        self.figures.given_up += 1;
        self.call(caller);
    }

    /// Admits writes while there is capacity: from the queue into the window, and from the line into the queue.
    fn admit(&mut self) {
        loop {
            if self.chain[0].has_room(WriteLine::Small)
                && let Some(call) = self.queue.pop_front()
            {
                self.queued -= call.bytes;
                self.order(call);
            } else if let Some(first) = self.line.front()
                && self.queued + first.bytes <= QUEUE
                && let Some(mut call) = self.line.pop_front()
            {
                call.accepted = Some(self.in_front(self.queued + call.bytes, self.queue.len() + 1));
                self.queued += call.bytes;
                self.queue.push_back(call);
            } else {
                break;
            }
        }
        self.figures.queue = self.figures.queue.max(self.queued);
        assert!(self.queued <= QUEUE, "{} bytes wait", self.queued);
        for member in &self.chain {
            let window = member.replica().status().in_flight;
            self.figures.window = self.figures.window.max(window);
            assert!(window <= WINDOW + LARGEST, "{window} bytes are in the window");
        }
    }

    fn in_front(&self, bytes: usize, writes: usize) -> Accepted {
        let status = self.chain[0].replica().status();
        Accepted { at: self.clock, bytes: status.in_flight + bytes, writes: status.waiting_writes + writes }
    }

    fn order(&mut self, call: Call) {
        self.tokens += 1;
        let (caller, write) = (self.tokens, call.write.clone());
        let in_window = self.in_front(call.bytes, 1);
        self.under_way.insert(caller, (call, in_window));
        let write = WriteRequest { request: None, history: None, write, deadline: FAR, caller };
        self.take(0, Received { writes: vec![write], ..Received::default() });
    }

    fn answered(&mut self, token: u64, reply: &Reply) {
        let (call, in_window) = self.under_way.remove(&token).expect("each token is used once");
        let Reply::Committed(done) = reply else { panic!("{reply:?} although the window had capacity") };
        for accepted in call.accepted.into_iter().chain([in_window]) {
            let (took, allowed) = (self.clock - accepted.at, accepted.allowed());
            assert!(took <= allowed, "{took} ns with {} bytes in front, {allowed} allowed", accepted.bytes);
            self.figures.most = self.figures.most.max(took * 100 / allowed);
        }
        self.figures.latencies.push(self.clock - call.accepted.map_or(in_window.at, |accepted| accepted.at));
        self.figures.bytes += call.bytes;
        let known = &mut self.callers[call.caller];
        known.acknowledged = Some((call.number, done.version));
        if known.number == call.number && call.caller < self.calling {
            self.call(call.caller);
        }
    }

    fn poll(&mut self) {
        self.admit();
        let now = Timestamp::from_nanos(self.clock);
        for from in 0..MEMBERS {
            for to in (0..MEMBERS).filter(|&to| to != from) {
                let (link, member_of) = (self.links.entry((from, to)).or_default(), &mut self.chain[from]);
                if link.control.is_none() {
                    link.control = member_of.poll_control(now, member(to));
                }
                while link.updates.len() < FRAMES
                    && let Some(frame) = member_of.poll_updates(now, member(to), MAX_CHUNK)
                {
                    link.updates.push_back(frame);
                }
                if link.is_busy {
                    continue;
                }
                if let Some(frame) = link.control.take().or_else(|| link.updates.pop_front()) {
                    link.is_busy = true;
                    let free = self.clock + busy(size(&frame));
                    self.schedule(free, Event::Free(from, to));
                    self.schedule(free + DELAY, Event::Arrive(from, to, Box::new(frame)));
                }
            }
        }
        let now = Timestamp::from_nanos(self.clock);
        self.chain.iter_mut().for_each(|runner| runner.settle(|| now));
    }

    fn run(&mut self, enough: impl Fn(&Self) -> bool) {
        self.poll();
        while !enough(self)
            && let Some(((at, _), event)) = self.events.pop_first()
        {
            self.clock = at;
            match event {
                Event::Free(from, to) => self.links.entry((from, to)).or_default().is_busy = false,
                Event::Arrive(from, to, frame) => {
                    self.take(to, Received { frames: vec![(member(from), *frame)], ..Received::default() });
                }
                Event::Patience(caller, number) => self.gives_up(caller, number),
            }
            self.poll();
        }
    }

    /// `callers` callers write for `time`. Then no caller begins a write, and callers without an admitted write leave.
    fn load(&mut self, callers: usize, time: u64) -> Figures {
        self.figures = Figures::default();
        self.calling = callers;
        (0..callers).for_each(|caller| self.call(caller));
        let end = self.clock + time;
        self.run(|world| world.clock >= end);
        self.calling = 0;
        self.line.clear();
        std::mem::take(&mut self.figures)
    }

    fn verify(&self) {
        for (caller, known) in self.callers.iter().enumerate() {
            let Some((number, version)) = known.acknowledged else { continue };
            for (n, store) in self.stores.iter().enumerate() {
                let held = store.read(CHAIN, format!("overload/{caller}").as_bytes(), Sequence::MAX).unwrap().unwrap();
                let value = held.value.unwrap();
                let found = u64::from_be_bytes(value[..8].try_into().unwrap());
                assert!(held.version >= version && found >= number, "n{n}, {caller}: {found}, not {number}");
            }
        }
    }
}

fn millis(nanos: u64) -> f64 {
    nanos as f64 / MILLI as f64
}

fn print(name: &str, figures: &mut Figures, time: u64) {
    figures.latencies.sort_unstable();
    let all = &figures.latencies;
    println!(
        "{name}: {} writes, {:.1} MB/s, mean {:.1} ms, p99 {:.1} ms, longest {:.1} ms, at most {} % of the allowed time; \
         at most {} bytes in the window and {} in the queue; {} calls timed out",
        all.len(),
        figures.bytes as f64 / 1e6 / (time / SECOND) as f64,
        millis(all.iter().sum::<u64>() / all.len() as u64),
        millis(all[all.len() * 99 / 100]),
        millis(all[all.len() - 1]),
        figures.most,
        figures.window,
        figures.queue,
        figures.given_up
    );
}

#[test]
fn admitted_writes_wait_only_for_window_and_queue() {
    let mut world = World::new(10 * SATURATING);
    let (short, long) = (5 * SECOND, 30 * SECOND);
    let mut once = world.load(SATURATING, short);
    print("saturating", &mut once, short);
    world.run(|_| false);
    let mut tenfold = world.load(10 * SATURATING, long);
    print("ten-fold", &mut tenfold, long);

    // A single caller is served soon after the admitted writes.
    let begun = world.clock;
    let lone = 10 * SATURATING;
    world.call(lone);
    world.run(|world| world.callers[lone].acknowledged.is_some());
    println!("a single write after the load: {:.1} ms", millis(world.clock - begun));
    assert!(world.clock - begun <= 2 * SECOND);
    world.run(|_| false);
    let begun = world.clock;
    world.call(lone);
    world.run(|world| world.callers[lone].acknowledged.is_some_and(|(number, _)| number == 2));
    println!("another one without load: {:.1} ms", millis(world.clock - begun));
    world.verify();

    // It was an overload: a tenth of the callers already saturated the links, and window and queue were full.
    let rate = |figures: &Figures, time: u64| figures.bytes as u64 * SECOND / time;
    assert!(rate(&once, short) >= RATE * 95 / 100 && rate(&tenfold, long) <= rate(&once, short) * 105 / 100);
    assert!(tenfold.window >= WINDOW && tenfold.queue >= QUEUE - LARGEST && tenfold.given_up > 1000);
}
