//! One fault after the other, and a check of the nodes after each.

use std::{sync::Arc, time::Duration};

use artillery_programs::{exit::Failure, story::Story};
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    aim::Aims,
    args::ChaosArgs,
    book::Book,
    cluster::Cluster,
    desk::{Desk, ORDER_BOUND},
    fault::{Fault, Kind, Plan, name},
    isolation::{self, Isolation},
    recovery,
    report::{FaultRound, Skipped, Summary},
    view::View,
};

/// The time without a fault between two faults.
const CALM: Duration = Duration::from_millis(700);
/// When nodes aren't whole for this long, no order disturbs them any more.
const UNDISTURBED: Duration = Duration::from_secs(20);

pub(super) struct Rounds<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) desk: &'a Desk,
    pub(super) book: &'a Arc<Book>,
    pub(super) skipped: &'a Skipped,
    pub(super) story: &'a Story,
    pub(super) begin: Instant,
}

/// Observations while a fault lasted.
struct Suffered {
    /// What the victim was: a role, or a spare.
    role: String,
    isolation: Option<Isolation>,
}

impl Rounds<'_> {
    /// Goes on until the time is up.
    pub(super) async fn run(&self, args: &ChaosArgs, summary: &mut Summary) -> Result<(), Failure> {
        let end = Instant::now() + Duration::from_secs(args.seconds);
        let kinds = if args.orders { Aims::kinds(&args.kinds) } else { args.kinds.clone() };
        let mut plan = Plan::new(args.seed, self.cluster.size(), &kinds);
        let mut aims = args.orders.then(|| Aims::new(args.seed));
        while Instant::now() < end {
            let next = Instant::now() + CALM;
            self.desk.plans(next);
            sleep_until(next).await;
            self.book.next_generation();
            let (fault, view) = self.draw(&mut plan, &mut aims).await;
            let at = self.begin.elapsed().as_secs_f64();
            let suffered = self.suffer(&fault, &view).await?;
            self.desk.heals();
            self.cluster.heal(&fault)?;
            let heal = Instant::now();
            let since = self.after_orders(heal, &fault, summary).await;
            let regained = recovery::watch(self.book, self.cluster.size(), since).await;
            self.desk.open();
            let after = |failure| Failure::failed(format!("{failure}, after {fault}"));
            self.whole(heal).await.map_err(after)?;
            let whole_ms = heal.elapsed().as_millis() as u64;
            recovery::read_back(self.book, self.cluster.size()).await;
            let Suffered { role, isolation } = suffered;
            let waited_ms = since.duration_since(heal).as_millis() as u64;
            let (kind, fault) = (fault.kind.to_string(), fault.to_string());
            let round = FaultRound { at, kind, fault, role, waited_ms, regained, whole_ms, isolation };
            self.story.say(&round.line());
            summary.round(round);
        }
        Ok(())
    }

    /// Draws the next fault that is allowed now, and returns it with the nodes' reports just before. From now on it
    /// lasts.
    async fn draw(&self, plan: &mut Plan, aims: &mut Option<Aims>) -> (Fault, View) {
        loop {
            let decision = self.desk.decide().await;
            let view = self.cluster.view().await;
            let mut fault = plan.next();
            if let Some(aims) = aims {
                aims.adjust(&mut fault, &view);
            }
            match self.forbids(&fault, &view) {
                None => {
                    self.desk.strikes(fault);
                    return (fault, view);
                }
                Some(why) => self.skipped.add(&why),
            }
            drop(decision);
            sleep(CALM).await;
        }
    }

    /// Why a fault is not allowed.
    fn forbids(&self, fault: &Fault, view: &View) -> Option<String> {
        let needs_process = matches!(fault.kind, Kind::Kill | Kind::Restart | Kind::Pause);
        if needs_process && !self.cluster.nodes.runs(fault.victim) {
            return Some(format!("{} of a node that an order has stopped", fault.kind));
        }
        let why = view.forbids(fault.kind.taking()?, fault.victim, &self.desk.away())?;
        Some(why.to_owned())
    }

    /// Applies a fault, and waits for as long as it is to last.
    async fn suffer(&self, fault: &Fault, view: &View) -> Result<Suffered, Failure> {
        self.cluster.strike(fault).await?;
        let since = Instant::now();
        let end = since + fault.hold;
        let victim = fault.victim;
        let place = view.members.iter().position(|member| *member == name(victim));
        let mut suffered = Suffered { role: role(place, view.members.len()).to_owned(), isolation: None };
        if fault.kind == Kind::Isolate && place.is_some() {
            let seen = isolation::watch(self.cluster, self.book, victim, since, end).await;
            if self.desk.has_taken(victim) {
                suffered.role += ", stopped by an order";
            } else if seen.is_of_a_stranger() && self.cluster.is_spare(victim).await {
                // An earlier fault may have cost the victim its place after all: then it knows that, and has no lease
                // to judge.
                suffered.role += ", moved out just before";
            } else {
                suffered.isolation = Some(seen);
            }
        }
        sleep_until(end).await;
        Ok(suffered)
    }

    /// The moment from which nodes have to serve: the heal, or the end of the order that was under way then.
    async fn after_orders(&self, heal: Instant, fault: &Fault, summary: &mut Summary) -> Instant {
        match self.desk.idle().await {
            Ok(ended) => ended.map_or(heal, |ended| ended.max(heal)),
            Err(order) => {
                let bound = ORDER_BOUND.as_secs();
                summary.late.push(format!("{fault}: {order} was under way {bound} s after the heal"));
                Instant::now()
            }
        }
    }

    /// Waits until every node is ready and the chain has all its members; while that lasts, orders stop coming.
    async fn whole(&self, heal: Instant) -> Result<(), Failure> {
        let done = self.cluster.whole(|| {
            if heal.elapsed() > UNDISTURBED {
                self.desk.close();
            }
            self.desk.last_order().map_or(heal, |order| order.max(heal))
        });
        let done = done.await.map(drop);
        self.desk.open();
        done
    }
}

/// The role of a member, by its place.
fn role(place: Option<usize>, members: usize) -> &'static str {
    match place {
        None => "spare",
        Some(0) => "head",
        Some(place) if place + 1 == members => "tail",
        Some(_) => "middle",
    }
}
