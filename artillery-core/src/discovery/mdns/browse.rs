//! The stream of candidates: answers to a one-shot query, and nodes that the continuous search finds and loses.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures_core::Stream;
use mdns_sd::{DaemonEvent, Receiver, ServiceEvent};
use tokio::time::{Instant, Sleep, sleep_until};

use super::{
    MdnsDaemon, MdnsError, MdnsSettings, MdnsShared, SERVICE_TYPE, found, one_shot::FirstAnswers, unavailable,
    unconfirmed::Unconfirmed,
};
use crate::discovery::Candidate;

/// Maximum number of instances remembered by one stream. The removal of any further instance is not reported.
const MAX_INSTANCES: usize = 4096;

type BoxedStream<T> = Pin<Box<dyn Stream<Item = T> + Send>>;

fn stream<T: Send + 'static>(receiver: Receiver<T>) -> BoxedStream<T> {
    Box::pin(receiver.into_stream())
}

pub(super) struct MdnsBrowse {
    first: FirstAnswers,
    unconfirmed: Unconfirmed,
    /// Fires when the next unconfirmed answer must be withdrawn.
    withdrawal: Option<Pin<Box<Sleep>>>,
    events: BoxedStream<ServiceEvent>,
    troubles: Option<BoxedStream<DaemonEvent>>,
    found: BTreeMap<String, Candidate>,
    cluster: String,
    shared: Arc<MdnsShared>,
    daemon: MdnsDaemon,
}

impl MdnsBrowse {
    pub(super) fn start(
        daemon: MdnsDaemon,
        settings: &MdnsSettings,
        shared: &Arc<MdnsShared>,
    ) -> Result<Self, MdnsError> {
        let troubles = daemon.0.monitor().map_err(unavailable)?;
        let events = daemon.0.browse(SERVICE_TYPE).map_err(unavailable)?;
        Ok(Self {
            first: FirstAnswers::new(settings),
            unconfirmed: Unconfirmed::default(),
            withdrawal: None,
            events: stream(events),
            troubles: Some(stream(troubles)),
            found: BTreeMap::new(),
            cluster: settings.cluster.clone(),
            shared: shared.clone(),
            daemon,
        })
    }

    fn is_me(&self, candidate: &Candidate) -> bool {
        candidate.node.is_some_and(|node| self.shared.is_me(node))
    }

    /// Filters an answer to the one-shot query, omitting addresses that the continuous search has already found.
    fn take_answer(&mut self, mut answer: Candidate) -> Option<Candidate> {
        for known in self.found.values().filter(|known| known.node == answer.node) {
            answer.addrs.retain(|addr| !known.addrs.contains(addr));
        }
        if answer.addrs.is_empty() || self.is_me(&answer) {
            return None;
        }
        self.unconfirmed.on_answer(&answer, Instant::now()).then_some(answer)
    }

    fn poll_first(&mut self, context: &mut Context<'_>) -> Option<Candidate> {
        while let Poll::Ready(Some(answer)) = self.first.poll(context) {
            if let Some(candidate) = self.take_answer(answer) {
                return Some(candidate);
            }
        }
        None
    }

    fn poll_withdrawal(&mut self, context: &mut Context<'_>) -> Poll<Candidate> {
        while let Some(next) = self.unconfirmed.next_withdrawal() {
            if let Some(candidate) = self.unconfirmed.withdraw(Instant::now()) {
                return Poll::Ready(candidate);
            }
            let timer = self.withdrawal.get_or_insert_with(|| Box::pin(sleep_until(next)));
            timer.as_mut().reset(next);
            ready!(timer.as_mut().poll(context));
        }
        Poll::Pending
    }

    fn take(&mut self, event: ServiceEvent) -> Option<Candidate> {
        match event {
            ServiceEvent::ServiceResolved(service) => {
                let candidate = found::read(&service, &self.cluster)?;
                if self.is_me(&candidate) {
                    return None;
                }
                if self.found.len() < MAX_INSTANCES || self.found.contains_key(&service.fullname) {
                    self.found.insert(service.fullname.clone(), candidate.clone());
                    self.unconfirmed.on_confirmed(&candidate);
                }
                Some(candidate)
            }
            ServiceEvent::ServiceRemoved(_, full_name) => {
                let candidate = self.found.remove(&full_name)?;
                Some(candidate.withdrawn())
            }
            _ => None,
        }
    }

    fn note_troubles(&mut self, context: &mut Context<'_>) {
        while let Some(troubles) = &mut self.troubles {
            match troubles.as_mut().poll_next(context) {
                Poll::Ready(Some(DaemonEvent::Error(error))) => self.shared.complain(&error),
                Poll::Ready(Some(_)) => {}
                Poll::Ready(None) => self.troubles = None,
                Poll::Pending => return,
            }
        }
    }

    fn poll_events(&mut self, context: &mut Context<'_>) -> Poll<Option<Candidate>> {
        loop {
            match self.events.as_mut().poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(event)) => {
                    if let Some(candidate) = self.take(event) {
                        return Poll::Ready(Some(candidate));
                    }
                }
                // The daemon drops a listener that has fallen behind. Browse again.
                Poll::Ready(None) => match self.daemon.0.browse(SERVICE_TYPE) {
                    Ok(events) => self.events = stream(events),
                    Err(error) => {
                        self.shared.complain(&error);
                        return Poll::Ready(None);
                    }
                },
            }
        }
    }
}

impl Stream for MdnsBrowse {
    type Item = Candidate;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Candidate>> {
        let this = self.get_mut();
        this.note_troubles(context);
        if let Some(candidate) = this.poll_first(context) {
            return Poll::Ready(Some(candidate));
        }
        // Before withdrawals: an answer that was confirmed in time must not be withdrawn only because the poll was
        // late.
        if let Poll::Ready(next) = this.poll_events(context) {
            return Poll::Ready(next);
        }
        this.poll_withdrawal(context).map(Some)
    }
}
