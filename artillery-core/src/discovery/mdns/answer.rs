//! The bytes of a question for all nodes, and of the answers to it (RFC 1035, RFC 6763). Pure. Any host may have sent an answer.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use super::SERVICE_TYPE;
use crate::discovery::{Candidate, Source, sample::MAX_ADDRS, txt::TxtRecord};

const PTR: u16 = 12;
const TXT: u16 = 16;
const AAAA: u16 = 28;
const SRV: u16 = 33;
const A: u16 = 1;
const IN: u16 = 1;
/// An answer, not a question.
const RESPONSE: u8 = 0x80;
/// The bit of a class that has another meaning in multicast DNS.
const CACHE_FLUSH: u16 = 0x8000;

/// The most records that are read of an answer.
const MAX_RECORDS: u16 = 64;

/// The most labels of a name, and so of the places that it may point to.
const MAX_LABELS: usize = 128;

/// Asks for all instances of the service.
pub(super) fn question() -> Vec<u8> {
    let mut packet = vec![0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in SERVICE_TYPE.trim_end_matches('.').split('.') {
        packet.push(label.len() as u8);
        packet.extend(label.as_bytes());
    }
    packet.push(0);
    packet.extend(PTR.to_be_bytes());
    packet.extend(IN.to_be_bytes());
    packet
}

/// The nodes of this cluster in an answer. Malformed records are left out.
pub(super) fn read(packet: &[u8], cluster: &str) -> Vec<Candidate> {
    let mut records = Records::default();
    // Records before the first malformed one are used.
    let _ = records.read(packet);
    records.candidates(cluster)
}

#[derive(Default)]
struct Records {
    /// The properties of each instance.
    properties: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    /// The host and port of each instance.
    hosts: BTreeMap<String, (String, u16)>,
    ips: BTreeMap<String, Vec<IpAddr>>,
}

impl Records {
    fn read(&mut self, packet: &[u8]) -> Option<()> {
        let mut reader = Reader { packet, at: 2 };
        if reader.byte()? & RESPONSE == 0 {
            return None;
        }
        reader.at = 4;
        let questions = reader.number()?;
        let records = reader.number()?.checked_add(reader.number()?)?.checked_add(reader.number()?)?;
        for _ in 0..questions.min(MAX_RECORDS) {
            reader.name()?;
            reader.bytes(4)?;
        }
        for _ in 0..records.min(MAX_RECORDS) {
            let name = reader.name()?;
            let (kind, class) = (reader.number()?, reader.number()?);
            reader.bytes(4)?;
            let len = usize::from(reader.number()?);
            let begin = reader.at;
            let data = reader.bytes(len)?;
            if class & !CACHE_FLUSH == IN {
                self.take(name, kind, data, packet, begin);
            }
        }
        Some(())
    }

    fn take(&mut self, name: String, kind: u16, data: &[u8], packet: &[u8], begin: usize) -> Option<()> {
        match kind {
            TXT => drop(self.properties.insert(name, properties(data))),
            SRV => {
                // Behind priority and weight.
                let mut reader = Reader { packet, at: begin + 4 };
                let (port, host) = (reader.number()?, reader.name()?);
                self.hosts.insert(name, (host, port));
            }
            A => self.ips.entry(name).or_default().push(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?).into()),
            AAAA => self.ips.entry(name).or_default().push(Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?).into()),
            _ => {}
        }
        Some(())
    }

    fn candidates(&self, cluster: &str) -> Vec<Candidate> {
        let is_ours = |name: &&String| name.ends_with(&format!(".{SERVICE_TYPE}"));
        let found = self.properties.keys().filter(is_ours).filter_map(|name| {
            let properties = &self.properties[name];
            let txt = TxtRecord::parse(|key: &str| properties.get(key).map(Vec::as_slice)).ok()?;
            let mut addrs = txt.addrs;
            if let (true, Some((host, port))) = (addrs.is_empty(), self.hosts.get(name)) {
                let ips = self.ips.get(host).map_or(&[][..], Vec::as_slice);
                addrs = ips.iter().map(|&ip| SocketAddr::from((ip, *port))).collect();
            }
            addrs.retain(|addr| addr.port() != 0);
            addrs.truncate(MAX_ADDRS);
            let is_meant = txt.cluster == cluster && !addrs.is_empty();
            is_meant.then(|| Candidate::new(Source::Mdns, Some(txt.node), addrs))
        });
        found.collect()
    }
}

