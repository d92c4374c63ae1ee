//! The desk coordinates faults and orders: which of each is under way, and when an order may begin.

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

/// The longest that a check of the nodes after a heal waits for the order under way.
pub(super) const ORDER_BOUND: Duration = Duration::from_secs(60);

#[derive(Default)]
struct DeskState {
    /// The fault that lasts, and since when.
    fault: Option<(Fault, Instant)>,
    /// When the next one is to begin.
    next: Option<Instant>,
    /// Faults so far.
    faults: u64,
    /// No order begins.
    is_closed: bool,
    order: Option<Order>,
    /// When the last order ended.
    ended: Option<Instant>,
    /// Nodes that orders have taken away since the fault began.
    taken: NodeSet,
}

impl DeskState {
    fn takes(&self) -> NodeSet {
        self.order.as_ref().map(Order::takes).unwrap_or_default()
    }
}

pub(super) struct Desk {
    state: watch::Sender<DeskState>,
    /// Held from a query of the nodes until the decision that it led to is recorded here.
    decision: Mutex<()>,
}

impl Desk {
    pub(super) fn new() -> Self {
        Self { state: watch::Sender::new(DeskState::default()), decision: Mutex::new(()) }
    }

    /// Keeps other decisions waiting.
    pub(super) async fn decide(&self) -> MutexGuard<'_, ()> {
        self.decision.lock().await
    }

    /// Nodes that are out of reach, or are being taken away.
    pub(super) fn away(&self) -> NodeSet {
        let state = self.state.borrow();
        let fault = state.fault.map(|(fault, _)| fault.removes()).unwrap_or_default();
        fault.and(state.takes())
    }

    /// Nodes that the order under way takes away.
    pub(super) fn takes(&self) -> NodeSet {
        self.state.borrow().takes()
    }

    /// Nodes of which a fault changes the directory.
    pub(super) fn touched(&self) -> NodeSet {
        self.state.borrow().fault.map(|(fault, _)| fault.touched).unwrap_or_default()
    }

    /// A fault begins.
    pub(super) fn strikes(&self, fault: Fault) {
        self.state.send_modify(|state| {
            state.fault = Some((fault, Instant::now()));
            state.next = None;
            state.faults += 1;
            state.taken = state.takes();
        });
    }

    /// It ends. No order begins until [`Desk::open`].
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

    /// Nodes that orders have taken away since the fault began.
    pub(super) fn taken(&self) -> NodeSet {
        self.state.borrow().taken
    }

    /// Waits for the order under way. Returns when the last order ended; an error names an order that didn't end in
    /// time.
    pub(super) async fn idle(&self) -> Result<Option<Instant>, String> {
        let mut state = self.state.subscribe();
        let idle = timeout_at(Instant::now() + ORDER_BOUND, state.wait_for(|state| state.order.is_none())).await;
        match idle {
            Ok(state) => Ok(state.ok().and_then(|state| state.ended)),
            Err(_) => Err(self.state.borrow().order.as_ref().map(Order::to_string).unwrap_or_default()),
        }
    }

    /// When the last order ended: now, if one is under way.
    pub(super) fn last_order(&self) -> Option<Instant> {
        let state = self.state.borrow();
        if state.order.is_some() { Some(Instant::now()) } else { state.ended }
    }

    /// Waits for the moment of an order, and until an order may begin.
    pub(super) async fn waits(&self, moment: Moment) {
        let at = |state: &DeskState| match (moment, state.fault, state.next) {
            (Moment::During(lag), Some((_, since)), _) => Some(since + lag),
            (Moment::Before(lead), None, Some(next)) => next.checked_sub(lead),
            _ => None,
        };
        let may = |state: &DeskState| if state.is_closed { None } else { at(state) };
        let mut changes = self.state.subscribe();
        loop {
            // Sees each change from here on.
            let due = may(&changes.borrow_and_update());
            let Some(due) = due else {
                // The sender lives as long as `self`.
                _ = changes.changed().await;
                continue;
            };
            tokio::select! {
                () = sleep_until(due) => return,
                _ = changes.changed() => {}
            }
        }
    }

    /// Announces when the next fault is to begin.
    pub(super) fn plans(&self, next: Instant) {
        self.state.send_modify(|state| state.next = Some(next));
    }

    /// The fault that lasts, and how many there were.
    pub(super) fn fault(&self) -> (Option<Fault>, u64) {
        let state = self.state.borrow();
        (state.fault.map(|(fault, _)| fault), state.faults)
    }

    /// Begins an order. False: it must not begin now.
    pub(super) fn begins(&self, order: &Order) -> bool {
        self.state.send_if_modified(|state| {
            if !state.is_closed {
                state.order = Some(order.clone());
                state.taken = state.taken.and(order.takes());
            }
            !state.is_closed
        })
    }

    /// The order under way has ended.
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
        assert_eq!(desk.taken(), NodeSet::of(2), "while the fault lasted");
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
