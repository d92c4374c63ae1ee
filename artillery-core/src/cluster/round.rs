//! The outcome of a round of dialling. Does no I/O.

use std::net::SocketAddr;

use crate::{
    error::{ConnectError, Refusal},
    id::{MemberId, NodeId},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RoundOutcome {
    /// The node has accepted this one, or already is an active member.
    Met(NodeId),
    /// Every address belongs to this node.
    Itself,
    /// Refused for a reason that a retry would not change.
    Refused(SocketAddr, ConnectError),
    /// Failed for a reason that may be temporary: no answer, a busy node, an unresolved name.
    Failed(String),
}

impl RoundOutcome {
    /// The outcome after all addresses of a candidate have failed. An address at which `me` answers proves nothing
    /// about the others: a host name may resolve to the addresses of all nodes, and two hosts on separate networks may
    /// have the same address. If `given` is a single address, the failure need not name it.
    pub(super) fn of_failures(me: MemberId, given: &[SocketAddr], failures: Vec<(SocketAddr, ConnectError)>) -> Self {
        let is_any = !failures.is_empty();
        let others = failures.into_iter().filter(|(_, error)| !error.is_itself(me));
        let outcome = others.fold(None, |outcome, (addr, error)| match outcome {
            // A refusal is more informative than silence at another address.
            _ if is_final(&error) => Some(Self::Refused(addr, error)),
            Some(Self::Refused(..)) => outcome,
            _ if given == [addr] => Some(Self::Failed(error.to_string())),
            _ => Some(Self::Failed(format!("{addr}: {error}"))),
        });
        match outcome {
            Some(outcome) => outcome,
            None if is_any => Self::Itself,
            None => Self::Failed("no address".into()),
        }
    }
}

/// Whether a retry would fail in the same way.
fn is_final(error: &ConnectError) -> bool {
    match error {
        ConnectError::Refused(refusal) | ConnectError::Rejected(refusal) => {
            !matches!(refusal, Refusal::Busy | Refusal::TimedOut)
        }
        ConnectError::Untrusted(_) | ConnectError::WrongPeer { .. } | ConnectError::Malformed(_) => true,
        // `BadAddress`: an interface may get an address of that family later.
        ConnectError::BadAddress { .. }
        | ConnectError::TimedOut
        | ConnectError::Lost(_)
        | ConnectError::NoAddress
        | ConnectError::EndpointClosed => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Incarnation;

    fn member(name: &str) -> MemberId {
        MemberId { node: NodeId::from_name(name), incarnation: Incarnation { store: 1, starts: 1 } }
    }

    fn itself(name: &str) -> ConnectError {
        ConnectError::Refused(Refusal::Itself(member(name)))
    }

    fn outcome(errors: &[ConnectError]) -> RoundOutcome {
        let at = |n: usize| SocketAddr::from(([10, 0, 0, 1], n as u16));
        let failures: Vec<_> = errors.iter().enumerate().map(|(n, error)| (at(n), error.clone())).collect();
        let given: Vec<_> = failures.iter().map(|&(addr, _)| addr).collect();
        RoundOutcome::of_failures(member("me"), &given, failures)
    }

    #[test]
    fn an_own_address_among_others_is_passed_over() {
        assert_eq!(outcome(&[itself("me"), itself("me")]), RoundOutcome::Itself);
        let silent_at = |port: u16| RoundOutcome::Failed(format!("10.0.0.1:{port}: {}", ConnectError::TimedOut));
        assert_eq!(outcome(&[itself("me"), ConnectError::TimedOut]), silent_at(1));
        assert_eq!(outcome(&[ConnectError::TimedOut, itself("me")]), silent_at(0));
    }

    #[test]
    fn a_namesake_is_no_own_address() {
        assert!(matches!(outcome(&[itself("me"), itself("twin")]), RoundOutcome::Refused(..)));
    }

    #[test]
    fn a_refusal_says_more_than_silence() {
        let refusal = ConnectError::Untrusted("another secret".into());
        for errors in [[refusal.clone(), ConnectError::TimedOut], [ConnectError::TimedOut, refusal]] {
            assert!(matches!(outcome(&errors), RoundOutcome::Refused(_, ConnectError::Untrusted(_))));
        }
        let silent = RoundOutcome::Failed(ConnectError::TimedOut.to_string());
        assert_eq!(outcome(&[ConnectError::TimedOut]), silent);
        assert_eq!(outcome(&[]), RoundOutcome::Failed("no address".into()));
    }

    /// Two cases of an unreachable address: a host name that also has an address outside the socket's family, while its
    /// node is down; and a link-local seed before the interface has an address. Reporting `Refused` would end a node
    /// whose seeds are all `Refused`.
    #[test]
    fn an_address_that_is_not_reached_is_no_refusal_by_the_node() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let bad = |addr| ConnectError::BadAddress { addr, reason: "no interface has a link-local IPv6 address".into() };
        let bare = at("[fe80::1]:7400");
        let alone = RoundOutcome::of_failures(member("me"), &[bare], vec![(bare, bad(bare))]);
        let (six, four) = (at("[fd00::1]:7400"), at("10.0.0.1:7400"));
        let both = vec![(six, bad(six)), (four, ConnectError::TimedOut)];
        let both = RoundOutcome::of_failures(member("me"), &[], both);
        assert!(matches!((&alone, &both), (RoundOutcome::Failed(_), RoundOutcome::Failed(_))), "{alone:?} {both:?}");
    }
}
