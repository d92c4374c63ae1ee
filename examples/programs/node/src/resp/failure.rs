//! The answers to failed commands.
//!
//! `NOLEASE`, `NOCHAIN` and `BUSY` promise that nothing was applied, by this attempt or an earlier one, so that a
//! client may send the command again. `UNKNOWN` means that the outcome is unknown, or that the command was applied but
//! its result is lost. No other answer begins with these words.

use artillery_ddata::{Error, Kv, NotLocal, Refusal, error::NotApplied};

use super::reply::Reply;

/// These error texts are those of Redis.
pub(super) const NOT_AN_INTEGER: &str = "value is not an integer or out of range";
pub(super) const OVERFLOW: &str = "increment or decrement would overflow";
pub(super) const FLOAT: &str = "value is not a valid float";
pub(super) const NOT_FINITE: &str = "increment would produce NaN or Infinity";
pub(super) const NO_SUCH_KEY: &str = "no such key";
pub(super) const TOO_LONG: &str = "string exceeds maximum allowed size (proto-max-bulk-len)";
pub(super) const SYNTAX: &str = "syntax error";
const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";

pub(super) fn told(error: &Error) -> Reply {
    match error {
        Error::Refused { reason, .. } => refused(reason),
        Error::NotApplied { reason, .. } => not_applied(reason),
        // Includes kinds of errors that this release doesn't know: the command may have taken effect.
        _ => Reply::Error(format!("UNKNOWN {error}").into()),
    }
}

/// Like [`told`], for a read of this key. If the read failed as [`Error::NotApplied`] and this node holds no lease, the
/// answer is `NOLEASE`: without a lease the node had to ask others.
pub(super) fn told_of_read(kv: &Kv, key: &[u8], error: &Error) -> Reply {
    match (error, kv.get_local(key)) {
        (Error::NotApplied { reason, .. }, Err(NotLocal::NoLease)) => {
            Reply::Error(format!("NOLEASE this node holds no lease, and no other member has answered: {reason}").into())
        }
        _ => told(error),
    }
}

/// Whether a request failed because of its own keys or values: another one, or a part of it, may still succeed.
pub(super) fn is_about_content(error: &Error) -> bool {
    use Refusal::{BatchSize, KeyTooLong, ManyChains, ValueTooLarge};
    let Error::Refused { reason, .. } = error else { return false };
    matches!(reason, BatchSize { .. } | KeyTooLong { .. } | ManyChains | ValueTooLarge { .. })
}

fn not_applied(reason: &NotApplied) -> Reply {
    let kind = match reason {
        NotApplied::TimedOut => "BUSY",
        NotApplied::WithinRuntime => "ERR",
        // In most of these cases no chain can be reached. They include reasons that this release doesn't know.
        _ => "NOCHAIN",
    };
    Reply::Error(format!("{kind} nothing was applied: {reason}").into())
}

fn refused(reason: &Refusal) -> Reply {
    let kind = match reason {
        Refusal::NoLease => "NOLEASE",
        Refusal::NoChain
        | Refusal::NotHead(_)
        | Refusal::NotTail(_)
        | Refusal::TooFewMembers { .. }
        | Refusal::Parted { .. } => "NOCHAIN",
        Refusal::Busy | Refusal::SessionFull => "BUSY",
        Refusal::DiskFull { .. } => "MISCONF",
        Refusal::MemoryFull { .. } => return Reply::Error(format!("{OUT_OF_MEMORY} {reason}").into()),
        Refusal::ManyChains => return Reply::Error(CROSS_SLOT.into()),
        Refusal::NotANumber => return Reply::error(NOT_AN_INTEGER),
        Refusal::Overflow => return Reply::error(OVERFLOW),
        _ => "ERR",
    };
    Reply::Error(format!("{kind} {reason}").into())
}

#[cfg(test)]
mod tests {
    use artillery_ddata::NodeId;

    use super::*;

    fn text(reply: Reply) -> String {
        match reply {
            Reply::Error(text) => text.into_owned(),
            other => panic!("expected an error, got {other:?}"),
        }
    }

    #[test]
    fn every_refusal_has_its_word() {
        let (len, limit) = (9, 4);
        let incarnation = artillery_ddata::Incarnation { store: 1, starts: 0 };
        let member = artillery_ddata::MemberId { node: NodeId::from_name("a"), incarnation };
        let cases = [
            ("NOLEASE", vec![Refusal::NoLease]),
            ("NOCHAIN", vec![Refusal::NoChain, Refusal::NotHead(None), Refusal::NotTail(None)]),
            ("NOCHAIN", vec![Refusal::TooFewMembers { have: 1, need: 2 }]),
            ("BUSY", vec![Refusal::Busy, Refusal::SessionFull]),
            ("NOCHAIN", vec![Refusal::Parted { by: artillery_ddata::admin::History { generation: 1, id: 2 } }]),
            ("MISCONF", vec![Refusal::DiskFull { member }]),
            (OUT_OF_MEMORY, vec![Refusal::MemoryFull { member }]),
            ("CROSSSLOT", vec![Refusal::ManyChains]),
            ("ERR", vec![Refusal::KeyTooLong { len, limit }, Refusal::ValueTooLarge { len, limit }]),
            ("ERR", vec![Refusal::BatchSize { len, limit }, Refusal::Compacted { first: 1 }]),
            ("ERR", vec![Refusal::StoreFailed, Refusal::SessionExpired, Refusal::Forgotten, Refusal::Barred]),
            ("ERR", vec![Refusal::NotANumber, Refusal::Overflow, Refusal::SnapshotGone]),
            ("ERR", vec![Refusal::OtherRequest, Refusal::OtherHistory]),
            ("ERR", vec![Refusal::ResultsTooLarge { len, limit }, Refusal::UpdateTooLarge { len, limit }]),
        ];
        for (word, refusals) in cases {
            for refusal in refusals {
                let text = text(refused(&refusal));
                assert!(text.starts_with(&format!("{word} ")), "{refusal:?}: {text}");
            }
        }
        assert_eq!(text(refused(&Refusal::NotANumber)), "ERR value is not an integer or out of range");
        assert_eq!(text(refused(&Refusal::Overflow)), "ERR increment or decrement would overflow");
        let limits = text(refused(&Refusal::ValueTooLarge { len, limit }));
        assert!(limits.contains('9') && limits.contains('4'), "{limits}");
    }

    #[test]
    fn errors_say_that_nothing_was_applied() {
        let node = NodeId::from_name("a");
        let cases = [
            ("BUSY", NotApplied::TimedOut),
            ("NOCHAIN", NotApplied::NotFormed),
            ("NOCHAIN", NotApplied::Unreachable { node, reason: None }),
            ("NOCHAIN", NotApplied::UnknownNode(node)),
            ("NOCHAIN", NotApplied::Stopped),
            ("ERR", NotApplied::WithinRuntime),
        ];
        for (word, reason) in cases {
            let text = text(not_applied(&reason));
            assert!(text.starts_with(&format!("{word} ")), "{reason:?}: {text}");
        }
    }
}
