//! Three members of a chain on plain threads and UDP sockets: no tokio, no async, no QUIC. It needs only
//! `artillery-proto`: `cargo run --example drive_without_tokio`.
//!
//! A member is one thread that waits at its socket, passes received datagrams to the runner, and sends what the runner
//! returns. Each frame is one datagram: an update that doesn't fit into one is never delivered. Datagrams may be lost,
//! and every seventh is dropped on purpose; the replica resends whatever was not acknowledged. A datagram is trusted if
//! it comes from a member's address, so this is for one machine: the library's own driver authenticates members by
//! certificate.

use std::{
    collections::BTreeMap,
    error::Error,
    io::ErrorKind,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TryRecvError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use artillery_proto::{
    ChainConfig, ChainId, ChainMember, ClusterId, Epoch, Incarnation, MemberId, Mode, NodeId, ReadMode, Role,
    Timestamp,
    api::{Query, Reply, Write},
    control::log::LogIndex,
    message::ChainFrame,
    replica::{Gate, ReplicaSettings},
    runner::{ChainOrder, ChainRunner, Lease, LinkChange, ReadRequest, RunnerOutput, Turn, WriteRequest},
    store::MemoryStore,
    types::update::RequestKey,
    wire::{FrameDecoder, chain},
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const CHAIN: ChainId = ChainId(0);
const DATAGRAM: usize = 65_507;
/// The timeout of all waits. Everything here takes milliseconds.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);
/// An idle member checks its requests this often, in case the datagram that wakes it is lost.
const IDLE: Duration = Duration::from_secs(1);

/// A request of the main thread to a member.
enum Ask {
    Write(Option<RequestKey>, Write),
    Read(Query),
}

type Request = (Ask, SyncSender<Reply>);

type Received = Turn<ReadRequest<SyncSender<Reply>>, WriteRequest<SyncSender<Reply>>>;

struct Member {
    /// Identifies the caller of a request by the sender for its reply.
    runner: ChainRunner<SyncSender<Reply>>,
    /// Input received but not yet processed.
    turn: Received,
    socket: UdpSocket,
    addresses: BTreeMap<MemberId, SocketAddr>,
    requests: Receiver<Request>,
    sent: u64,
    clock: Instant,
}

impl Member {
    fn run(mut self, config: Arc<ChainConfig>) -> std::io::Result<()> {
        // No member is ever removed from this chain, so the lease never expires.
        self.turn.lease = Some(Lease { until: Timestamp::MAX, asked: self.now(), stretch: 0 });
        // UDP has no connections: every link is up from the start.
        self.turn.links.extend(config.members.iter().map(|member| LinkChange::Up(member.id)));
        self.turn.orders.push(ChainOrder::Enter { config, history: ClusterId(1), upto: LogIndex(1) });
        let mut buffer = vec![0; DATAGRAM];
        while self.receive_requests() {
            self.take();
            self.say()?;
            let pause = self.runner.next_tick().map_or(IDLE, |at| at - self.now());
            self.socket.set_read_timeout(Some(pause.max(Duration::from_millis(1))))?;
            match self.socket.recv_from(&mut buffer) {
                Ok((len, from)) => self.hear(&buffer[..len], from),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Adds waiting requests to the turn. Returns false once all senders of requests are dropped.
    fn receive_requests(&mut self) -> bool {
        loop {
            let (ask, answer) = match self.requests.try_recv() {
                Ok(request) => request,
                Err(end) => return end == TryRecvError::Empty,
            };
            let (deadline, caller, history) = (self.now() + WAIT_TIMEOUT, answer, None);
            match ask {
                Ask::Write(request, write) => {
                    self.turn.writes.push(WriteRequest { request, history, write, deadline, caller });
                }
                Ask::Read(query) => {
                    let mode = ReadMode::Strong;
                    self.turn.reads.push(ReadRequest { query, mode, floor: None, history, deadline, caller });
                }
            }
        }
    }

    /// Processes all input. The clock is read only after the input was received.
    fn take(&mut self) {
        let clock = self.clock;
        // `take` returns false between the parts of a long turn; this thread has no other work to do then.
        while !self.runner.take(|| Timestamp::ZERO + clock.elapsed(), &mut self.turn, |_| None) {}
    }

    /// Sends all output, to callers first, then to the other members. The store is maintained only afterwards, since no
    /// caller waits for that.
    fn say(&mut self) -> std::io::Result<()> {
        while let Some(output) = self.runner.poll_output() {
            if let RunnerOutput::Reply(caller, reply) = output {
                drop(caller.send(reply)); // the caller may have stopped waiting
            }
        }
        while self.runner.poll_word().is_some() {} // there is no coordinator to inform here
        let now = self.now();
        for peer in self.runner.peers().collect::<Vec<_>>() {
            if let Some(control) = self.runner.poll_control(now, peer) {
                self.send(peer, &control)?;
            }
            while let Some(updates) = self.runner.poll_updates(now, peer, DATAGRAM / 2) {
                self.send(peer, &updates)?;
            }
        }
        let clock = self.clock;
        self.runner.settle(|| Timestamp::ZERO + clock.elapsed());
        Ok(())
    }

    fn send(&mut self, to: MemberId, message: &ChainFrame) -> std::io::Result<()> {
        let encoded = chain::encode(message).map_err(std::io::Error::other)?;
        let datagram = encoded.to_frame().to_bytes();
        self.sent += 1;
        if self.sent.is_multiple_of(7) || datagram.len() > DATAGRAM {
            return Ok(());
        }
        self.socket.send_to(&datagram, self.addresses[&to]).map(|_| ())
    }

    /// Adds whole frames from members to the turn, and ignores everything else, such as the empty datagrams that only
    /// wake this thread.
    fn hear(&mut self, datagram: &[u8], from: SocketAddr) {
        let Some((&from, _)) = self.addresses.iter().find(|(_, address)| **address == from) else { return };
        let mut decoder = FrameDecoder::new(DATAGRAM);
        decoder.push(datagram);
        if let Ok(Some(frame)) = decoder.next_frame()
            && let Ok(frame) = chain::decode(&frame)
        {
            self.turn.frames.push((from, frame));
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.clock.elapsed()
    }
}

/// A member as the main thread sees it. Dropping it ends the member's thread.
struct Handle {
    requests: Option<SyncSender<Request>>,
    waker: UdpSocket,
    address: SocketAddr,
    gate: Arc<Gate>,
    store: Arc<MemoryStore>,
}

impl Handle {
    /// Returns the channel on which the answer arrives.
    fn ask(&self, ask: Ask) -> Outcome<Receiver<Reply>> {
        let (answer, reply) = sync_channel(1);
        self.requests.as_ref().ok_or("stopped")?.send((ask, answer))?;
        self.waker.send_to(&[], self.address)?;
        Ok(reply)
    }

    fn write(&self, request: Option<RequestKey>, write: Write) -> Outcome<Reply> {
        Ok(self.ask(Ask::Write(request, write))?.recv_timeout(WAIT_TIMEOUT)?)
    }

    fn get(&self, key: &'static str) -> Outcome<Option<String>> {
        let reply = self.ask(Ask::Read(Query::Key(key.into())))?.recv_timeout(WAIT_TIMEOUT)?;
        let Reply::Read(read) = reply else { return Err(format!("expected a read, got {reply:?}").into()) };
        let value = read.held.and_then(|held| held.value);
        Ok(value.map(|value| String::from_utf8_lossy(&value).into_owned()))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.requests = None;
        drop(self.waker.send_to(&[], self.address));
    }
}

fn check(what: &str, holds: bool) -> Outcome<()> {
    println!("{what}: {}", if holds { "yes" } else { "NO" });
    if holds { Ok(()) } else { Err(what.into()) }
}

fn main() -> Outcome<()> {
    let names = ["head", "middle", "tail"];
    let ids = names.map(|name| MemberId {
        node: NodeId::from_name(name),
        incarnation: Incarnation { store: 1, starts: 1 }, // a real store picks a random number
    });
    let members = ids.map(|id| ChainMember { id, role: Role::Serving }).to_vec();
    let config = ChainConfig { chain: CHAIN, epoch: Epoch(1), index: 1, mode: Mode::Craq, min_members: 3, members };
    let config = Arc::new(config);
    let sockets = names.iter().map(|_| UdpSocket::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>()?;
    let mut addresses = BTreeMap::new();
    for (id, socket) in ids.iter().zip(&sockets) {
        addresses.insert(*id, socket.local_addr()?);
    }

    thread::scope(|scope| {
        let mut handles = Vec::new();
        for (id, socket) in ids.into_iter().zip(sockets) {
            let (member, handle) = member(id, socket, addresses.clone())?;
            let config = config.clone();
            scope.spawn(move || {
                if let Err(error) = member.run(config) {
                    eprintln!("a member failed: {error}");
                }
            });
            handles.push(handle);
        }
        try_it(&handles)
    })
}

#[allow(clippy::disallowed_methods, reason = "a driver reads the clock")]
fn member(id: MemberId, socket: UdpSocket, addresses: BTreeMap<MemberId, SocketAddr>) -> Outcome<(Member, Handle)> {
    let settings = ReplicaSettings {
        heartbeat: Duration::from_millis(5),
        resend: Some(Duration::from_millis(10)), // UDP loses datagrams
        ..ReplicaSettings::default()
    };
    let gate = Arc::new(Gate::new(CHAIN));
    let store = Arc::new(MemoryStore::with_seed(1)); // all keys are our own, so the hash seed needs no secrecy
    let runner = ChainRunner::new(id, CHAIN, settings, store.clone(), gate.clone());
    let (requests, queue) = sync_channel(16);
    let (waker, address) = (UdpSocket::bind("127.0.0.1:0")?, socket.local_addr()?);
    let handle = Handle { requests: Some(requests), waker, address, gate, store };
    let clock = Instant::now();
    Ok((Member { runner, turn: Turn::default(), socket, addresses, requests: queue, sent: 0, clock }, handle))
}

fn try_it(handles: &[Handle]) -> Outcome<()> {
    let head = &handles[0];
    let mut held = true;
    for n in 0..30 {
        let put = head.write(None, Write::put("greeting".into(), format!("hello {n}").into()))?;
        let Reply::Committed(put) = put else { return Err(format!("not committed: {put:?}").into()) };
        held &= put.copies == 3;
        for handle in handles {
            held &= handle.get("greeting")? == Some(format!("hello {n}"));
        }
    }
    check("30 puts, each stored on three members and readable at each once committed", held)?;

    // A session records its requests: one that is repeated, for example because its answer was lost, is not applied
    // twice.
    let opened = head.write(None, Write::OpenSession)?;
    let Reply::Committed(session) = opened else { return Err(format!("no session: {opened:?}").into()) };
    let request = Some(RequestKey { session: session.version, number: 1, lowest: 1 });
    let append = || Write::append("log".into(), "once".into());
    drop(head.ask(Ask::Write(request, append()))?); // this answer is lost
    let retried = head.write(request, append())?;
    check("the retry returns the recorded result", matches!(&retried, Reply::Committed(done) if done.replayed))?;
    for handle in handles {
        check("the append was applied once", handle.get("log")?.as_deref() == Some("once"))?;
    }

    // A clean key is read by a plain call, concurrently with the thread that owns the chain.
    let tail = &handles[2];
    let local = tail.gate.read(&*tail.store, b"log", || Timestamp::ZERO)?.and_then(|held| held.value);
    check("a clean key is read without asking another member", local.as_deref() == Some(b"once"))
}
