//! The desk coordinates faults and orders: it records the current one of each, and decides when an order may begin.

use std::time::Duration;

use tokio::{
    sync::{Mutex, MutexGuard, watch},
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    fault::Fault,
    orders::{Moment, Order},
    set::NodeSet,
};

/// How long a check of the nodes after a heal waits for the current order.
pub(super) const ORDER_BOUND: Duration = Duration::from_secs(60);

#[derive(Default)]
struct DeskState {
    fault: Option<(Fault, Instant)>,
    next: Option<Instant>,
    faults: u64,
    /// While set, no order begins.
    is_closed: bool,
    order: Option<Order>,
    ended: Option<Instant>,
    /// Nodes that orders removed during the fault, or were removing when it began.
    taken: NodeSet,
}

impl DeskState {
    fn takes(&self) -> NodeSet {
        self.order.as_ref().map(Order::takes).unwrap_or_default()
    }
}

pub(super) struct Desk {
    state: watch::Sender<DeskState>,
    /// Held from querying the nodes until the resulting decision is recorded here.
    decision: Mutex<()>,
}

impl Desk {
    pub(super) fn new() -> Self {
        Self { state: watch::Sender::new(DeskState::default()), decision: Mutex::new(()) }
    }

    /// Blocks other decisions while the guard is held.
    pub(super) async fn decide(&self) -> MutexGuard<'_, ()> {
        self.decision.lock().await
    }

    /// Nodes that are unreachable or being removed.
    pub(super) fn away(&self) -> NodeSet {
        let state = self.state.borrow();
        let fault = state.fault.map(|(fault, _)| fault.removes()).unwrap_or_default();
        fault.and(state.takes())
    }

    pub(super) fn takes(&self) -> NodeSet {
        self.state.borrow().takes()
    }

    /// Nodes whose directory a fault changes.
    pub(super) fn touched(&self) -> NodeSet {
        self.state.borrow().fault.map(|(fault, _)| fault.touched).unwrap_or_default()
    }

    pub(super) fn strikes(&self, fault: Fault) {
        self.state.send_modify(|state| {
            state.fault = Some((fault, Instant::now()));
            state.next = None;
            state.faults += 1;
            state.taken = state.takes();
        });
    }

    /// Records the end of the fault. No order begins until [`Desk::open`].
    pub(super) fn heals(&self) {
        self.state.send_modify(|state| (state.fault, state.is_closed) = (None, true));
    }

    pub(super) fn open(&self) {
        self.state.send_modify(|state| state.is_closed = false);
    }

    /// No order begins until [`Desk::open`].
    pub(super) fn close(&self) {
        self.state.send_modify(|state| state.is_closed = true);
    }

    pub(super) fn taken(&self) -> NodeSet {
        self.state.borrow().taken
    }

    /// Waits for the current order. Returns when the last order ended; the error names an order that didn't end within
    /// [`ORDER_BOUND`].
    pub(super) async fn idle(&self) -> Result<Option<Instant>, String> {
        let mut state = self.state.subscribe();
        let idle = timeout_at(Instant::now() + ORDER_BOUND, state.wait_for(|state| state.order.is_none())).await;
        match idle {
            Ok(state) => Ok(state.ok().and_then(|state| state.ended)),
            Err(_) => Err(self.state.borrow().order.as_ref().map(Order::to_string).unwrap_or_default()),
        }
    }

    /// When the last order ended; now if an order is in progress.
    pub(super) fn last_order(&self) -> Option<Instant> {
        let state = self.state.borrow();
        if state.order.is_some() { Some(Instant::now()) } else { state.ended }
    }

    /// Waits until the given moment of an order is due and orders may begin.
    pub(super) async fn waits(&self, moment: Moment) {
        let at = |state: &DeskState| match (moment, state.fault, state.next) {
            (Moment::During(lag), Some((_, since)), _) => Some(since + lag),
            (Moment::Before(lead), None, Some(next)) => next.checked_sub(lead),
            _ => None,
        };
        let may = |state: &DeskState| if state.is_closed { None } else { at(state) };
        let mut changes = self.state.subscribe();
        loop {
            // Every later change wakes the waits below.
            let due = may(&changes.borrow_and_update());
            let Some(due) = due else {
                // Never an error: `self` owns the sender.
                _ = changes.changed().await;
                continue;
            };
            tokio::select! {
                () = sleep_until(due) => return,
                _ = changes.changed() => {}
            }
        }
    }

    pub(super) fn plans(&self, next: Instant) {
        self.state.send_modify(|state| state.next = Some(next));
    }

    pub(super) fn fault(&self) -> (Option<Fault>, u64) {
        let state = self.state.borrow();
        (state.fault.map(|(fault, _)| fault), state.faults)
    }

    /// Records the start of an order; false if no order may begin now.
    pub(super) fn begins(&self, order: &Order) -> bool {
        self.state.send_if_modified(|state| {
            if !state.is_closed {
                state.order = Some(order.clone());
                state.taken = state.taken.and(order.takes());
            }
            !state.is_closed
        })
    }

    pub(super) fn ends(&self) {
        self.state.send_modify(|state| (state.order, state.ended) = (None, Some(Instant::now())));
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::{super::fault::Kind, *};

    fn fault(kind: Kind, victim: usize) -> Fault {
        Fault::of(kind, victim, 1)
    }

    #[test]
    fn victims_of_faults_and_orders_are_away() {
        let desk = Desk::new();
        assert!(desk.begins(&Order::Drain(2)));
        desk.strikes(fault(Kind::Isolate, 0));
        assert_eq!((desk.away(), desk.takes()), ([0, 2].into_iter().collect(), NodeSet::of(2)));
        assert_eq!(desk.taken(), NodeSet::of(2));
        desk.ends();
        assert_eq!((desk.away(), desk.takes()), (NodeSet::of(0), NodeSet::default()));
        assert_eq!(desk.taken(), NodeSet::of(2), "it was taken while the fault lasted");
        desk.heals();
        desk.strikes(fault(Kind::Cut, 0));
        assert!(desk.away().is_empty() && desk.taken().is_empty());
        desk.strikes(Fault { touched: NodeSet::of(2), others: NodeSet::of(1), ..fault(Kind::Wipe, 2) });
        assert_eq!((desk.away(), desk.touched()), ([1, 2].into_iter().collect(), NodeSet::of(2)));
    }

    #[test]
    fn after_a_heal_no_order_begins_until_it_may() {
        let desk = Desk::new();
        desk.strikes(fault(Kind::Slow, 0));
        desk.heals();
        assert!(!desk.begins(&Order::Restart(1)));
        desk.open();
        assert!(desk.begins(&Order::Restart(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_order_during_a_fault_waits_for_one_that_lasts_long_enough() {
        let desk = Desk::new();
        let lag = Duration::from_millis(500);
        let faults = async {
            desk.strikes(fault(Kind::Slow, 0));
            sleep(lag / 2).await;
            desk.heals();
            desk.open();
            sleep(lag * 2).await;
            desk.strikes(fault(Kind::Slow, 1));
            Instant::now()
        };
        let ((), second) = tokio::join!(desk.waits(Moment::During(lag)), faults);
        assert_eq!(Instant::now(), second + lag);
    }

    #[tokio::test(start_paused = true)]
    async fn an_order_before_a_fault_comes_when_one_is_planned() {
        let desk = Desk::new();
        let lead = Duration::from_millis(200);
        let next = Instant::now() + Duration::from_secs(3);
        let faults = async {
            sleep(Duration::from_secs(1)).await;
            desk.plans(next);
        };
        tokio::join!(desk.waits(Moment::Before(lead)), faults);
        assert_eq!(Instant::now(), next - lead);
    }

    #[tokio::test(start_paused = true)]
    async fn an_order_that_never_ends_is_named() {
        let desk = Desk::new();
        assert_eq!(desk.idle().await, Ok(None));
        assert!(desk.begins(&Order::Restart(1)));
        assert_eq!(desk.idle().await, Err("restart n2".to_owned()));
    }
}
