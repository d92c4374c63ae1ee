//! A node's statement to the other nodes of its cluster: its payload in the membership.

use super::{MAX_ENCOUNTERS, Party};
use crate::ClusterId;

/// The prefix of a statement, which distinguishes it from other payloads.
const MAGIC: [u8; 4] = *b"met\x01";

/// The encoded size of one cluster: its id, big endian, and whether it holds data.
const PARTY_BYTES: usize = 17;

/// A node's statement about its own cluster and the ones that it has met.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Statement {
    /// The node knows that the cluster holds data, or has held some.
    pub holds_data: bool,
    /// The clusters that the node has been meeting for [`STEADY_AFTER`](super::STEADY_AFTER), at most
    /// [`MAX_ENCOUNTERS`].
    pub met: Vec<Party>,
}

impl Statement {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.push(u8::from(self.holds_data));
        for party in self.met.iter().take(MAX_ENCOUNTERS) {
            bytes.extend_from_slice(&party.cluster.0.to_be_bytes());
            bytes.push(u8::from(party.holds_data));
        }
        bytes
    }

    /// `None`: the payload is no valid statement.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&holds_data, parties) = bytes.strip_prefix(&MAGIC)?.split_first()?;
        if parties.len() % PARTY_BYTES != 0 || parties.len() / PARTY_BYTES > MAX_ENCOUNTERS {
            return None;
        }
        let met = parties.chunks_exact(PARTY_BYTES).map(|bytes| {
            let (id, flag) = bytes.split_first_chunk::<16>()?;
            Some(Party { cluster: ClusterId(u128::from_be_bytes(*id)), holds_data: flag_of(*flag.first()?)? })
        });
        Some(Self { holds_data: flag_of(holds_data)?, met: met.collect::<Option<_>>()? })
    }
}

fn flag_of(byte: u8) -> Option<bool> {
    match byte {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}
