//! A socket towards the target for each client.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use tokio::task::{AbortHandle, JoinSet};

use super::socket::Socket;

/// Maximum number of concurrent clients. A further one replaces the one that has been silent for the longest time.
const MAX_FLOWS: usize = 256;

#[derive(Debug)]
pub(super) struct Flow {
    pub(super) socket: Socket,
    pub(super) target: SocketAddr,
}

struct Entry {
    flow: Arc<Flow>,
    answers: AbortHandle,
    last_heard: u64,
}

pub(super) struct Flows {
    target: SocketAddr,
    entries: BTreeMap<SocketAddr, Entry>,
    heard: u64,
    tasks: JoinSet<()>,
}

impl Flows {
    pub(super) fn new(target: SocketAddr) -> Self {
        Self { target, entries: BTreeMap::new(), heard: 0, tasks: JoinSet::new() }
    }

    /// The flow of this client. For a new client, spawns `answers`, which receives from the target.
    pub(super) fn of<F>(&mut self, client: SocketAddr, answers: impl FnOnce(Arc<Flow>) -> F) -> io::Result<Arc<Flow>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.heard += 1;
        if let Some(entry) = self.entries.get_mut(&client) {
            entry.last_heard = self.heard;
            return Ok(entry.flow.clone());
        }
        // Discard the results of ended tasks.
        while self.tasks.try_join_next().is_some() {}
        if self.entries.len() >= MAX_FLOWS {
            self.forget_oldest();
        }
        let any = match self.target {
            SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let flow = Arc::new(Flow { socket: Socket::bind((any, 0).into())?, target: self.target });
        let answers = self.tasks.spawn(answers(flow.clone()));
        self.entries.insert(client, Entry { flow: flow.clone(), answers, last_heard: self.heard });
        Ok(flow)
    }

    fn forget_oldest(&mut self) {
        let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.last_heard).map(|(client, _)| *client);
        if let Some(entry) = oldest.and_then(|client| self.entries.remove(&client)) {
            entry.answers.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn clients_are_bounded_and_keep_their_socket() {
        let mut flows = Flows::new((Ipv4Addr::LOCALHOST, 9).into());
        let client = |port: usize| SocketAddr::from((Ipv4Addr::LOCALHOST, port as u16));
        let first = flows.of(client(1), |_| std::future::pending()).unwrap();
        for port in 2..=MAX_FLOWS + 1 {
            flows.of(client(port), |_| std::future::pending()).unwrap();
            assert!(port > MAX_FLOWS || Arc::ptr_eq(&first, &flows.of(client(1), |_| async {}).unwrap()));
        }
        assert_eq!(flows.entries.len(), MAX_FLOWS);
        assert!(flows.entries.contains_key(&client(1)) && !flows.entries.contains_key(&client(2)));
    }
}
