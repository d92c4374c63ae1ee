//! How many bytes of a 64 MiB value other messages wait for, on links that carry one byte per nanosecond.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use artillery_proto::{
    ChainId, Timestamp,
    api::{Query, ReadMode, Reply, Write},
    message::{ChainFrame, ChainMessage, MAX_CHUNK},
    replica::{Gate, ReplicaSettings},
    runner::{ChainRunner, ReadRequest, RunnerOutput, WriteRequest},
    store::MemoryStore,
};
use bytes::Bytes;

use super::small::{self, FAR, FRAMES, MEMBERS, Received, beginning, member};

const CHAINS: usize = 2;
const FRAME: u64 = small::FRAME as u64;
const LARGE: usize = 64 << 20;
const BUSY: usize = 0;
const QUIET: usize = 1;

/// A frame, and the bytes of the large value that had passed the link when the frame was queued.
type Waiting = (ChainFrame, u64);

/// One direction between two nodes with a driver's streams. Control frames go first, and chains take turns.
#[derive(Default)]
struct Link {
    control: VecDeque<Waiting>,
    updates: [VecDeque<Waiting>; CHAINS],
    turn: usize,
    now: Option<(u64, Waiting)>,
    large: u64,
}

impl Link {
    fn begin(&mut self, clock: u64) {
        if self.now.is_some() {
            return;
        }
        let next = self.control.pop_front().or_else(|| {
            self.turn += 1;
            (0..CHAINS).find_map(|n| self.updates[(self.turn + n) % CHAINS].pop_front())
        });
        self.now = next.map(|waiting| (clock + size(&waiting.0), waiting));
    }
}

fn size(frame: &ChainFrame) -> u64 {
    small::size(frame) as u64
}

struct World {
    clock: u64,
    chains: Vec<[ChainRunner<u64>; CHAINS]>,
    links: BTreeMap<(usize, usize), Link>,
    replies: BTreeMap<u64, (u64, Reply)>,
    tokens: u64,
    /// The maximum bytes of the large value for which another message waited.
    most: u64,
    others: u64,
}

impl World {
    fn new() -> Self {
        let runner = |n: usize, chain: usize| {
            let chain = ChainId(chain as u32);
            let store = Arc::new(MemoryStore::with_seed(1));
            // A head admits other writes after the large value only while its window has capacity.
            let settings = ReplicaSettings { window: 2 * LARGE, ..ReplicaSettings::default() };
            ChainRunner::new(member(n), chain, settings, store, Arc::new(Gate::new(chain)))
        };
        let chains = (0..MEMBERS).map(|n| std::array::from_fn(|chain| runner(n, chain))).collect();
        let (links, replies) = (BTreeMap::new(), BTreeMap::new());
        let mut world = Self { clock: 1, chains, links, replies, tokens: 0, most: 0, others: 0 };
        for n in 0..MEMBERS {
            for chain in 0..CHAINS {
                world.take(n, chain, beginning(n, ChainId(chain as u32)));
            }
        }
        world.run(|_| false);
        world
    }

    fn take(&mut self, n: usize, chain: usize, mut turn: Received) {
        let (runner, now) = (&mut self.chains[n][chain], Timestamp::from_nanos(self.clock));
        runner.take(|| now, &mut turn, |_| None);
        while let Some(output) = runner.poll_output() {
            if let RunnerOutput::Reply(caller, reply) = output {
                self.replies.insert(caller, (self.clock, reply));
            }
        }
        while runner.poll_word().is_some() {}
    }

    fn put(&mut self, chain: usize, key: &'static str, value: Bytes) -> u64 {
        self.tokens += 1;
        let (write, caller) = (Write::put(key.into(), value), self.tokens);
        let write = WriteRequest { request: None, history: None, write, deadline: FAR, caller };
        self.take(0, chain, Received { writes: vec![write], ..Received::default() });
        caller
    }

    fn read(&mut self, n: usize, chain: usize, key: &'static str) -> u64 {
        self.tokens += 1;
        let (query, mode, caller) = (Query::Key(key.into()), ReadMode::Strong, self.tokens);
        let read = ReadRequest { query, mode, floor: None, history: None, deadline: FAR, caller };
        self.take(n, chain, Received { reads: vec![read], ..Received::default() });
        caller
    }

