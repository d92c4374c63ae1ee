//! Encodes a query for all nodes, and decodes the answers (RFC 1035, RFC 6763). Does no I/O. Any host may have sent an
//! answer.
//!
//! The parser of `mdns-sd` is private, and no other dependency parses DNS. This one parses the records that nodes send
//! (TXT, SRV, A and AAAA), at the beginning of a packet.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::SERVICE_TYPE;
use crate::discovery::txt::TxtRecord;

const A: u16 = 1;
const PTR: u16 = 12;
const TXT: u16 = 16;
const AAAA: u16 = 28;
const SRV: u16 = 33;
const IN: u16 = 1;
const RESPONSE: u8 = 0x80;
/// Cache-flush bit, which multicast DNS keeps in the class field (RFC 6762, section 10.2).
const CACHE_FLUSH: u16 = 0x8000;

/// Maximum number of records parsed per answer, whatever number the answer states.
const MAX_RECORDS: u16 = 64;

/// Maximum number of questions repeated in an answer. Our query has one.
const MAX_QUESTIONS: u16 = 8;

/// Maximum length of a name in bytes, with a dot for each label (RFC 1035, section 2.3.4).
const MAX_NAME_BYTES: usize = 255;

/// Maximum number of labels and compression pointers per name.
const MAX_STEPS: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instance {
    pub(super) txt: TxtRecord,
    /// The port in the instance's SRV record, and in `ips` the addresses of that record's host, at most
    /// [`MAX_RECORDS`]. Without an SRV record, the port is 0 and `ips` is empty.
    pub(super) port: u16,
    pub(super) ips: Vec<IpAddr>,
}

const HEADER_BYTES: usize = 12;

/// Encodes a query for all instances of the service. Answers repeat `id`, so that blindly sent ones are rejected.
pub(super) fn question(id: u16) -> Vec<u8> {
    let mut packet = vec![0; HEADER_BYTES];
    packet[..2].copy_from_slice(&id.to_be_bytes());
    packet[5] = 1;
    for label in SERVICE_TYPE.trim_end_matches('.').split('.') {
        packet.push(label.len() as u8);
        packet.extend(label.as_bytes());
    }
    packet.push(0);
    packet.extend(PTR.to_be_bytes());
    packet.extend(IN.to_be_bytes());
    packet
}

/// Decodes the instances in an answer to the query `id`. A malformed answer yields the instances before the fault.
pub(super) fn read(packet: &[u8], id: u16) -> Vec<Instance> {
    let mut records = Records::default();
    let _ = records.read(packet, id);
    records.instances()
}

#[derive(Default)]
struct Records {
    properties: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    hosts: BTreeMap<String, (String, u16)>,
    ips: BTreeMap<String, Vec<IpAddr>>,
}

impl Records {
    fn read(&mut self, packet: &[u8], id: u16) -> Option<()> {
        let mut reader = Reader { packet, at: 0 };
        if reader.number()? != id || reader.bytes(2)?[0] & RESPONSE == 0 {
            return None;
        }
        let questions = reader.number()?;
        let mut records = 0_u16;
        for _section in 0..3 {
            records = records.saturating_add(reader.number()?);
        }
        if questions > MAX_QUESTIONS {
            return None;
        }
        for _ in 0..questions {
            reader.name()?;
            reader.bytes(4)?;
        }
        for _ in 0..records.min(MAX_RECORDS) {
            self.read_record(&mut reader)?;
        }
        Some(())
    }

    fn read_record(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let name = reader.name()?;
        let (kind, class) = (reader.number()?, reader.number()?);
        let _time_to_live = reader.bytes(4)?;
        let len = usize::from(reader.number()?);
        let begin = reader.at;
        let data = reader.bytes(len)?;
        if class & !CACHE_FLUSH != IN {
            return Some(());
        }
        match kind {
            TXT => drop(self.properties.insert(name, properties(data))),
            // The host name may point backwards, so the reader gets the packet up to the end of this record.
            SRV => drop(self.hosts.insert(name, host(&reader.packet[..begin + len], begin)?)),
            A => self.ips.entry(name).or_default().push(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?).into()),
            AAAA => self.ips.entry(name).or_default().push(Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?).into()),
            _ => {}
        }
        Some(())
    }

    fn instances(&self) -> Vec<Instance> {
        let suffix = format!(".{SERVICE_TYPE}");
        let found =
            self.properties.iter().filter(|(name, _)| name.ends_with(&suffix)).filter_map(|(name, properties)| {
                let txt = TxtRecord::parse(|key: &str| properties.get(key).map(Vec::as_slice)).ok()?;
                let (port, ips) = match self.hosts.get(name) {
                    Some((host, port)) => (*port, self.ips.get(host).cloned().unwrap_or_default()),
                    None => (0, Vec::new()),
                };
                Some(Instance { txt, port, ips })
            });
        found.collect()
    }
}

/// Decodes the host and port of the SRV record whose data is `packet[begin..]`.
fn host(packet: &[u8], begin: usize) -> Option<(String, u16)> {
    let mut reader = Reader { packet, at: begin };
    let _priority_and_weight = reader.bytes(4)?;
    let (port, host) = (reader.number()?, reader.name()?);
    (reader.at == packet.len()).then_some((host, port))
}

/// Decodes a TXT record. If a key is repeated, its first value is used.
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

    fn number(&mut self) -> Option<u16> {
        self.bytes(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Reads a name in lower case, with a dot after each label. It may contain compression pointers.
    fn name(&mut self) -> Option<String> {
        let (mut name, mut at, mut end) = (String::new(), self.at, None);
        for _ in 0..MAX_STEPS {
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
                    let behind = at + 1 + usize::from(len);
                    name.push_str(&String::from_utf8_lossy(self.packet.get(at + 1..behind)?).to_ascii_lowercase());
                    name.push('.');
                    at = behind;
                }
            }
            if name.len() > MAX_NAME_BYTES {
                return None;
            }
        }
        None
    }
}

/// Fuzz target: decodes `bytes` as an answer to the query whose id they contain.
#[cfg(fuzzing)]
pub(in crate::discovery) fn fuzz(bytes: &[u8]) {
    let id = bytes.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
    let (instances, most) = (read(bytes, id), usize::from(MAX_RECORDS));
    assert!(instances.len() <= most && instances.iter().all(|one| one.ips.len() <= most));
}

#[cfg(test)]
mod tests;
