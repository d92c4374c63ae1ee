//! Runs one fault after the other, and checks the nodes after each.

use std::{cell::RefCell, sync::Arc, time::Duration};

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
    others,
    recovery::{self, BEGIN_END, BOUND, END, REOPEN_BOUND, Regained},
    report::{FaultRound, Skipped, Summary},
    ruin::{Ruin, RuinTally},
    set::NodeSet,
    view::View,
};

const CALM: Duration = Duration::from_millis(700);
const LOAD: Duration = Duration::from_secs(2);
/// Maximum number of retries of a fault of directories while it is not allowed.
const ATTEMPTS: u32 = 15;
/// When the nodes are not whole after this time, no further orders begin.
const UNDISTURBED: Duration = Duration::from_secs(20);

pub(super) struct Rounds<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) desk: &'a Desk,
    pub(super) book: &'a Arc<Book>,
    pub(super) skipped: &'a Skipped,
    pub(super) ruins: &'a RefCell<RuinTally>,
    pub(super) story: &'a Story,
    pub(super) begin: Instant,
}

struct Suffered {
    role: String,
    isolation: Option<Isolation>,
    /// How soon the other nodes served after the fault had begun, where that is checked.
    meanwhile: Vec<Regained>,
    /// Misbehaviour of a process that the fault started in addition to the nodes.
    other: Option<String>,
}

