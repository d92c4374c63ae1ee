//! A node's addresses and host name, and their encoding: one list, ending with the host name.
//!
//! A node without a host name has the same bytes as before host names existed, so that older stores can be read.

use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};

use serde::{Deserialize, Serialize};

use super::NodeInfo;
use crate::MemberId;

/// A node's name and addresses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "EncodedAddress", try_from = "EncodedAddress")]
pub struct NodeAddress {
    /// The name, from which the node's id is derived.
    pub name: String,
    /// Addresses to dial.
    pub addrs: Vec<SocketAddr>,
    /// The host name and port that the node advertises, if any. Clients resolve it when no address answers.
    pub host: Option<String>,
}

/// `V4` and `V6` have the encoding of a [`SocketAddr`].
#[derive(Serialize, Deserialize)]
enum Place {
    V4(SocketAddrV4),
    V6(SocketAddrV6),
    Host(String),
}

#[derive(Serialize, Deserialize)]
struct Places(Vec<Place>);

#[derive(Debug, thiserror::Error)]
#[error("a host name must be the last address of its node")]
pub(crate) struct HostNotLast;

impl Places {
    fn new(addrs: Vec<SocketAddr>, host: Option<String>) -> Self {
        let addrs = addrs.into_iter().map(|addr| match addr {
            SocketAddr::V4(addr) => Place::V4(addr),
            SocketAddr::V6(addr) => Place::V6(addr),
        });
        Self(addrs.chain(host.map(Place::Host)).collect())
    }

    fn split(self) -> Result<(Vec<SocketAddr>, Option<String>), HostNotLast> {
        let (mut addrs, mut host) = (Vec::with_capacity(self.0.len()), None);
        for place in self.0 {
            if host.is_some() {
                return Err(HostNotLast);
            }
            match place {
                Place::V4(addr) => addrs.push(addr.into()),
                Place::V6(addr) => addrs.push(addr.into()),
                Place::Host(name) => host = Some(name),
            }
        }
        Ok((addrs, host))
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct EncodedNode {
    id: MemberId,
    name: String,
    places: Places,
}

impl From<NodeInfo> for EncodedNode {
    fn from(NodeInfo { id, name, addrs, host }: NodeInfo) -> Self {
        Self { id, name, places: Places::new(addrs, host) }
    }
}

impl TryFrom<EncodedNode> for NodeInfo {
    type Error = HostNotLast;

    fn try_from(EncodedNode { id, name, places }: EncodedNode) -> Result<Self, HostNotLast> {
        let (addrs, host) = places.split()?;
        Ok(Self { id, name, addrs, host })
    }
}

#[derive(Serialize, Deserialize)]
struct EncodedAddress {
    name: String,
    places: Places,
}

impl From<NodeAddress> for EncodedAddress {
    fn from(NodeAddress { name, addrs, host }: NodeAddress) -> Self {
        Self { name, places: Places::new(addrs, host) }
    }
}

impl TryFrom<EncodedAddress> for NodeAddress {
    type Error = HostNotLast;

    fn try_from(EncodedAddress { name, places }: EncodedAddress) -> Result<Self, HostNotLast> {
        let (addrs, host) = places.split()?;
        Ok(Self { name, addrs, host })
    }
}

#[cfg(test)]
mod tests {
    use artillery_core::internal::codec;

    use super::*;
    use crate::fixtures;

    fn addrs() -> Vec<SocketAddr> {
        vec!["10.0.0.1:7400".parse().unwrap(), "[fd00::1]:7400".parse().unwrap()]
    }

    fn bytes(value: &impl Serialize) -> Vec<u8> {
        let mut bytes = Vec::new();
        codec::encode(value, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_node_without_a_host_name_has_the_bytes_of_earlier_stores() {
        let id = fixtures::id(1);
        let node = NodeInfo { id, name: "n1".into(), addrs: addrs(), host: None };
        let earlier = bytes(&(id, "n1", addrs()));
        assert_eq!(bytes(&node), earlier);
        assert_eq!(codec::decode(&earlier), Ok(node));
        let address = NodeAddress { name: "n1".into(), addrs: addrs(), host: None };
        let earlier = bytes(&("n1", addrs()));
        assert_eq!(bytes(&address), earlier);
        assert_eq!(codec::decode(&earlier), Ok(address));
    }

    #[test]
    fn host_names_survive_encoding() {
        for addrs in [addrs(), Vec::new()] {
            let host = Some("n1.example:7400".to_owned());
            let node = NodeInfo { id: fixtures::id(1), name: "n1".into(), addrs: addrs.clone(), host: host.clone() };
            assert_eq!(codec::decode(&bytes(&node)), Ok(node));
            let address = NodeAddress { name: "n1".into(), addrs, host };
            assert_eq!(codec::decode(&bytes(&address)), Ok(address));
        }
    }

    #[test]
    fn nothing_stands_behind_a_host_name() {
        let host = || Place::Host("n1.example:7400".into());
        for behind in [host(), Place::V4("10.0.0.1:7400".parse().unwrap())] {
            let address = EncodedAddress { name: "n1".into(), places: Places(vec![host(), behind]) };
            assert!(codec::decode::<NodeAddress>(&bytes(&address)).is_err());
        }
    }
}
