//! Combines plain writes of many connections: writes that arrive while an update is in flight form the next update
//! together. They can share an answer and a record, because they are unconditional and their answer is always `OK`.

use std::time::Duration;

use artillery_ddata::{Error, Kv};
use tokio::{
    sync::{
        mpsc::{self, Receiver, Sender},
        oneshot,
    },
    task::{JoinSet, yield_now},
    time::timeout,
};

use super::{
    failure::{is_about_content, told},
    reply::Reply,
    script,
    write::{MOST_BYTES, MOST_STEPS, Write, sizes},
};

/// Maximum number of yields to connections before an update is sent (`benches/README.md`).
const YIELDS: usize = 16;
/// The next update is sent after this time even if the previous one is still in flight.
const MAX_UPDATE_WAIT: Duration = Duration::from_millis(5);
/// Maximum number of entries in the queue; senders of further ones wait.
const QUEUE: usize = 1024;

pub(super) struct Together(Sender<QueuedWrites>);

struct QueuedWrites {
    writes: Vec<Write>,
    done: oneshot::Sender<Reply>,
}

impl QueuedWrites {
    fn answer(self, done: Result<Reply, Error>) {
        // The connection that sent the writes may have ended.
        drop(self.done.send(done.unwrap_or_else(|error| told(&error))));
    }
}

impl Together {
    /// Whether these writes may be combined with others: all are plain, and together they leave space for more.
    pub(super) fn takes(writes: &[Write]) -> bool {
        let (bytes, steps) = sizes(writes);
        bytes <= MOST_BYTES / 8 && steps <= MOST_STEPS / 4 && writes.iter().all(Write::is_plain)
    }

    /// `connections` returns the current number of connections.
    pub(super) fn new(kv: &Kv, connections: impl Fn() -> usize + Send + Sync + 'static) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        tokio::spawn(carry(kv.clone(), receiver, connections));
        Self(sender)
    }

    /// Executes writes of one connection. Returns the answer to each of them.
    pub(super) async fn make(&self, writes: Vec<Write>) -> Reply {
        let (done, reply) = oneshot::channel();
        if self.0.send(QueuedWrites { writes, done }).await.is_err() {
            return Reply::Error("BUSY this node is stopping".into());
        }
        reply.await.unwrap_or_else(|_| Reply::Error("UNKNOWN this node is stopping".into()))
    }
}

/// Gathers queued writes and sends them as updates, until the senders of the queue are dropped.
async fn carry(kv: Kv, mut queue: Receiver<QueuedWrites>, connections: impl Fn() -> usize) {
    let mut taken = Vec::new();
    while queue.recv_many(&mut taken, QUEUE).await > 0 {
        gather(&mut taken, &mut queue, &connections).await;
        let mut under_way = JoinSet::new();
        for update in updates(taken.drain(..)) {
            under_way.spawn(make(kv.clone(), update));
        }
        let all = async { while under_way.join_next().await.is_some() {} };
        drop(timeout(MAX_UPDATE_WAIT, all).await);
        under_way.detach_all();
    }
}

/// Gives connections that have just been answered time to send again. A connection waits for its writes, so once all
/// have sent there is no point in yielding further: each yield may cost a system call.
async fn gather(taken: &mut Vec<QueuedWrites>, queue: &mut Receiver<QueuedWrites>, connections: impl Fn() -> usize) {
    for _ in 0..YIELDS {
        if taken.len() + queue.len() >= connections() {
            break;
        }
        yield_now().await;
    }
    while let Ok(more) = queue.try_recv() {
        taken.push(more);
    }
}

/// Packs writes, in their order, into updates within the limits of bytes and steps.
fn updates(waiting: impl Iterator<Item = QueuedWrites>) -> Vec<Vec<QueuedWrites>> {
    let (mut updates, mut bytes, mut steps) = (vec![Vec::new()], 0, 0);
    for next in waiting {
        let (more, others) = sizes(&next.writes);
        (bytes, steps) = (bytes + more, steps + others);
        if bytes > MOST_BYTES || steps > MOST_STEPS {
            (bytes, steps) = (more, others);
            updates.push(Vec::new());
        }
        if let Some(update) = updates.last_mut() {
            update.push(next);
        }
    }
    updates
}

async fn make(kv: Kv, update: Vec<QueuedWrites>) {
    let writes = update.iter().flat_map(|waiting| &waiting.writes);
    match script::make_plain(&kv, writes).await {
        // The head may have other limits than this node, and the refusal doesn't name the write that it concerns. So
        // the writes of each connection are executed separately.
        Err(error) if update.len() > 1 && is_about_content(&error) => {
            for waiting in update {
                let done = script::make_plain(&kv, &waiting.writes).await;
                waiting.answer(done);
            }
        }
        done => update.into_iter().for_each(|waiting| waiting.answer(done.clone())),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Waker},
    };

    use super::*;
    use crate::resp::{
        expiry::Expires,
        write::{SetAnswer, When},
    };

    fn waiting(bytes: usize) -> QueuedWrites {
        let (key, value) = ("k".into(), vec![0; bytes - 1].into());
        let (when, answer, expires) = (When::Always, SetAnswer::Word, Expires::Never);
        let write = Write::Set { key, value, when, answer, expires };
        QueuedWrites { writes: vec![write], done: oneshot::channel().0 }
    }

    #[test]
    fn an_update_is_full_before_the_next_begins() {
        let lengths = |sizes: &[usize]| {
            let updates = updates(sizes.iter().map(|bytes| waiting(*bytes)));
            updates.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(lengths(&[1; 10]), [10]);
        assert_eq!(lengths(&[MOST_BYTES / 8; 20]), [8, 8, 4]);
        assert_eq!(lengths(&[1; MOST_STEPS]), [MOST_STEPS / 2; 2], "a set may be two steps");
    }

    #[test]
    fn an_update_leaves_once_all_connections_have_come() {
        let mut context = Context::from_waker(Waker::noop());
        let (sender, mut queue) = mpsc::channel(QUEUE);
        let mut taken = vec![waiting(1)];
        assert!(
            pin!(gather(&mut taken, &mut queue, || 1)).poll(&mut context).is_ready(),
            "the only connection has already sent"
        );
        {
            let mut three = pin!(gather(&mut taken, &mut queue, || 3));
            assert!(three.as_mut().poll(&mut context).is_pending());
            assert!(sender.try_send(waiting(1)).is_ok());
            assert!(three.as_mut().poll(&mut context).is_pending());
            assert!(sender.try_send(waiting(1)).is_ok());
            assert!(three.as_mut().poll(&mut context).is_ready());
        }
        assert_eq!(taken.len(), 3);
        let mut four = pin!(gather(&mut taken, &mut queue, || 4));
        let yields = (0..=YIELDS).position(|_| four.as_mut().poll(&mut context).is_ready());
        assert_eq!(yields, Some(YIELDS), "the wait for a connection that doesn't write is bounded");
    }

    #[test]
    fn large_and_conditional_writes_travel_alone() {
        assert!(Together::takes(&waiting(MOST_BYTES / 8).writes));
        assert!(!Together::takes(&waiting(MOST_BYTES / 8 + 1).writes));
        let (key, value) = ("k".into(), "v".into());
        let (when, answer, expires) = (When::Absent, SetAnswer::Word, Expires::Never);
        assert!(!Together::takes(&[Write::Set { key, value, when, answer, expires }]));
    }
}