impl Rounds<'_> {
    /// Runs until the configured time has passed, or the configured number of restarts is done.
    pub(super) async fn run(&self, args: &ChaosArgs, summary: &mut Summary) -> Result<(), Failure> {
        let (end, mut rounds) = (Instant::now() + Duration::from_secs(args.seconds), 0);
        let durable = self.cluster.is_durable();
        let kinds = if args.orders { Aims::kinds(&args.kinds, durable) } else { args.kinds.clone() };
        let mut plan = Plan::new(args.seed, self.cluster.size(), &kinds, durable);
        let mut aims = args.orders.then(|| Aims::new(args.seed));
        while args.restarts.map_or(Instant::now() < end, |restarts| rounds < restarts) {
            rounds += 1;
            let next = Instant::now() + if args.restarts.is_some() { LOAD } else { CALM };
            self.desk.plans(next);
            sleep_until(next).await;
            self.book.next_generation();
            let (fault, view, known) = match args.restarts {
                Some(restarts) => {
                    // Recoveries are spread evenly over the restarts.
                    let recovers = rounds * args.majorities / restarts > (rounds - 1) * args.majorities / restarts;
                    self.draw(|_| plan.restart_of_all(recovers)).await
                }
                None => self.draw(|view| Self::next(&mut plan, &mut aims, view)).await,
            };
            let round = self.round(fault, &view, known, summary).await?;
            self.story.say(&round.line());
            if args.restarts.is_some() && round.whole_ms > round.bound_ms {
                summary.late.push(format!("{}: whole after {} ms", round.fault, round.whole_ms));
            }
            summary.round(round);
        }
        Ok(())
    }

    /// Runs one fault until the nodes are whole again. `known` is the time of the view.
    async fn round(
        &self,
        fault: Fault,
        view: &View,
        known: Instant,
        summary: &mut Summary,
    ) -> Result<FaultRound, Failure> {
        let at = self.begin.elapsed().as_secs_f64();
        let after = |failure| Failure::failed(format!("{failure}, after {fault}"));
        let mut ruin = self.strike(&fault, view, known).await?;
        let suffered = self.suffer(&fault, view).await?;
        if let Some(ruin) = &mut ruin {
            ruin.come_back().await.map_err(after)?;
        }
        self.desk.heals();
        self.cluster.heal(&fault)?;
        if fault.recovers {
            let kept = view.members.iter().find_map(|member| {
                (0..self.cluster.size()).find(|node| name(*node) == *member && !fault.touched.contains(*node))
            });
            self.cluster.recover(kept.unwrap_or_default()).await.map_err(after)?;
            self.cluster.begin_anew(fault.touched).await.map_err(after)?;
        }
        let heal = Instant::now();
        let since = self.after_orders(heal, &fault, summary).await;
        let all_down = view.are_all_members(fault.killed().and(self.desk.taken()));
        let watch = recovery::watch(self.book, NodeSet::all(self.cluster.size()), since, END);
        let (regained, loaded) = tokio::join!(watch, self.cluster.loaded(fault.killed(), since));
        self.desk.open();
        self.whole(heal).await.map_err(after)?;
        let whole_ms = heal.elapsed().as_millis() as u64;
        recovery::read_back(self.book, self.cluster.size()).await;
        ruin.map_or(Ok(()), |ruin| ruin.end())?;
        let Suffered { role, isolation, meanwhile, other } = suffered;
        let bound = if all_down && self.cluster.is_durable() { REOPEN_BOUND } else { BOUND };
        let bound_ms = (bound + loaded).as_millis() as u64;
        let waited_ms = since.duration_since(heal).as_millis() as u64;
        let (kind, fault) = (fault.kind.to_string(), fault.to_string());
        Ok(FaultRound { at, kind, fault, role, waited_ms, bound_ms, meanwhile, other, regained, whole_ms, isolation })
    }

    /// Draws a fault that is allowed now, and records its beginning. Returns it with the nodes' reports from just
    /// before, and the time of those reports.
    async fn draw(&self, mut next: impl FnMut(&View) -> Fault) -> (Fault, View, Instant) {
        // A fault of directories is retried several times: otherwise such faults would be rare with `--orders`.
        let mut held = None;
        loop {
            let decision = self.desk.decide().await;
            let known = Instant::now();
            let view = self.cluster.view().await;
            let (mut fault, attempts) = held.take().unwrap_or_else(|| (next(&view), 0));
            self.choose_copies(&mut fault, &view);
            match self.forbids(&fault, &view) {
                None => {
                    self.desk.strikes(fault);
                    return (fault, view, known);
                }
                Some(why) => self.skipped.add(&why),
            }
            if fault.kind.touches() && attempts < ATTEMPTS {
                held = Some((fault, attempts + 1));
            }
            drop(decision);
            sleep(CALM).await;
        }
    }

    fn next(plan: &mut Plan, aims: &mut Option<Aims>, view: &View) -> Fault {
        let mut fault = plan.next();
        if let Some(aims) = aims {
            aims.adjust(&mut fault, view);
        }
        fault
    }

    /// Lets a `restore` fault hit nodes with an older copy only.
    fn choose_copies(&self, fault: &mut Fault, view: &View) {
        let Some(directories) = self.cluster.directories().filter(|_| fault.kind == Kind::Restore) else { return };
        let is_able = |node: &usize| directories.has_older_copy(*node, view.serving.contains(&name(*node)));
        let able: NodeSet = (0..self.cluster.size()).filter(is_able).collect();
        let drawn: NodeSet = fault.touched.iter().filter(is_able).collect();
        fault.touched = if drawn.is_empty() { able.iter().take(1).collect() } else { drawn };
        if let Some(victim) = fault.touched.iter().next() {
            fault.victim = victim;
        }
    }

    fn forbids(&self, fault: &Fault, view: &View) -> Option<String> {
        let needs_process =
            fault.instead || matches!(fault.kind, Kind::Kill | Kind::Restart | Kind::Pause | Kind::Twin);
        if needs_process && !self.cluster.nodes.runs(fault.victim) {
            return Some(format!("{} of a node that an order has stopped", fault.kind));
        }
        if fault.kind.touches() {
            return self.forbids_to_touch(fault, view).map(str::to_owned);
        }
        // A node with a directory keeps its data across a restart.
        let taking = fault.taking().filter(|_| !self.cluster.is_durable())?;
        let why = view.forbids(taking, fault.victim, self.desk.away())?;
        Some(why.to_owned())
    }

    /// The reason why directories must not be changed now. An order that removes a node may turn another member into
    /// the last one.
    fn forbids_to_touch(&self, fault: &Fault, view: &View) -> Option<&'static str> {
        if fault.touched.is_empty() {
            return Some("restore without an older copy");
        }
        if !self.desk.takes().is_empty() {
            return Some("changed directories during an order that removes a node");
        }
        view.forbids_to_touch(fault.touched, fault.recovers)
    }

    /// Applies a fault. An untouched member that holds everything acknowledged must have had its lease until all
    /// victims were killed; otherwise the directories are left unchanged.
    async fn strike(&self, fault: &Fault, view: &View, known: Instant) -> Result<Option<Ruin<'_>>, Failure> {
        self.cluster.strike(fault).await?;
        if fault.moves {
            self.cluster.move_ports(fault.killed());
        }
        let in_time = known.elapsed() < view.keeps(fault.touched);
        let Some(directories) = self.cluster.directories() else { return Ok(None) };
        // An order may be about to start a node again.
        let down = fault.killed().without(fault.touched).without(self.desk.takes());
        let mut down = down.iter().filter(|node| !self.cluster.nodes.runs(*node));
        down.try_for_each(|node| directories.keep_copy(node))?;
        if !fault.kind.touches() {
            return Ok(None);
        }
        if !in_time {
            self.skipped.add("changed directories of nodes that were killed too slowly");
            return Ok(None);
        }
        Ruin::strike(self.cluster, directories, *fault, self.ruins).map(Some)
    }

    /// Waits for the duration of a fault, and observes the nodes.
    async fn suffer(&self, fault: &Fault, view: &View) -> Result<Suffered, Failure> {
        let since = Instant::now();
        let end = since + fault.hold;
        let victim = fault.victim;
        let place = view.members.iter().position(|member| *member == name(victim));
        let role = role(place, view.members.len()).to_owned();
        let mut suffered = Suffered { role, isolation: None, meanwhile: Vec::new(), other: None };
        if fault.kind == Kind::Isolate && place.is_some() {
            let seen = isolation::watch(self.cluster, self.book, victim, since, end).await;
            if self.desk.taken().contains(victim) {
                suffered.role += ", stopped by an order";
            } else if seen.is_of_a_stranger() && self.cluster.is_spare(victim).await {
                // An earlier fault has cost the victim its place: it is a spare, and has no lease to check.
                suffered.role += ", moved out just before";
            } else {
                suffered.isolation = Some(seen);
            }
        }
        if fault.kind.is_checked_at_its_begin() {
            let watch = recovery::watch(self.book, self.left_alone(fault), since, BEGIN_END);
            let (meanwhile, other) = tokio::join!(watch, self.beside(fault, end));
            (suffered.meanwhile, suffered.other) = (meanwhile, other?);
        }
        if fault.kind != Kind::Twin {
            sleep_until(end).await;
        }
        Ok(suffered)
    }

    fn left_alone(&self, fault: &Fault) -> NodeSet {
        NodeSet::all(self.cluster.size()).without(fault.removes()).without(self.desk.taken())
    }

    /// Runs the additional processes of a fault. Returns their misbehaviour.
    async fn beside(&self, fault: &Fault, end: Instant) -> Result<Option<String>, Failure> {
        match fault.kind {
            Kind::Twin => others::twin(self.cluster, fault.victim, end).await,
            Kind::Young => others::young(self.cluster, fault.pick, end).await,
            _ => Ok(None),
        }
    }

    /// The time from which nodes must serve: the heal, or the end of the order that was in progress at the heal. If
    /// that order doesn't end within [`ORDER_BOUND`], records it as late, and returns the present.
    async fn after_orders(&self, heal: Instant, fault: &Fault, summary: &mut Summary) -> Instant {
        match self.desk.idle().await {
            Ok(ended) => ended.map_or(heal, |ended| ended.max(heal)),
            Err(order) => {
                let bound = ORDER_BOUND.as_secs();
                summary.late.push(format!("{fault}: {order} was still in progress {bound} s after the heal"));
                Instant::now()
            }
        }
    }

    /// Waits until every node is ready and the chain has all its members. If that takes long, no further orders begin.
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

fn role(place: Option<usize>, members: usize) -> &'static str {
    match place {
        None => "spare",
        Some(0) => "head",
        Some(place) if place + 1 == members => "tail",
        Some(_) => "middle",
    }
}
