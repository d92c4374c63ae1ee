//! Client requests from arbitrary bytes, to a running replica: a chain of one, or the head of a chain whose other
//! member is silent. The requests must not stop the replica, make it exceed its bounds, or cause a reply that can't be
//! sent.

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
    api::{Query, Reply, Write},
    control::log::LogIndex,
    message::request::{Operation, Request, Response, ResponseAnswer},
    replica::{Gate, ReplicaEvent, ReplicaSettings, SnapshotLimits},
    runner::{ChainOrder, ChainRunner, Lease, LinkChange, ReadRequest, RunnerOutput, Turn, WriteLine, WriteRequest},
    store::{MemoryStore, Store},
    types::update::MAX_KEY,
    wire::request::{Encoded, decode_request, decode_response, encode_request, encode_response},
};
use bytes::Bytes;

pub(crate) use self::seen::Counts;
use self::{
    requests::{HISTORY, Reader},
    seen::Seen,
};

const CHAIN: ChainId = ChainId(0);
const MAX_VALUE: usize = 4 << 10;
/// The longest frame between client and node: the smallest limit that a node's configuration allows.
const MAX_FRAME: usize = MAX_VALUE + 2 * MAX_KEY + (256 << 10);
/// An upper bound on the bytes of a request's record, and on those of a session without records.
const RECORD: usize = 160 + MAX_KEY;
/// The most snapshots of scans that a member keeps.
const SNAPSHOTS: usize = 64;
/// Bytes of a watch without its prefix.
const QUESTION: usize = 256;
/// The most steps of one input, so that a run ends.
const STEPS: usize = 512;
/// A frame longer than this, in bytes, is repeated only a few times.
const LONG: usize = 6 << 10;

fn settings() -> ReplicaSettings {
    ReplicaSettings {
        window: 64 << 10,
        backlog: 64 << 10,
        sessions: 64 << 10,
        max_value: MAX_VALUE,
        answer: 1 << 10,
        watches: 8 << 10,
        join: 512,
        snapshots: SnapshotLimits { bytes: 64 << 10, ..SnapshotLimits::default() },
        ..ReplicaSettings::default()
    }
}

fn member(name: &str) -> MemberId {
    MemberId { node: NodeId::from_name(name), incarnation: Incarnation { store: 1, starts: 1 } }
}

/// Sends a replica the requests in `input`, and counts the replies. The lowest bit of the first byte selects the form
/// of the rest: frames, each after the lengths of its header and its body, or choices from which requests are built.
/// The second bit selects which of the two chains is used first.
///
/// # Panics
/// If a check fails.
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

/// The kind of a request, to check that its reply matches.
enum Asked {
    Write { opens_session: bool },
    Key,
    Keys(usize),
    Scan(u32),
    Changes,
    Hashed,
    Digest,
    Copy,
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
                Query::Digest(_) => Self::Digest,
                Query::Copy(_) => Self::Copy,
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
            | (Self::Hashed, Reply::Hashed(_))
            | (Self::Digest, Reply::Digest(_))
            | (Self::Copy, Reply::Copied(_)) => true,
            (Self::Keys(keys), Reply::Cut(cut)) => cut.found.len() == *keys,
            (Self::Scan(limit), Reply::Page(page)) => page.records.len() <= (*limit).max(1) as usize,
            _ => false,
        }
    }
}

struct Caller {
    number: u64,
    deadline: Timestamp,
    /// When the replica received the request.
    handed: Timestamp,
    asked: Asked,
}

struct Live {
    runner: ChainRunner<u64>,
    turn: Turn<ReadRequest<u64>, WriteRequest<u64>>,
    store: Arc<MemoryStore>,
    settings: ReplicaSettings,
    now: Timestamp,
    /// When the replica last had deferred work.
    behind: Timestamp,
    epoch: u64,
    is_alone: bool,
    callers: BTreeMap<u64, Caller>,
    asked: u64,
    /// Writes that wait for space in the window, as in a driver.
    lines: [VecDeque<WriteRequest<u64>>; 2],
    /// The largest possible cost of any earlier update, in bytes.
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
        live.turn.links.push(LinkChange::Up(member("silent")));
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
        self.turn.orders.push(ChainOrder::Enter { config: Arc::new(config), history: HISTORY, upto: LogIndex(index) });
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

    /// One choice from the input: a request, or another event.
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