    fn poll(&mut self) {
        let now = Timestamp::from_nanos(self.clock);
        for n in 0..MEMBERS {
            for to in (0..MEMBERS).filter(|&to| to != n) {
                let link = self.links.entry((n, to)).or_default();
                for (chain, runner) in self.chains[n].iter_mut().enumerate() {
                    let control = runner.poll_control(now, member(to));
                    link.control.extend(control.map(|frame| (frame, link.large)));
                    while link.updates[chain].len() < FRAMES {
                        let Some(frame) = runner.poll_updates(now, member(to), MAX_CHUNK) else { break };
                        link.updates[chain].push_back((frame, link.large));
                    }
                }
                link.begin(self.clock);
            }
        }
        let now = Timestamp::from_nanos(self.clock);
        self.chains.iter_mut().flatten().for_each(|runner| runner.settle(|| now));
    }

    fn run(&mut self, enough: impl Fn(&Self) -> bool) {
        self.poll();
        while !enough(self)
            && let Some((at, way)) =
                self.links.iter().filter_map(|(&way, link)| Some((link.now.as_ref()?.0, way))).min()
        {
            self.clock = at;
            self.arrive(way);
            self.poll();
        }
    }

    fn arrive(&mut self, (from, to): (usize, usize)) {
        let link = self.links.get_mut(&(from, to)).expect("the link carries a frame");
        let (_, (frame, before)) = link.now.take().expect("the link carries a frame");
        match &frame.message {
            ChainMessage::Chunk(chunk) => link.large += chunk.bytes.len() as u64,
            message if matches!(message, ChainMessage::Control(_)) || frame.chain.0 as usize == QUIET => {
                self.most = self.most.max(link.large - before);
                self.others += u64::from(link.large > 0 && link.large < LARGE as u64);
            }
            _ => {}
        }
        let chain = frame.chain.0 as usize;
        self.take(to, chain, Received { frames: vec![(member(from), frame)], ..Received::default() });
    }

    fn large_passed(&self, from: usize, to: usize) -> u64 {
        self.links.get(&(from, to)).map_or(0, |link| link.large)
    }
}

#[test]
fn nothing_waits_for_more_than_128_kib_of_a_large_value() {
    let mut world = World::new();
    world.put(BUSY, "dirty", "1".into());
    world.run(|_| false);
    let large = world.put(BUSY, "large", vec![7; LARGE].into());
    let mut asked = Vec::new();
    for n in 1..=20_u64 {
        world.run(|world| world.large_passed(1, 2) > n * (LARGE as u64 / 21));
        let begun = world.clock;
        asked.push(world.put(QUIET, "k", "small".into()));
        // A dirty read at the head queries the tail. Another one at the middle shares the link with the large value.
        asked.push(world.read(0, BUSY, "large"));
        world.run(|world| world.chains[1][QUIET].replica().status().last.sequence.0 == n);
        let dirty = world.chains[1][QUIET].replica().status().reads.dirty;
        asked.push(world.read(1, QUIET, "k"));
        // At one byte per nanosecond, each request takes only as long as a few pieces per hop.
        let deadline = begun + 6 * (MAX_CHUNK as u64 + FRAME);
        world.run(|world| asked.iter().all(|token| world.replies.contains_key(token)));
        assert!(world.clock <= deadline, "{} ns too late", world.clock - deadline);
        assert_eq!(world.chains[1][QUIET].replica().status().reads.dirty, dirty + 1);
        assert!(!world.replies.contains_key(&large), "the large value is still in transit");
    }
    world.run(|_| false);
    assert!(matches!(world.replies[&large].1, Reply::Committed(_)));
    println!("{} frames met the large value, none waited for more than {} bytes of it", world.others, world.most);
    assert!(
        world.others >= 20 * 3 && world.most <= 128 << 10,
        "{} bytes in front of {} frames",
        world.most,
        world.others
    );
}

#[test]
fn a_small_write_waits_for_a_large_value_once_not_at_each_hop() {
    let mut world = World::new();
    let begun = world.clock;
    world.put(BUSY, "large", vec![7; LARGE].into());
    let small = world.put(BUSY, "k", "small".into());
    world.run(|_| false);
    let (done, reply) = &world.replies[&small];
    assert!(matches!(reply, Reply::Committed(_)));
    let frames = (LARGE / MAX_CHUNK) as u64;
    let once = LARGE as u64 + frames * FRAME;
    // The last piece and the small write on each hop after the first, and the acknowledgement.
    let hops = 2 * (MEMBERS as u64) * (MAX_CHUNK as u64 + 4 * FRAME);
    let took = done - begun;
    println!("{took} ns, the value itself takes {once} on one hop");
    assert!(took <= once + once / 50 + hops, "{took} ns, though {once} and {hops} are enough");
}
