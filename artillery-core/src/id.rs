pub(crate) mod text;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use self::text::{ParseIdError, parse_hex, parsed};

/// A node, independent of its current process. The id is derived from the node's stable name, and certificates prove
/// the name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId([u8; 16]);

impl NodeId {
    /// The id of the node called `name`. The same name always yields the same id.
    pub fn from_name(name: &str) -> Self {
        let digest = Sha256::new().chain_update(b"artillery node\0").chain_update(name.as_bytes()).finalize();
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        Self(id)
    }

    /// The id with these bytes, as returned by [`NodeId::as_bytes`].
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The id as bytes, from which [`NodeId::from_bytes`] restores it.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The first eight hexadecimal digits.
    fn prefix(&self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_be_bytes([a, b, c, d])
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for NodeId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parsed(text, "node id (32 hexadecimal digits)", |text| Some(Self(parse_hex(text)?.to_be_bytes())))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({:08x}…)", self.prefix())
    }
}

/// An incarnation of a node: the identity of its store, and how often that store was opened.
///
/// A restart of an in-memory node creates a new store, so it is a new incarnation too. Promises of the former process
/// do not bind the new one, which does not know them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation {
    /// Drawn at random when the store was created.
    pub store: u128,
    /// Number of starts of this store, including this one.
    pub starts: u64,
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}.{}", self.store, self.starts)
    }
}

impl FromStr for Incarnation {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = |text: &str| -> Option<Self> {
            let (store, starts) = text.split_once('.')?;
            Some(Self { store: parse_hex(store)?, starts: starts.parse().ok()? })
        };
        parsed(text, "incarnation (STORE.START)", parse)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Incarnation({:04x}…#{})", self.store >> 112, self.starts)
    }
}

/// A node in one of its incarnations. Configurations and chain messages name members by this id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId {
    /// The node, whose id is the same after a restart.
    pub node: NodeId,
    /// The incarnation of the node's process.
    pub incarnation: Incarnation,
}

impl MemberId {
    /// Whether `other` is the same node with the same store, in this, an earlier or a later incarnation.
    pub fn shares_store(self, other: Self) -> bool {
        self.node == other.node && self.incarnation.store == other.incarnation.store
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node, self.incarnation)
    }
}

impl FromStr for MemberId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = |text: &str| -> Option<Self> {
            let (node, incarnation) = text.split_once('/')?;
            Some(Self { node: node.parse().ok()?, incarnation: incarnation.parse().ok()? })
        };
        parsed(text, "id of a member (NODE/STORE.START)", parse)
    }
}

impl fmt::Debug for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}/{:04x}#{}", self.node.prefix(), self.incarnation.store >> 112, self.incarnation.starts)
    }
}

/// Maximum number of predecessor formations that a cluster names. The newest are kept.
pub const MAX_LINEAGE: usize = 16;

/// The random id of a formation of a cluster. Members of different formations refuse each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterId(pub u128);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for ClusterId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parsed(text, "cluster id (32 hexadecimal digits)", |text| parse_hex(text).map(Self))
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterId({:04x}…)", self.0 >> 112)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_node() {
        assert_eq!(NodeId::from_name("a"), NodeId::from_name("a"));
        assert_ne!(NodeId::from_name("a"), NodeId::from_name("b"));
    }

    #[test]
    fn ids_print_in_full() {
        assert_eq!(NodeId::from_bytes([0xab; 16]).to_string(), "ab".repeat(16));
        assert_eq!(ClusterId(1).to_string().len(), 32);
    }

    #[test]
    fn ids_are_read_from_their_text() {
        let member = MemberId { node: NodeId::from_name("a"), incarnation: Incarnation { store: 0xab, starts: 3 } };
        assert_eq!(member.to_string().parse(), Ok(member));
        assert_eq!(ClusterId(0xab).to_string().parse(), Ok(ClusterId(0xab)));
        let text = member.to_string();
        for bad in ["", &text[1..], &text.to_uppercase(), &text.replace('/', ""), &format!("{text}x"), &text[..65]] {
            assert!(bad.parse::<MemberId>().is_err(), "{bad}");
        }
        assert!("ab".parse::<ClusterId>().is_err());
    }

    #[test]
    fn debug_output_of_ids_is_short() {
        let node = NodeId::from_name("a");
        let text = node.to_string();
        assert_eq!(format!("{node:?}"), format!("NodeId({}…)", &text[..8]));
        let id = MemberId { node, incarnation: Incarnation { store: 0xabc << 116, starts: 2 } };
        assert_eq!(format!("{id:?}"), format!("{}/abc0#2", &text[..8]));
    }
}
