//! Requests of clients, out of any bytes, at a replica that runs: a chain of one, or the head of a chain whose other member
//! is silent. What they may not do: end it, hold more than is bounded, or have an answer that can't be sent.

mod requests;
mod seen;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use artillery_core::{Frame, internal::codec::MAX_HEADER};
use artillery_proto::{
    ChainConfig, ChainId, ChainMember, Epoch, Incarnation, MemberId, Mode, NodeId, Role, Sequence, Timestamp,
    control::log::LogIndex,
    replica::{Event, Gate, Query, Reply, Settings, Write},
    runner::{ChainRunner, Lease, Line, Link, Order, Output, ReadRequest, Turn, WriteRequest},
    store::{MemoryStore, Store},
    update::MAX_KEY,
    wire::request::{
        Encoded, Operation, Request, Response, ResponseAnswer, decode_request, decode_response, encode_request,
        encode_response,
    },
};
use bytes::Bytes;

pub(crate) use self::seen::Counts;
use self::{
    requests::{HISTORY, Reader},
    seen::Seen,
};

const CHAIN: ChainId = ChainId(0);
const MAX_VALUE: usize = 4 << 10;
/// The longest frame between client and node, as a node's configuration has it at least.
const MAX_FRAME: usize = MAX_VALUE + 2 * MAX_KEY + (256 << 10);
/// What a record of a request takes with a value that was taken away, or its session without records.
const RECORD: usize = 160 + MAX_KEY;
/// Snapshots of scans that a member keeps.
const SNAPSHOTS: usize = 64;
/// What a watch takes beside its prefix.
const QUESTION: usize = 256;
/// Steps of one input at most: it is to end.
const STEPS: usize = 512;
/// A longer frame isn't repeated often.
const LONG: usize = 6 << 10;

fn settings() -> Settings {
    Settings {
        window: 64 << 10,
        backlog: 64 << 10,
        sessions: 64 << 10,
        max_value: MAX_VALUE,
        answer: 1 << 10,
        watches: 8 << 10,
        join: 512,
        snapshot_bytes: 64 << 10,
        ..Settings::default()
    }
}

fn member(name: &str) -> MemberId {
    MemberId { node: NodeId::from_name(name), incarnation: Incarnation { store: 1, starts: 1 } }
}

/// Has a replica answer what `input` asks, and counts the replies. The first byte says in which form the rest is: frames,
/// each behind the lengths of its header and its body, or choices of which requests are made.
///
/// # Panics
/// When something doesn't hold that must.
pub(crate) fn run(input: &[u8]) -> Counts {
    let mut reader = Reader::new(input);
    let form = reader.byte();
    let mut live = Live::new(form & 2 == 0);
    for _ in 0..STEPS {
        if reader.is_at_end() {
            break;
        }
        if form & 1 == 1 { live.raw_frame(&mut reader) } else { live.step(&mut reader) }
    }
    live.end()
}

/// What was asked, as far as its reply must fit.
enum Asked {
    Write { opens_session: bool },
    Key,
    Keys(usize),
    Scan(u32),
    Changes,
    Hashed,
}

impl Asked {
    fn of(operation: &Operation) -> Option<Self> {
        Some(match operation {
            Operation::Write { write, .. } => Self::Write { opens_session: matches!(write, Write::OpenSession) },
            Operation::Read { query, .. } => match query {
                Query::Key(_) => Self::Key,
                Query::Keys(keys) => Self::Keys(keys.len()),
                Query::Scan(scan) => Self::Scan(scan.limit),
                Query::Changes(_) => Self::Changes,
                Query::Hashed(_) => Self::Hashed,
            },
            _ => return None,
        })
    }

    fn fits(&self, reply: &Reply) -> bool {
        match (self, reply) {
            (_, Reply::Refused(_) | Reply::Expired)
            | (Self::Write { .. }, Reply::Committed(_) | Reply::Conflict { .. })
            | (Self::Key, Reply::Read(_))
            | (Self::Changes, Reply::Changes(_))
            | (Self::Hashed, Reply::Hashed(_)) => true,
            (Self::Keys(keys), Reply::Cut(cut)) => cut.found.len() == *keys,
            (Self::Scan(limit), Reply::Page(page)) => page.records.len() <= (*limit).max(1) as usize,
            _ => false,
        }
    }
}

struct Caller {
    number: u64,
    deadline: Timestamp,
    /// When the replica got it.
    handed: Timestamp,
    asked: Asked,
}

struct Live {
    runner: ChainRunner<u64>,
    turn: Turn<ReadRequest<u64>, WriteRequest<u64>>,
    store: Arc<MemoryStore>,
    settings: Settings,
    now: Timestamp,
    /// When something was put off last.
    behind: Timestamp,
    epoch: u64,
    is_alone: bool,
    callers: BTreeMap<u64, Caller>,
    asked: u64,
    /// Writes that wait until there is room, as a driver has them wait.
    lines: [VecDeque<WriteRequest<u64>>; 2],
    /// What the largest update of a write so far can have come to.
    largest: usize,
    seen: Seen,
    counts: Counts,
}