    /// Repeats a request, with a new request id each time if it has one. A long request is repeated only a few times.
    fn repeat(&mut self, mut request: Request, times: u8, in_line: bool) {
        for time in 0..times {
            // A request that can't be encoded, or that is too long for a node, reaches no replica.
            let Some(frame) = encode_request(&request, u16::MAX).ok().and_then(framed) else { return };
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

    /// The largest cost that the update of a write can have, in bytes.
    fn cost(&self, write: &Write) -> usize {
        let keys: usize = write.keys().map(|key| 112 + key.len()).sum();
        112 + keys + self.settings.max_value.max(self.settings.window / 2)
    }

    fn line_up(&mut self, write: WriteRequest<u64>) {
        let length = |key: &Bytes| {
            let newest = self.store.read(CHAIN, key, Sequence::MAX).expect("memory doesn't fail");
            newest.and_then(|held| held.value).map_or(0, |value| value.len())
        };
        let line = WriteLine::of(&write.write, &self.settings, length);
        self.lines[line as usize].push_back(write);
    }

    /// Makes the replica accept all messages, and do the deferred work: all of it, or one step.
    fn take_turn(&mut self, settles: bool) {
        self.now = self.now + Duration::from_millis(1);
        let now = self.now;
        let (lines, turn) = (&mut self.lines, &mut self.turn);
        let mut handed: Vec<u64> = turn.reads.iter().map(|read| read.caller).collect();
        handed.extend(turn.writes.iter().map(|write| write.caller));
        let more = |line: WriteLine| {
            let write = lines[line as usize].pop_front()?;
            handed.push(write.caller);
            Some(write)
        };
        self.runner.take(|| now, turn, more);
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
        assert!(!settles || !self.runner.is_behind(), "the replica still has deferred work");
        self.check();
    }

    fn poll(&mut self) {
        while let Some(output) = self.runner.poll_output() {
            match output {
                RunnerOutput::Reply(caller, reply) => self.answer(caller, reply),
                RunnerOutput::Event(ReplicaEvent::Halted(why)) => panic!("halted: {why}"),
                RunnerOutput::Event(_) => {}
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

    /// Checks the bounds on the memory that a replica holds for its callers.
    fn check(&self) {
        let (status, settings) = (self.runner.replica().status(), &self.settings);
        let in_line: usize = self.lines.iter().map(VecDeque::len).sum();
        assert_eq!(self.runner.waiting() + in_line, self.callers.len(), "a caller was forgotten");
        assert!(status.parked_reads + status.watchers + status.waiting_writes <= self.runner.waiting());
        assert!(status.in_flight < settings.window + self.largest, "{} bytes in flight", status.in_flight);
        assert!(status.backlog <= settings.backlog, "a backlog of {} bytes", status.backlog);
        assert!(status.watchers * QUESTION <= settings.watches, "{} watches", status.watchers);
        assert!(status.snapshots <= SNAPSHOTS, "{} snapshots", status.snapshots);
        let sessions = status.sessions.bytes - status.sessions.pending_bytes;
        assert!(sessions <= settings.sessions + RECORD, "sessions of {sessions} bytes");
        if self.is_alone {
            assert_eq!((status.in_flight, status.watermark), (0, status.last.sequence), "it waits for itself");
        }
        self.check_deadlines();
    }

    /// Checks that no caller waits longer than one heartbeat beyond its deadline, unless the replica still has deferred
    /// work.
    fn check_deadlines(&self) {
        for caller in self.runner.callers().filter(|_| !self.runner.is_behind()) {
            let &Caller { deadline, handed, .. } = &self.callers[caller];
            let late = self.now - deadline.max(handed).max(self.behind);
            assert!(late <= self.settings.heartbeat, "a caller waits {late:?} beyond its deadline");
        }
    }

    /// Ends the run, and checks that no request is left.
    fn end(mut self) -> Counts {
        for _ in 0..=self.lines.iter().map(VecDeque::len).sum() {
            self.take_turn(true);
        }
        for late in self.lines.each_mut().into_iter().flat_map(std::mem::take) {
            assert!(!self.is_alone, "a write waits for space in an empty window");
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

/// The frame that the receiver gets, unless it is too long.
fn framed(encoded: Encoded) -> Option<Frame> {
    let len = encoded.body.iter().fold(encoded.header.len(), |len, piece| len + piece.len());
    (len <= MAX_FRAME).then(|| encoded.to_frame())
}
