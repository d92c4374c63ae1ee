//! What a chain's task takes in one turn: in which order, and by which reading of the clock. Sans-IO.

use artillery_core::Timestamp;

use super::control::Lease;
#[cfg(test)]
use super::mutant::Mutant;

/// Everything that was received for one turn.
pub(super) struct Turn<C, R, W> {
    /// The newest lease, if another one than before.
    pub(super) lease: Option<Lease>,
    pub(super) commands: Vec<C>,
    pub(super) reads: Vec<R>,
    pub(super) writes: Vec<W>,
    #[cfg(test)]
    mutant: Option<Mutant>,
    /// The reading that [`Mutant::KeepReading`] keeps.
    #[cfg(test)]
    kept: Option<Timestamp>,
}

/// One input of a turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Taken<C, R, W> {
    Lease(Lease),
    Command(C),
    Read(R),
    Write(W),
}

impl<C, R, W> Default for Turn<C, R, W> {
    fn default() -> Self {
        Self {
            lease: None,
            commands: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            #[cfg(test)]
            mutant: None,
            #[cfg(test)]
            kept: None,
        }
    }
}

impl<C, R, W> Turn<C, R, W> {
    /// Hands out everything that was received, and leaves the turn empty.
    ///
    /// The clock is read here, behind the receipt of all of it: by an older reading a member would serve a strong read that
    /// arrived after the end of its lease, when others may have committed newer values without it (docs/DESIGN.md §6, trap
    /// 56). While `act` runs, the turn is borrowed, so nothing more can be put in under this reading.
    ///
    /// The lease comes first, in every turn: a chain that always has requests would never take it otherwise (trap 57). What
    /// changes or ends a configuration comes before the requests that it decides about.
    pub(super) fn act(&mut self, clock: impl FnOnce() -> Timestamp, mut act: impl FnMut(Timestamp, Taken<C, R, W>)) {
        let now = self.reading(clock);
        if let Some(lease) = self.next_lease() {
            act(now, Taken::Lease(lease));
        }
        self.commands.drain(..).for_each(|command| act(now, Taken::Command(command)));
        self.reads.drain(..).for_each(|read| act(now, Taken::Read(read)));
        self.writes.drain(..).for_each(|write| act(now, Taken::Write(write)));
    }

    /// Leaves a guard out.
    #[cfg(test)]
    pub(super) fn leave_out(&mut self, mutant: Option<Mutant>) {
        self.mutant = mutant;
    }

    #[cfg(not(test))]
    fn reading(&self, clock: impl FnOnce() -> Timestamp) -> Timestamp {
        clock()
    }

    #[cfg(test)]
    fn reading(&mut self, clock: impl FnOnce() -> Timestamp) -> Timestamp {
        match self.mutant {
            Some(Mutant::KeepReading) => *self.kept.get_or_insert_with(clock),
            _ => clock(),
        }
    }

    fn next_lease(&mut self) -> Option<Lease> {
        #[cfg(test)]
        if self.mutant == Some(Mutant::LeaseLast)
            && !(self.commands.is_empty() && self.reads.is_empty() && self.writes.is_empty())
        {
            return None;
        }
        self.lease.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Received = Turn<&'static str, &'static str, &'static str>;

    fn received(mutant: Option<Mutant>) -> Received {
        Turn { mutant, ..Turn::default() }
    }

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    /// The inputs of the turn in the order in which they are acted on, and the reading for each.
    fn acted(turn: &mut Received, now: u64) -> Vec<(Timestamp, Taken<&'static str, &'static str, &'static str>)> {
        let mut acted = Vec::new();
        turn.act(|| at(now), |reading, taken| acted.push((reading, taken)));
        acted
    }

    /// Whether a read that is received at 7, after another one at 3, is decided by a reading of 7.
    fn reads_the_clock_behind_each_receipt(mutant: Option<Mutant>) -> bool {
        let mut turn = received(mutant);
        turn.reads.push("at 3");
        acted(&mut turn, 3);
        turn.reads.push("at 7");
        acted(&mut turn, 7) == [(at(7), Taken::Read("at 7"))]
    }

    /// Whether a lease is taken in the turn in which it is received, though there is a request too.
    fn takes_the_lease_beside_requests(mutant: Option<Mutant>) -> bool {
        let mut turn = received(mutant);
        turn.reads.push("one");
        turn.lease = Some(Lease { until: at(9), asked: at(1) });
        acted(&mut turn, 3).iter().any(|(_, taken)| matches!(taken, Taken::Lease(_)))
    }

    #[test]
    fn an_input_received_after_a_reading_is_decided_by_a_later_one() {
        assert!(reads_the_clock_behind_each_receipt(None));
        assert!(!reads_the_clock_behind_each_receipt(Some(Mutant::KeepReading)));
    }

    #[test]
    fn a_lease_is_taken_however_many_requests_come() {
        assert!(takes_the_lease_beside_requests(None));
        assert!(!takes_the_lease_beside_requests(Some(Mutant::LeaseLast)));
    }

    #[test]
    fn what_decides_about_requests_comes_before_them() {
        let mut turn = received(None);
        turn.writes.push("write");
        turn.reads.push("read");
        turn.commands.extend(["enter", "frame"]);
        let lease = Lease { until: at(9), asked: at(1) };
        turn.lease = Some(lease);
        let order = [
            Taken::Lease(lease),
            Taken::Command("enter"),
            Taken::Command("frame"),
            Taken::Read("read"),
            Taken::Write("write"),
        ];
        assert_eq!(acted(&mut turn, 4), order.map(|taken| (at(4), taken)));
        assert_eq!(acted(&mut turn, 5), [], "a turn hands each input out once");
    }
}
