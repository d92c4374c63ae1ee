//! A node's TXT record: encoding it, and decoding records of other hosts.

use std::net::SocketAddr;

use crate::NodeId;

/// The version of the record. Records of other versions are ignored.
const VERSION: &str = "1";

/// Maximum length of a property in bytes, including key and `=`.
const MAX_PROPERTY_BYTES: usize = 255;

const MAX_CLUSTER_BYTES: usize = 200;

const MAX_ADDRS: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TxtRecord {
    pub(super) cluster: String,
    pub(super) node: NodeId,
    /// As many as fit. If empty, the addresses of the host are used.
    pub(super) addrs: Vec<SocketAddr>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TxtError {
    #[error("no `{0}`")]
    Missing(&'static str),
    #[error("`{0}` is malformed")]
    Malformed(&'static str),
    #[error("it has another version")]
    OtherVersion,
}

impl TxtRecord {
    pub(super) fn to_properties(&self) -> Vec<(&'static str, String)> {
        let mut addrs = String::new();
        for addr in &self.addrs {
            let addr = addr.to_string();
            if "addrs=".len() + addrs.len() + 1 + addr.len() > MAX_PROPERTY_BYTES {
                break;
            }
            if !addrs.is_empty() {
                addrs.push(',');
            }
            addrs.push_str(&addr);
        }
        let mut properties =
            vec![("v", VERSION.into()), ("cluster", self.cluster.clone()), ("node", self.node.to_string())];
        if !addrs.is_empty() {
            properties.push(("addrs", addrs));
        }
        properties
    }

    pub(super) fn parse<'a>(property: impl Fn(&str) -> Option<&'a [u8]>) -> Result<Self, TxtError> {
        let text = |key| match property(key) {
            Some(value) => std::str::from_utf8(value).map_err(|_| TxtError::Malformed(key)).map(Some),
            None => Ok(None),
        };
        let required = |key| text(key)?.ok_or(TxtError::Missing(key));
        if required("v")? != VERSION {
            return Err(TxtError::OtherVersion);
        }
        let cluster = required("cluster")?;
        if cluster.is_empty() || cluster.len() > MAX_CLUSTER_BYTES {
            return Err(TxtError::Malformed("cluster"));
        }
        let node = parse_node(required("node")?).ok_or(TxtError::Malformed("node"))?;
        let addrs = match text("addrs")? {
            Some(list) => parse_addrs(list).ok_or(TxtError::Malformed("addrs"))?,
            None => Vec::new(),
        };
        Ok(Self { cluster: cluster.to_owned(), node, addrs })
    }
}

fn parse_node(text: &str) -> Option<NodeId> {
    let text: &[u8; 32] = text.as_bytes().try_into().ok()?;
    let mut id = [0; 16];
    for (byte, digits) in id.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |at: usize| char::from(digits[at]).to_digit(16);
        *byte = u8::try_from(digit(0)? << 4 | digit(1)?).ok()?;
    }
    Some(NodeId::from_bytes(id))
}

fn parse_addrs(list: &str) -> Option<Vec<SocketAddr>> {
    list.split(',').take(MAX_ADDRS).map(|addr| addr.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Properties = BTreeMap<String, Vec<u8>>;

    fn txt() -> TxtRecord {
        let addrs = vec!["127.0.0.1:7400".parse().unwrap(), "[::1]:7400".parse().unwrap()];
        TxtRecord { cluster: "shop".into(), node: NodeId::from_name("a"), addrs }
    }

    fn properties(txt: &TxtRecord) -> Properties {
        txt.to_properties().into_iter().map(|(key, value)| (key.to_owned(), value.into_bytes())).collect()
    }

    fn parse(properties: &Properties) -> Result<TxtRecord, TxtError> {
        TxtRecord::parse(|key| properties.get(key).map(Vec::as_slice))
    }

    #[test]
    fn a_written_record_is_read_back() {
        assert_eq!(parse(&properties(&txt())), Ok(txt()));
        let without = TxtRecord { addrs: Vec::new(), ..txt() };
        assert_eq!(parse(&properties(&without)), Ok(without));
    }

    #[test]
    fn only_so_many_addresses_are_written_as_fit() {
        let many = TxtRecord { addrs: (0..40).map(|port| ([10, 20, 30, 40], 10_000 + port).into()).collect(), ..txt() };
        let properties = properties(&many);
        assert!(properties.iter().all(|(key, value)| key.len() + 1 + value.len() <= MAX_PROPERTY_BYTES));
        let read = parse(&properties).unwrap();
        assert!((10..40).contains(&read.addrs.len()));
        assert_eq!(read.addrs, many.addrs[..read.addrs.len()]);
    }

    #[test]
    fn a_bad_record_names_its_fault() {
        for (key, value, error) in [
            ("v", None, TxtError::Missing("v")),
            ("v", Some("2"), TxtError::OtherVersion),
            ("cluster", None, TxtError::Missing("cluster")),
            ("cluster", Some(""), TxtError::Malformed("cluster")),
            ("node", None, TxtError::Missing("node")),
            ("node", Some("12"), TxtError::Malformed("node")),
            ("node", Some("zz000000000000000000000000000000"), TxtError::Malformed("node")),
            ("addrs", Some("localhost:1"), TxtError::Malformed("addrs")),
            ("addrs", Some(""), TxtError::Malformed("addrs")),
        ] {
            let mut properties = properties(&txt());
            properties.remove(key);
            properties.extend(value.map(|value| (key.to_owned(), value.as_bytes().to_vec())));
            assert_eq!(parse(&properties), Err(error), "{key} = {value:?}");
        }
        let mut not_text = properties(&txt());
        not_text.insert("cluster".into(), vec![0xff]);
        assert_eq!(parse(&not_text), Err(TxtError::Malformed("cluster")));
    }

    proptest! {
        #[test]
        fn any_record_is_read_or_refused(
            version in prop_oneof![Just(b"1".to_vec()), any::<Vec<u8>>()],
            cluster: Vec<u8>,
            node in prop_oneof!["[0-9a-fA-F]{32}".prop_map(String::into_bytes), any::<Vec<u8>>()],
            addrs in prop_oneof!["[0-9.:,\\[\\]]{0,60}".prop_map(String::into_bytes), any::<Vec<u8>>()],
        ) {
            let all = [("v", version), ("cluster", cluster), ("node", node), ("addrs", addrs)];
            let properties = all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
            if let Ok(txt) = parse(&properties) {
                prop_assert!(txt.addrs.len() <= MAX_ADDRS && !txt.cluster.is_empty());
            }
        }
    }
}
