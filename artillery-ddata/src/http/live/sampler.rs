//! The task that samples a node and publishes to the viewers.

use std::{future::pending, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until};

use super::{
    feed::Feed,
    reports::Reports,
    sample::{Reading, Sample},
    snapshot::PageSnapshot,
    unix_ms,
};
use crate::{
    Node, NodeId,
    http::slot::NodeSlot,
    node::{NodeEvent, NodeEvents},
    status::GossipState,
};

/// The time between two samples while the page is viewed.
const PERIOD: Duration = Duration::from_secs(1);
/// The time between two samples without viewers.
const IDLE_PERIOD: Duration = Duration::from_secs(5);
/// A snapshot waits this long for the reports of its round. Later ones are in the next snapshot.
const GATHER_TIME: Duration = Duration::from_millis(400);

/// A change is published this long after the first event of a burst: one failure may change thousands of chains.
const BURST: Duration = Duration::from_millis(100);

pub(super) struct Sampler {
    slot: NodeSlot,
    feed: Arc<Feed>,
    events: Events,
    reports: Reports,
    /// When the present round began; `None` before the first one.
    began: Option<Instant>,
    /// Whether reports of the present round are awaited.
    is_gathering: bool,
    /// When the changes of the latest events are published. `None`: they are.
    changes_due: Option<Instant>,
    reading: Option<Reading>,
    sample: Sample,
}

enum Events {
    NotStarted,
    Following(NodeEvents),
}

impl Events {
    /// Waits for an event; `None`: the node has stopped.
    async fn next(&mut self) -> Option<NodeEvent> {
        match self {
            Self::NotStarted => pending().await,
            Self::Following(events) => events.next().await,
        }
    }
}

impl Sampler {
    pub(super) fn new(slot: NodeSlot, feed: Arc<Feed>) -> Self {
        Self {
            slot,
            feed,
            events: Events::NotStarted,
            reports: Reports::default(),
            began: None,
            is_gathering: false,
            changes_due: None,
            reading: None,
            sample: Sample::default(),
        }
    }

    /// Runs until the node has stopped.
    pub(super) async fn run(mut self) {
        let mut changes = self.slot.changes();
        loop {
            self.follow();
            let (due, changes_due) = (self.due(), self.changes_due);
            tokio::select! {
                () = sleep_until(due) => self.step(),
                () = sleep_until(changes_due.unwrap_or(due)), if changes_due.is_some() => self.publish(),
                Some(()) = self.reports.receive() => if self.reports.is_complete() { self.finish_round() },
                event = self.events.next() => match event {
                    Some(event) => self.on_event(&event),
                    None => break,
                },
                () = changes.next() => self.publish(),
                () = self.feed.arrival() => {}
            }
        }
        self.publish();
        self.feed.close();
    }

    /// Follows the node's events as soon as it has started.
    fn follow(&mut self) {
        if let (Events::NotStarted, Some(node)) = (&self.events, self.slot.node()) {
            self.events = Events::Following(node.events());
        }
    }

    /// When the next step is due.
    fn due(&self) -> Instant {
        let Some(began) = self.began else { return Instant::now() };
        let until_due = match (self.is_gathering, self.feed.is_viewed()) {
            (true, _) => GATHER_TIME,
            (false, true) => PERIOD,
            (false, false) => IDLE_PERIOD,
        };
        began + until_due
    }

    fn step(&mut self) {
        if self.is_gathering {
            return self.finish_round();
        }
        self.began = Some(Instant::now());
        match self.slot.node() {
            Some(node) => {
                self.is_gathering = true;
                let others = if self.feed.is_viewed() { others(&node) } else { Vec::new() };
                self.reports.begin(&node, others);
            }
            None => self.publish(),
        }
    }

    fn finish_round(&mut self) {
        if !std::mem::take(&mut self.is_gathering) {
            return;
        }
        if let Some(own) = self.reports.own() {
            let reading = Reading::new(&own.metrics, own.at);
            if let Some(before) = self.reading.replace(reading.clone())
                && before.at() < reading.at()
            {
                self.sample = reading.since(&before, unix_ms());
                self.feed.record(self.sample);
            }
        }
        self.publish();
    }

    /// Publishes an event at once, and soon the configuration after it. The figures are those of the last round.
    fn on_event(&mut self, event: &NodeEvent) {
        self.feed.event(event);
        self.changes_due.get_or_insert_with(|| Instant::now() + BURST);
    }

    fn publish(&mut self) {
        self.changes_due = None;
        if !self.feed.is_viewed() {
            return self.feed.forget_snapshot();
        }
        let node = self.slot.node();
        if let Some(routing) = node.as_ref().and_then(Node::routing) {
            self.reports.retain(&routing);
        }
        let loading = self.slot.loading().map(Into::into);
        self.feed.snapshot(&PageSnapshot::new(node.as_ref(), loading, &self.reports, self.sample));
    }
}

/// The other nodes of the cluster that may answer.
fn others(node: &Node) -> Vec<NodeId> {
    let Some(routing) = node.routing() else { return Vec::new() };
    let members = node.cluster().members();
    let may_answer = |id: NodeId| {
        members.iter().any(|member| {
            member.id.node == id && matches!(GossipState::from(member.state), GossipState::Alive | GossipState::Suspect)
        })
    };
    routing.nodes.keys().copied().filter(|&id| id != node.id().node && may_answer(id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_of_events_has_one_snapshot() {
        let feed = Arc::<Feed>::default();
        let (_, mut viewer) = feed.join().unwrap();
        let mut sampler = Sampler::new(NodeSlot::new(), feed.clone());
        let began = Instant::now();
        sampler.began = Some(began);
        for _ in 0..10 {
            sampler.on_event(&NodeEvent::LeaseLost);
        }
        let task = tokio::spawn(sampler.run());
        for _ in 0..10 {
            assert!(viewer.recv().await.unwrap().starts_with(b"event: event\n"));
        }
        assert!(viewer.recv().await.unwrap().starts_with(b"event: snapshot\n"));
        assert!(began.elapsed() < PERIOD);
        assert!(viewer.recv().await.unwrap().starts_with(b"event: snapshot\n"));
        assert!(began.elapsed() >= PERIOD, "the next is that of the next round");
        task.abort();
    }
}