impl Live {
    fn new(is_alone: bool) -> Self {
        let (store, settings) = (Arc::new(MemoryStore::with_seed(7)), settings());
        let gate = Arc::new(Gate::new(CHAIN));
        let mut live = Self {
            runner: ChainRunner::new(member("alone"), CHAIN, settings.clone(), store.clone(), gate),
            turn: Turn::default(),
            store,
            settings,
            now: Timestamp::ZERO,
            behind: Timestamp::ZERO,
            epoch: 0,
            is_alone,
            callers: BTreeMap::new(),
            asked: 0,
            lines: Default::default(),
            largest: 0,
            seen: Seen::default(),
            counts: Counts::new(),
        };
        live.turn.links.push(Link::Up(member("silent")));
        live.enter(is_alone);
        live.lease(1000);
        live.take_turn(true);
        live
    }

    fn enter(&mut self, is_alone: bool) {
        self.is_alone = is_alone;
        self.epoch += 1;
        let names: &[_] = if is_alone { &["alone"] } else { &["alone", "silent"] };
        let members = names.iter().map(|name| ChainMember { id: member(name), role: Role::Serving }).collect();
        let (epoch, index) = (Epoch(self.epoch), self.epoch);
        let config = ChainConfig { chain: CHAIN, epoch, index, mode: Mode::Craq, min_members: 1, members };
        self.turn.orders.push(Order::Enter { config: Arc::new(config), history: HISTORY, upto: LogIndex(index) });
    }

    fn lease(&mut self, millis: u64) {
        self.turn.lease = Some(Lease { until: self.now + Duration::from_millis(millis), asked: self.now, stretch: 0 });
    }

    fn raw_frame(&mut self, reader: &mut Reader<'_>) {
        let (header, body) = (usize::from(reader.short()), usize::from(reader.short()));
        let (header, body) = (Bytes::copy_from_slice(reader.take(header)), Bytes::copy_from_slice(reader.take(body)));
        self.receive(&Frame { header, body }, true);
        self.take_turn(true);
    }

    /// One choice out of the input: a request, or something else that happens.
    fn step(&mut self, reader: &mut Reader<'_>) {
        let choice = reader.byte();
        match choice & 15 {
            0 => self.now = self.now + Duration::from_millis(u64::from(reader.byte()).pow(2)),
            1 => {
                let millis = u64::from(reader.byte()) * 8;
                self.lease(millis);
            }
            2 => self.enter(reader.byte() & 1 == 0),
            3 => {
                let (times, request) = (reader.byte(), reader.request(&self.seen));
                self.repeat(request, times, choice & 64 == 0);
            }
            _ => {
                let request = reader.request(&self.seen);
                self.repeat(request, 1, choice & 64 == 0);
            }
        }
        if choice & 16 == 0 {
            self.take_turn(choice & 32 == 0);
        }
    }

    /// Has the same request come again and again, under new request ids; a long one not so often.
    fn repeat(&mut self, mut request: Request, times: u8, in_line: bool) {
        for time in 0..times {
            // What a client can't say, or a node refuses to read, comes to no replica.
            let Some(frame) = encode_request(&request).ok().and_then(framed) else { return };
            if time >= 4 && frame.wire_len() > LONG {
                return;
            }
            self.receive(&frame, in_line);
            if let Operation::Write { request: Some(key), .. } = &mut request.operation {
                key.number = key.number.wrapping_add(1);
            }
        }
    }

    fn receive(&mut self, frame: &Frame, in_line: bool) {
        let Ok(Request { number, deadline_ms, operation, .. }) = decode_request(frame) else { return };
        let Some(asked) = Asked::of(&operation) else { return };
        let deadline = self.now + Duration::from_millis(u64::from(deadline_ms));
        self.asked += 1;
        let caller = self.asked;
        self.callers.insert(caller, Caller { number, deadline, handed: Timestamp::MAX, asked });
        match operation {
            Operation::Read { query, mode, floor, history } => {
                self.turn.reads.push(ReadRequest { query, mode, floor, history, deadline, caller });
            }
            Operation::Write { request, history, write } => {
                self.largest = self.largest.max(self.cost(&write));
                let write = WriteRequest { request, history, write, deadline, caller };
                if in_line { self.line_up(write) } else { self.turn.writes.push(write) }
            }
            _ => {}
        }
    }

    /// What the update of a write can count for at most.
    fn cost(&self, write: &Write) -> usize {
        let keys: usize = write.keys().map(|key| 112 + key.len()).sum();
        112 + keys + self.settings.max_value.max(self.settings.window / 2)
    }

    fn line_up(&mut self, write: WriteRequest<u64>) {
        let length = |key: &Bytes| {
            let newest = self.store.read(CHAIN, key, Sequence::MAX).expect("memory doesn't fail");
            newest.and_then(|held| held.value).map_or(0, |value| value.len())
        };
        let line = Line::of(&write.write, &self.settings, length);
        self.lines[line as usize].push_back(write);
    }

