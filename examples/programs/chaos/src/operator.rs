//! The operator gives orders on its own schedule, concurrently with the faults.

use std::{cell::RefCell, time::Duration};

use artillery_programs::{exit::Failure, story::Story};
use tokio::time::{Instant, sleep};

use super::{
    cluster::Cluster,
    desk::Desk,
    fault::name,
    orders::{Draw, Moment, Order, Orders, Work, rearranged},
    report::Skipped,
    set::NodeSet,
    tally::{Given, OrderOutcome, Tally},
    view::{Taking, View},
};

/// How long to wait after a drain until the node may be stopped.
const UNTIL_ALLOWED: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

pub(super) struct Operator<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) desk: &'a Desk,
    pub(super) tally: &'a RefCell<Tally>,
    pub(super) skipped: &'a Skipped,
    pub(super) story: &'a Story,
    pub(super) begin: Instant,
}

impl Operator<'_> {
    /// Gives orders until this future is dropped. Returns only on a failure, for example of a node that doesn't stop.
    pub(super) async fn run(&self, seed: u64) -> Failure {
        let mut orders = Orders::new(seed, self.cluster.size(), self.cluster.is_durable());
        // The most recently restarted nodes. Until they are ready, no other node is restarted or drained.
        let mut last = NodeSet::default();
        loop {
            let mut draw = orders.next();
            if self.tally.borrow().lags() {
                draw.moment = Moment::During(Duration::ZERO);
            }
            sleep(draw.pause).await;
            let Some(order) = self.begin(&draw, last).await else { continue };
            let (fault, faults) = self.desk.fault();
            let begin = Instant::now();
            let done = self.carry_out(&order, &draw).await;
            self.desk.ends();
            let (now, many) = self.desk.fault();
            let (outcome, text) = match done {
                Ok(done) => done,
                Err(failure) => return failure,
            };
            if !order.takes().is_empty() {
                last = order.takes();
            }
            let struck = (many > faults).then_some(now).flatten();
            let given = Given {
                at: begin.duration_since(self.begin).as_secs_f64(),
                order: order.to_string(),
                work: order.work(),
                beside: fault.or(struck).map(|fault| fault.to_string()),
                outcome,
                text,
                ms: begin.elapsed().as_millis() as u64,
            };
            self.story.say(&given.line());
            self.tally.borrow_mut().add(given);
        }
    }

    /// Waits until an order may begin, and returns it; `None` if none is allowed.
    async fn begin(&self, draw: &Draw, last: NodeSet) -> Option<Order> {
        loop {
            self.desk.waits(draw.moment).await;
            let _decision = self.desk.decide().await;
            let view = self.cluster.view().await;
            let order = self.choose(draw, &view, last)?;
            if self.desk.begins(&order) {
                return Some(order);
            }
        }
    }

    fn choose(&self, draw: &Draw, view: &View, last: NodeSet) -> Option<Order> {
        let reorder = || {
            let members = rearranged(&view.members, draw.pick);
            members.map(Order::Reorder).or_else(|| self.skip("reorder of fewer than two members"))
        };
        // A node with a changed directory may end by itself.
        let may_stop = |node: &usize| self.cluster.nodes.runs(*node) && !self.desk.touched().contains(*node);
        let running: Vec<_> = (0..self.cluster.size()).filter(may_stop).collect();
        let node = draw.pick.checked_rem(running.len() as u64).map(|place| running[place as usize]);
        let (Some(node), true) = (node, draw.work != Work::Reorder) else { return reorder() };
        // Operators restart the next node only once the previous one is ready.
        if last.iter().any(|last| last != node && !view.ready.contains(&name(last))) {
            self.skipped.add("SIGTERM or drain before the node that was restarted last is ready");
            return reorder();
        }
        if let Some(why) = self.forbids(view, node) {
            self.skipped.add(&why);
            return reorder();
        }
        Some(match draw.work {
            Work::Drain => Order::Drain(node),
            Work::RestartAll => Order::RestartAll(running.into_iter().collect()),
            Work::Reorder | Work::Restart => Order::Restart(node),
        })
    }

    fn skip<T>(&self, what: &str) -> Option<T> {
        self.skipped.add(what);
        None
    }

    fn forbids(&self, view: &View, node: usize) -> Option<String> {
        // A node with a directory keeps its data across a restart.
        if self.cluster.is_durable() {
            return None;
        }
        let away = self.desk.away().without(NodeSet::of(node));
        let why = view.forbids(Taking::Stop, node, away)?;
        let beside = if self.desk.fault().0.is_some() { "beside a fault" } else { "without a fault" };
        Some(format!("{why} {beside}"))
    }

    async fn carry_out(&self, order: &Order, draw: &Draw) -> Result<(OrderOutcome, Option<String>), Failure> {
        match order {
            Order::Reorder(members) => {
                let mut args = vec!["reorder", "0"];
                args.extend(members.iter().map(String::as_str));
                Ok(self.cluster.order(draw.asked, &args).await)
            }
            Order::Drain(node) => {
                let done = self.cluster.order(draw.asked, &["drain", &name(*node)]).await;
                // Other nodes may have stopped in the meantime, so that only this one has the data.
                let end = Instant::now() + UNTIL_ALLOWED;
                while self.forbids(&self.cluster.view().await, *node).is_some() {
                    if Instant::now() >= end {
                        self.skipped.add("SIGTERM of a drained node that is the only serving member");
                        return Ok(done);
                    }
                    sleep(POLL_INTERVAL).await;
                }
                self.restart(NodeSet::of(*node), draw).await?;
                Ok(done)
            }
            Order::Restart(node) => self.restart(NodeSet::of(*node), draw).await.map(|()| (OrderOutcome::Done, None)),
            Order::RestartAll(nodes) => self.restart(*nodes, draw).await.map(|()| (OrderOutcome::Done, None)),
        }
    }

    async fn restart(&self, nodes: NodeSet, draw: &Draw) -> Result<(), Failure> {
        self.cluster.nodes.stop(nodes).await?;
        sleep(draw.down).await;
        if self.cluster.is_durable() && draw.pick.is_multiple_of(3) {
            self.cluster.move_ports(nodes);
        }
        nodes.iter().try_for_each(|node| self.cluster.start(node))
    }
}
