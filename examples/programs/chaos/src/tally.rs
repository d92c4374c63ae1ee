//! The orders of a run, and their outcomes.

use std::collections::BTreeMap;

use artillery_programs::story::Story;
use serde::Serialize;

use super::{orders::Work, report::counts};

/// One order is required per this many seconds of a run.
const SECONDS_EACH: u64 = 20;
/// Texts of refusals; any other text means that the order failed.
const REFUSALS: [&str; 9] = [
    "another reorder is in progress",
    "was changed by another proposal",
    "not committed in time",
    "is no serving member",
    "each of them must be named once",
    "there is no node",
    "there is no chain",
    "last serving member",
    "never changes, or isn't known yet",
];
/// Longer words are ids.
const LONGEST_WORD: usize = 30;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum OrderOutcome {
    Done,
    Refused,
    /// Any other error, for example that no leader was found in time.
    Failed,
    /// `ctl` did not end within its own timeout, and was killed.
    Hung,
}

impl OrderOutcome {
    pub(super) fn of(text: &str) -> Self {
        let refused = REFUSALS.iter().any(|refusal| text.contains(refusal));
        if refused { Self::Refused } else { Self::Failed }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Hung => "hung",
        }
    }
}

/// One order, as `docs/json.md` describes it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Given {
    /// Seconds since the start of the run.
    pub(super) at: f64,
    pub(super) order: String,
    #[serde(skip)]
    pub(super) work: Work,
    /// The fault that lasted or began during the order.
    pub(super) beside: Option<String>,
    pub(super) outcome: OrderOutcome,
    /// The error text of `ctl` if the order was not done.
    pub(super) text: Option<String>,
    pub(super) ms: u64,
}

impl Given {
    pub(super) fn line(&self) -> String {
        let beside = self.beside.as_ref().map_or(String::new(), |fault| format!(", beside {fault}"));
        let text = self.text.as_ref().map_or(String::new(), |text| format!(" ({text})"));
        format!("{:7.1} s    {}{beside}: {}{text} after {} ms", self.at, self.order, self.outcome.word(), self.ms)
    }
}

#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Tally {
    /// The minimum number of orders. Half of the given orders must coincide with a fault, and half of this minimum must
    /// be done.
    pub(super) needed: u64,
    pub(super) given: u64,
    pub(super) beside: u64,
    /// Counts per work and outcome.
    pub(super) outcomes: BTreeMap<String, u64>,
    /// Counts of the messages of orders that were not done.
    pub(super) said: BTreeMap<String, u64>,
    pub(super) orders: Vec<Given>,
}

impl Tally {
    pub(super) fn new(seconds: u64) -> Self {
        Self { needed: seconds / SECONDS_EACH, ..Self::default() }
    }

    pub(super) fn add(&mut self, given: Given) {
        self.given += 1;
        self.beside += u64::from(given.beside.is_some());
        *self.outcomes.entry(format!("{} {}", given.work, given.outcome.word())).or_default() += 1;
        if let Some(text) = &given.text {
            let words = text.split_whitespace().map(|word| if word.len() > LONGEST_WORD { "…" } else { word });
            let said = format!("{}: {}", given.work, words.collect::<Vec<_>>().join(" "));
            *self.said.entry(said).or_default() += 1;
        }
        self.orders.push(given);
    }

    /// Whether the next order must coincide with a fault, so that at least half of them do.
    pub(super) fn lags(&self) -> bool {
        self.beside * 2 <= self.given
    }

    pub(super) fn tell(&self, story: &Story) {
        let (given, beside) = (self.given, self.beside);
        story.say(&format!("orders: {given}, {beside} of them during a fault: {}", counts(&self.outcomes)));
        self.said.iter().for_each(|(said, count)| story.say(&format!("  {count} times {said}")));
        if let Some(lacks) = self.lacks() {
            story.say(&format!("TOO FEW ORDERS: {lacks}"));
        }
    }

    /// Describes the shortage if too few orders were given, done, or coincident with a fault.
    pub(super) fn lacks(&self) -> Option<String> {
        let done = self.orders.iter().filter(|given| given.outcome == OrderOutcome::Done).count() as u64;
        let (Self { needed, given, beside, .. }, half) = (self, self.needed.div_ceil(2));
        let fine = given >= needed && beside * 2 >= *given && done * 2 >= *needed;
        let wanted = format!("required: at least {needed}, half of them during a fault, and {half} done");
        (*needed > 0 && !fine).then(|| format!("{given} orders, {beside} during a fault, {done} done; {wanted}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(seconds: u64, orders: &[(bool, OrderOutcome)]) -> Tally {
        let mut tally = Tally::new(seconds);
        for &(beside, outcome) in orders {
            tally.add(Given {
                at: 0.0,
                order: "reorder n2 n1".to_owned(),
                work: Work::Reorder,
                beside: beside.then(|| "kill n1".to_owned()),
                outcome,
                text: (outcome != OrderOutcome::Done)
                    .then(|| format!("{:032x}/1 is no serving member of that chain", 7)),
                ms: 1,
            });
        }
        tally
    }

    #[test]
    fn thirty_orders_are_needed_in_ten_minutes_half_of_them_beside_a_fault() {
        use OrderOutcome::{Done, Refused};
        assert_eq!(Tally::new(600).needed, 30);
        let (beside, alone) = ((true, Done), (false, Done));
        assert_eq!(tally(600, &[[beside; 15], [alone; 15]].concat()).lacks(), None);
        assert!(tally(600, &[[beside; 14], [alone; 14]].concat()).lacks().is_some());
        assert!(tally(600, &[&[beside; 14][..], &[alone; 16]].concat()).lacks().is_some());
        assert!(tally(600, &[&[beside; 14][..], &[(true, Refused); 16]].concat()).lacks().is_some());
        assert_eq!(tally(600, &[[(true, Refused); 15], [beside; 15]].concat()).lacks(), None);
        assert_eq!(tally(19, &[]).lacks(), None, "too short for any");
    }

    #[test]
    fn half_of_the_orders_are_beside_a_fault_if_those_that_have_to_be_are() {
        let mut tally = tally(0, &[]);
        for _ in 0..9 {
            let beside = tally.lags();
            tally.given += 1;
            tally.beside += u64::from(beside);
            assert!(tally.beside * 2 >= tally.given);
        }
        assert_eq!(tally.beside, 5, "and none beyond that");
    }

    #[test]
    fn orders_are_counted_by_outcome_and_message() {
        use OrderOutcome::{Done, Hung, Refused};
        let tally = tally(1, &[(true, Done), (false, Refused), (false, Refused), (true, Hung)]);
        assert_eq!((tally.given, tally.beside), (4, 2));
        let counts: Vec<_> = tally.outcomes.iter().map(|(what, count)| (what.as_str(), *count)).collect();
        assert_eq!(counts, [("reorder done", 1), ("reorder hung", 1), ("reorder refused", 2)]);
        let said: Vec<_> = tally.said.iter().map(|(what, count)| (what.as_str(), *count)).collect();
        assert_eq!(said, [("reorder: … is no serving member of that chain", 3)]);
    }

    #[test]
    fn a_refusal_is_told_from_a_failure() {
        assert_eq!(
            OrderOutcome::of("pending updates were not committed in time: nothing was changed"),
            OrderOutcome::Refused
        );
        assert_eq!(OrderOutcome::of("it is the last serving member of chain 0"), OrderOutcome::Refused);
        assert_eq!(
            OrderOutcome::of("found no leader of the configuration in time: no majority of its voters may be running"),
            OrderOutcome::Failed
        );
    }
}
