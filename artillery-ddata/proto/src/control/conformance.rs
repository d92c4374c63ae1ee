//! Checks that every implementation of [`ConfigLog`] must pass, on any runtime.
//!
//! A check panics if the log breaks its contract.

mod group;

pub use self::group::{Rig, catch_up, joint_set_stuck, unknown_then_refused, unknown_then_taken};
use super::log::{AppendError, ConfigChange, ConfigLog, Configs, LogEntry, LogIndex, Term};

/// Checks a log that accepts changes. No other task may append during the check.
pub async fn appendable(log: &dyn ConfigLog) {
    let term = log.leads().expect("the suite needs a log that this node leads");
    let last = log.confirm(term).await.expect("a reachable log confirms its last entry");
    let change = ConfigChange::Chains(Vec::new());
    log.append(term, last.next(), change.clone()).await.expect("the place is free");
    let appended = LogEntry { index: last.next(), term, change: change.clone() };
    assert_eq!(log.entry(last.next()), Ok(Some(appended)), "a reader sees the appended entry");
    let confirmed = log.confirm(term).await.expect("the log is still reachable");
    assert_eq!(confirmed, last.next(), "the confirmed index covers every earlier append");
    for taken in [last, last.next()] {
        let result = log.append(term, taken, change.clone()).await;
        assert_eq!(result, Err(AppendError::Taken { last: confirmed }), "the first append takes the index");
    }
    for other in [Term(term.0 + 1), Term(term.0.saturating_sub(1))] {
        let result = log.append(other, confirmed.next(), change.clone()).await;
        assert_eq!(result, Err(AppendError::NotLeading), "a proposal is valid only in the term that it names");
        assert!(log.confirm(other).await.is_err(), "a node leads in one term");
    }
    let gap = log.append(term, confirmed.next().next(), change).await;
    assert!(gap.is_err(), "an append must not leave a gap");
    check_entries(log, term).await;
}

/// Checks the readable entries of a log that this node leads in `term`.
async fn check_entries(log: &dyn ConfigLog, term: Term) {
    let last = log.confirm(term).await.expect("a reachable log confirms its last entry");
    let entries = read(log, last);
    let indices: Vec<_> = entries.iter().map(|entry| entry.index).collect();
    assert_eq!(indices, (1..=last.0).map(LogIndex).collect::<Vec<_>>(), "from the first entry on, without a gap");
    assert_eq!(read(log, last), entries, "an entry never changes");
    assert_eq!(log.entry(last.next()), Ok(None), "there is no entry after the last one");
    let mut configs = Configs::default();
    entries.iter().for_each(|entry| drop(configs.apply(entry).expect("entries are in order")));
    assert!(log.configs().iter().eq(configs.iter()), "the entries give the same configurations everywhere");
    assert_eq!(log.confirm(term).await, Ok(configs.applied()), "the last entry stays");
}

fn read(log: &dyn ConfigLog, upto: LogIndex) -> Vec<LogEntry> {
    let entry = |at| log.entry(LogIndex(at)).expect("the log can be read").expect("confirmed entries are applied");
    (1..=upto.0).map(entry).collect()
}
