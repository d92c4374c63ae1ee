//! What every [`ConfigLog`] must do, as checks to be run against each implementation, by any runtime.
//!
//! A check panics if the log breaks its contract, as a test does.

mod group;

use std::{
    future::poll_fn,
    task::{Context, Poll},
};

pub use self::group::{Rig, catch_up, joint_set_stuck, unknown_then_refused, unknown_then_taken};
use super::log::{AppendError, ConfigChange, ConfigLog, Configs, LogEntry, LogIndex, LogStream, Term};

/// Checks a log that has entries and is only read.
///
/// # Panics
/// If the log breaks its contract.
pub async fn readable(log: &dyn ConfigLog) {
    let term = log.leads().unwrap_or_default();
    let last = log.confirm(term).await.expect("a log that can be reached confirms its last entry");
    assert!(last >= LogIndex(1), "the suite wants a log with an entry in it");
    let entries = read(log, LogIndex::default(), last).await;
    let indices: Vec<_> = entries.iter().map(|entry| entry.index).collect();
    assert_eq!(indices, (1..=last.0).map(LogIndex).collect::<Vec<_>>(), "from the first entry on, without a gap");
    for from in (1..=last.0).map(LogIndex) {
        let rest = read(log, from, last).await;
        assert_eq!(rest, entries[from.0 as usize - 1..], "an entry never changes, wherever one begins");
    }
    let mut configs = Configs::default();
    entries.iter().for_each(|entry| drop(configs.apply(entry).expect("entries come in order")));
    assert_eq!(configs.applied(), last);
    let mut end = log.follow(last.next());
    assert!(poll_fn(|cx| Poll::Ready(is_waiting(&mut end, cx))).await, "behind the last entry a follower waits");
    assert!(log.confirm(term).await.expect("it is still reached") >= last, "the last entry never moves back");
    assert!(log.configs().iter().eq(configs.iter()), "the entries make the same configurations everywhere");
}

/// Checks a log that takes changes. No other task may append meanwhile.
///
/// # Panics
/// If the log breaks its contract.
pub async fn appendable(log: &dyn ConfigLog) {
    let term = log.leads().expect("the suite wants a log that this node leads");
    let last = log.confirm(term).await.expect("a log that can be reached confirms its last entry");
    let mut follower = log.follow(last.next());
    let change = ConfigChange::Chains(Vec::new());
    log.append(term, last.next(), change.clone()).await.expect("the place is free");
    let entry = follower.next_entry().await.expect("the log has not ended").expect("the log can be read");
    assert_eq!(
        entry,
        LogEntry { index: last.next(), term, change: change.clone() },
        "a follower sees what is appended"
    );
    let confirmed = log.confirm(term).await.expect("it is still reached");
    assert_eq!(confirmed, last.next(), "what is confirmed includes what was appended before the call");
    for taken in [last, last.next()] {
        let result = log.append(term, taken, change.clone()).await;
        assert_eq!(result, Err(AppendError::Taken { last: confirmed }), "only the first takes a place");
    }
    for other in [Term(term.0 + 1), Term(term.0.saturating_sub(1))] {
        let result = log.append(other, confirmed.next(), change.clone()).await;
        assert_eq!(result, Err(AppendError::NotLeading), "a proposal counts only in the term that it names");
        assert!(log.confirm(other).await.is_err(), "a node leads in one term");
    }
    let gap = log.append(term, confirmed.next().next(), change).await;
    assert!(gap.is_err(), "no place behind a free one can be taken");
    readable(log).await;
}

/// Checks a log that never changes.
///
/// # Panics
/// If the log breaks its contract.
pub async fn fixed(log: &dyn ConfigLog) {
    readable(log).await;
    let last = log.confirm(Term(0)).await.expect("a fixed log confirms its last entry");
    for at in [LogIndex(1), last, last.next()] {
        let result = log.append(Term(0), at, ConfigChange::Chains(Vec::new())).await;
        assert_eq!(result, Err(AppendError::ReadOnly), "a fixed log takes no change");
    }
    assert_eq!(log.confirm(Term(0)).await, Ok(last), "and has none");
    assert!(!log.needs_leases(), "where nothing changes, leases protect nothing");
}

async fn read(log: &dyn ConfigLog, from: LogIndex, upto: LogIndex) -> Vec<LogEntry> {
    let mut stream = log.follow(from);
    let mut entries = Vec::<LogEntry>::new();
    while entries.last().is_none_or(|entry| entry.index < upto) {
        entries.push(stream.next_entry().await.expect("the log has not ended").expect("the log can be read"));
    }
    entries
}

fn is_waiting(stream: &mut LogStream, cx: &mut Context<'_>) -> bool {
    stream.poll_next(cx).is_pending()
}
