//! The persistent id of a request.

use std::{fmt, str::FromStr};

use artillery_core::{error::ParseIdError, internal::text::parsed};

use crate::{ChainId, ClusterId, Version, types::update::RequestKey};

/// Identifies one write of one client. Its text form is `CLUSTER/CHAIN/EPOCH.SEQUENCE/NUMBER`. Store it persistently if
/// the write must happen exactly once even if this process ends before the answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId {
    /// The id of the cluster's history.
    pub cluster: ClusterId,
    /// The chain that orders the write.
    pub chain: ChainId,
    /// The client's session in that chain: the version of the update that opened it.
    pub session: Version,
    /// The number of the request in the session.
    pub number: u64,
}

impl RequestId {
    /// The request's key on the wire. `lowest` is the lowest unanswered number of its session; 0: unknown.
    pub fn key(&self, lowest: u64) -> RequestKey {
        RequestKey { session: self.session, number: self.number, lowest }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}/{}/{}/{}", self.cluster.0, self.chain.0, self.session, self.number)
    }
}

impl FromStr for RequestId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = |text: &str| -> Option<Self> {
            let mut parts = text.split('/');
            let id = Self {
                cluster: parts.next()?.parse().ok()?,
                chain: ChainId(parts.next()?.parse().ok()?),
                session: parts.next()?.parse().ok()?,
                number: parts.next()?.parse().ok()?,
            };
            parts.next().is_none().then_some(id)
        };
        parsed(text, "request id (CLUSTER/CHAIN/EPOCH.SEQUENCE/NUMBER)", parse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let id = RequestId { cluster: ClusterId(0xabc), chain: ChainId(3), session: Version::new(2, 17), number: 9 };
        let text = id.to_string();
        assert_eq!(text, "00000000000000000000000000000abc/3/2.17/9");
        assert_eq!(text.parse(), Ok(id));
        for bad in ["", "abc/3/2.17/9", &text[1..], &format!("{text}/1"), &text.replace("2.17", "2")] {
            assert!(bad.parse::<RequestId>().is_err(), "{bad}");
        }
    }
}