    /// Has everything taken in that was received, and what was put off done: all of it, or one step.
    fn take_turn(&mut self, settles: bool) {
        self.now = self.now + Duration::from_millis(1);
        let now = self.now;
        let (lines, turn) = (&mut self.lines, &mut self.turn);
        let mut handed: Vec<u64> = turn.reads.iter().map(|read| read.caller).collect();
        handed.extend(turn.writes.iter().map(|write| write.caller));
        let more = |line: Line| {
            let write = lines[line as usize].pop_front()?;
            handed.push(write.caller);
            Some(write)
        };
        self.runner.take(|| now, || now.as_nanos() / 1_000_000, turn, more);
        handed.iter().for_each(|caller| self.callers.get_mut(caller).expect("it was asked").handed = now);
        self.poll();
        let steps = if settles { self.largest / self.settings.join + 8 } else { 1 };
        for _ in 0..steps {
            if self.runner.is_behind() {
                self.behind = now;
            }
            self.runner.settle(|| now);
            self.poll();
        }
        assert!(!settles || !self.runner.is_behind(), "there is always something put off");
        self.check();
    }

    fn poll(&mut self) {
        while let Some(output) = self.runner.poll_output() {
            match output {
                Output::Reply(caller, reply) => self.answer(caller, reply),
                Output::Event(Event::Halted(why)) => panic!("halted: {why}"),
                Output::Event(_) => {}
            }
        }
        while self.runner.poll_word().is_some() {}
        let peers: Vec<_> = self.runner.peers().collect();
        for peer in peers {
            self.runner.poll_control(self.now, peer);
            while self.runner.poll_updates(self.now, peer, 64 << 10).is_some() {}
        }
    }

    fn answer(&mut self, caller: u64, reply: Reply) {
        let Caller { number, deadline, asked, .. } = self.callers.remove(&caller).expect("one reply for each caller");
        assert!(asked.fits(&reply), "{reply:?}");
        assert!(reply != Reply::Expired || deadline <= self.now, "too soon");
        seen::check(&reply, &self.settings);
        *self.counts.entry(seen::kind(&reply)).or_default() += 1;
        self.seen.note(&reply, matches!(asked, Asked::Write { opens_session: true }));
        let response = Response { number, by: None, answer: ResponseAnswer::Reply(reply) };
        let encoded = encode_response(&response).expect("every reply can be sent");
        assert!(encoded.header.len() <= MAX_HEADER);
        let frame = framed(encoded).expect("every reply fits a frame");
        assert_eq!(decode_response(&frame), Ok(response));
    }

    /// What a replica holds for its callers is bounded.
    fn check(&self) {
        let (status, settings) = (self.runner.replica().status(), &self.settings);
        let in_line: usize = self.lines.iter().map(VecDeque::len).sum();
        assert_eq!(self.runner.waiting() + in_line, self.callers.len(), "a caller was forgotten");
        assert!(status.parked_reads + status.watchers + status.waiting_writes <= self.runner.waiting());
        assert!(status.in_flight < settings.window + self.largest, "{} bytes in flight", status.in_flight);
        assert!(status.backlog <= settings.backlog, "a backlog of {} bytes", status.backlog);
        assert!(status.watchers * QUESTION <= settings.watches, "{} watches", status.watchers);
        assert!(status.snapshots <= SNAPSHOTS, "{} snapshots", status.snapshots);
        let sessions = status.sessions_bytes - status.pending_sessions_bytes;
        assert!(sessions <= settings.sessions + RECORD, "sessions of {sessions} bytes");
        if self.is_alone {
            assert_eq!((status.in_flight, status.watermark), (0, status.last.sequence), "it waits for itself");
        }
        self.check_deadlines();
    }

    /// A caller isn't left waiting for longer than it takes to notice, once the values of its write are put together.
    fn check_deadlines(&self) {
        for caller in self.runner.callers().filter(|_| !self.runner.is_behind()) {
            let &Caller { deadline, handed, .. } = &self.callers[caller];
            let late = self.now - deadline.max(handed).max(self.behind);
            assert!(late <= self.settings.heartbeat, "a caller waits {late:?} beyond its deadline");
        }
    }

    /// In the end nothing is left of what was asked.
    fn end(mut self) -> Counts {
        for _ in 0..=self.lines.iter().map(VecDeque::len).sum() {
            self.take_turn(true);
        }
        for late in self.lines.each_mut().into_iter().flat_map(std::mem::take) {
            assert!(!self.is_alone, "a write waits for room, and nothing is under way");
            self.callers.remove(&late.caller);
        }
        self.now = self.now + Duration::from_millis(1 << 33);
        self.take_turn(true);
        let status = self.runner.replica().status();
        assert_eq!(self.callers.len(), 0, "callers without a reply");
        assert_eq!((status.parked_reads, status.watchers, status.waiting_writes, status.snapshots), (0, 0, 0, 0));
        self.counts
    }
}

/// The frame as it is received, if it may be so long.
fn framed(encoded: Encoded) -> Option<Frame> {
    let len = encoded.body.iter().fold(encoded.header.len(), |len, piece| len + piece.len());
    (len <= MAX_FRAME).then(|| encoded.to_frame())
}
