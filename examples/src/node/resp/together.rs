//! Plain writes of many connections, made together: whoever comes while others are under way travels with the next ones,
//! in one update. That a write always happens and tells nothing but that is why it can share an answer, and its record.

use std::{sync::Arc, time::Duration};

use artillery_ddata::Kv;
use tokio::{
    sync::{
        Mutex,
        mpsc::{self, Receiver, Sender},
        oneshot,
    },
    task::yield_now,
    time::timeout,
};

use super::{
    reply::Reply,
    script,
    write::{Write, sizes},
};

/// Updates under way at a time.
const UPDATES: usize = 2;
/// So often others go first before one leaves (`benches/README.md`).
const YIELDS: usize = 4;
/// One that takes longer than this holds nobody up any more.
const PATIENCE: Duration = Duration::from_millis(50);
/// Writes that wait, at most; others wait for room.
const QUEUE: usize = 1024;
/// Bytes and steps of one update, at most: larger ones would travel on streams of their own.
const MOST_BYTES: usize = 48 << 10;
const MOST_STEPS: usize = 512;

/// The way in.
pub(super) struct Together(Sender<Waiting>);

/// Writes of one connection, in their order.
struct Waiting {
    writes: Vec<Write>,
    done: oneshot::Sender<Reply>,
}

impl Together {
    /// Whether writes may travel with others: plain ones that leave room for others.
    pub(super) fn takes(writes: &[Write]) -> bool {
        let (bytes, steps) = sizes(writes);
        bytes <= MOST_BYTES / 8 && steps <= MOST_STEPS / 4 && writes.iter().all(Write::is_plain)
    }

    pub(super) fn new(kv: &Kv) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..UPDATES {
            tokio::spawn(carry(kv.clone(), receiver.clone()));
        }
        Self(sender)
    }

    /// Makes writes of one connection, and says what there is to say of each of them.
    pub(super) async fn make(&self, writes: Vec<Write>) -> Reply {
        let (done, reply) = oneshot::channel();
        if self.0.send(Waiting { writes, done }).await.is_err() {
            return Reply::Error("BUSY this node is about to stop".into());
        }
        reply.await.unwrap_or_else(|_| Reply::Error("UNKNOWN this node is about to stop".into()))
    }
}

/// Carries one update after the other, until nobody can come any more.
async fn carry(kv: Kv, queue: Arc<Mutex<Receiver<Waiting>>>) {
    let mut taken = Vec::new();
    loop {
        {
            let mut queue = queue.lock().await;
            if queue.recv_many(&mut taken, MOST_STEPS).await == 0 {
                return;
            }
            // Those who were answered just now are about to come again.
            for _ in 0..YIELDS {
                yield_now().await;
            }
            while taken.len() < MOST_STEPS
                && let Ok(more) = queue.try_recv()
            {
                taken.push(more);
            }
        }
        let mut rest = taken.drain(..).peekable();
        while let Some(first) = rest.next() {
            let (mut bytes, mut steps) = sizes(&first.writes);
            let mut update = vec![first];
            while let Some(next) = rest.next_if(|next| {
                let (more, others) = sizes(&next.writes);
                (bytes, steps) = (bytes + more, steps + others);
                bytes <= MOST_BYTES && steps <= MOST_STEPS
            }) {
                update.push(next);
            }
            let mut made = tokio::spawn(make(kv.clone(), update));
            drop(timeout(PATIENCE, &mut made).await);
        }
    }
}

async fn make(kv: Kv, update: Vec<Waiting>) {
    let (writes, done): (Vec<_>, Vec<_>) = update.into_iter().map(|waiting| (waiting.writes, waiting.done)).unzip();
    let writes: Vec<Write> = writes.into_iter().flatten().collect();
    let reply = match <[Write; 1]>::try_from(writes) {
        Ok([alone]) => alone.make(&kv).await,
        Err(writes) => script::make_plain(&kv, &writes).await,
    };
    for done in done {
        // Whoever asked may have gone.
        drop(done.send(reply.clone()));
    }
}