/// The first of each key counts.
fn properties(mut data: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut properties = BTreeMap::new();
    while let Some((&len, rest)) = data.split_first() {
        let Some((property, rest)) = rest.split_at_checked(usize::from(len)) else { break };
        data = rest;
        if let Some(equals) = property.iter().position(|byte| *byte == b'=') {
            let key = String::from_utf8_lossy(&property[..equals]).to_ascii_lowercase();
            properties.entry(key).or_insert_with(|| property[equals + 1..].to_vec());
        }
    }
    properties
}

struct Reader<'a> {
    packet: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let bytes = self.packet.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    fn number(&mut self) -> Option<u16> {
        self.bytes(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// A name in lower case, with a dot behind each label. It may point back to another place of the packet.
    fn name(&mut self) -> Option<String> {
        let (mut name, mut at, mut end) = (String::new(), self.at, None);
        for _ in 0..MAX_LABELS {
            let len = *self.packet.get(at)?;
            match len {
                0 => {
                    self.at = end.unwrap_or(at + 1);
                    return Some(name);
                }
                0xc0.. => {
                    end.get_or_insert(at + 2);
                    at = usize::from(u16::from_be_bytes([len & 0x3f, *self.packet.get(at + 1)?]));
                }
                64.. => return None,
                _ => {
                    let label = self.packet.get(at + 1..at + 1 + usize::from(len))?;
                    name.push_str(&String::from_utf8_lossy(label).to_ascii_lowercase());
                    name.push('.');
                    at += 1 + usize::from(len);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::NodeId;

    /// An answer with one instance, whose records point to names before them.
    fn answer(txt: &[(&str, &str)]) -> Vec<u8> {
        let mut packet = question();
        packet[2] = RESPONSE | 4;
        packet[7] = 3;
        let mut record = |name: &[u8], kind: u16, data: &[u8]| {
            packet.extend(name);
            packet.extend([kind.to_be_bytes(), (IN | CACHE_FLUSH).to_be_bytes(), [0, 0], [0, 10]].concat());
            packet.extend((data.len() as u16).to_be_bytes());
            packet.extend(data);
        };
        let properties = txt.iter().flat_map(|(key, value)| {
            let property = format!("{key}={value}");
            [vec![property.len() as u8], property.into_bytes()].concat()
        });
        record(b"\x01n\xc0\x0c", TXT, &properties.collect::<Vec<_>>());
        record(b"\x01n\xc0\x0c", SRV, b"\0\0\0\0\x1c\xe8\x01h\0");
        record(b"\x01h\0", A, &[10, 0, 0, 5]);
        packet
    }

    fn of_node<'a>(id: &'a str) -> [(&'a str, &'a str); 3] {
        [("v", "1"), ("cluster", "shop"), ("node", id)]
    }

    #[test]
    fn an_instance_is_read() {
        let node = NodeId::from_name("n");
        let id = node.to_string();
        let found = read(&answer(&of_node(&id)), "shop");
        assert_eq!(found, [Candidate::new(Source::Mdns, Some(node), vec!["10.0.0.5:7400".parse().unwrap()])]);
        assert_eq!(read(&answer(&of_node(&id)), "other"), []);
        let stated = [&of_node(&id)[..], &[("addrs", "[::1]:7")]].concat();
        assert_eq!(read(&answer(&stated), "shop")[0].addrs, ["[::1]:7".parse().unwrap()]);
        assert_eq!(read(&question(), "shop"), [], "no answer");
    }

    #[test]
    fn a_name_that_points_to_itself_ends() {
        let mut packet = answer(&[]);
        let at = question().len();
        packet[at..at + 2].copy_from_slice(&[0xc0, at as u8]);
        assert_eq!(read(&packet, "shop"), []);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8), end in any::<prop::sample::Index>()) {
            let mut packet = answer(&of_node(&NodeId::from_name("n").to_string()));
            for (at, byte) in flips {
                let at = at.index(packet.len());
                packet[at] = byte;
            }
            packet.truncate(end.index(packet.len() + 1));
            read(&packet, "shop");
        }
    }
}
