use proptest::prelude::*;

use super::*;
use crate::NodeId;

const ID: u16 = 0x4a17;

/// An answer to the query, without records.
fn empty(records: u8) -> Vec<u8> {
    let mut packet = question(ID);
    packet[2] = RESPONSE | 4;
    packet[7] = records;
    packet
}

fn push(packet: &mut Vec<u8>, name: &[u8], kind: u16, data: &[u8]) {
    packet.extend(name);
    packet.extend([kind.to_be_bytes(), (IN | CACHE_FLUSH).to_be_bytes(), [0, 0], [0, 10]].concat());
    packet.extend((data.len() as u16).to_be_bytes());
    packet.extend(data);
}

/// The name of instance `n`. It ends with a pointer to the name in the query.
const INSTANCE: &[u8] = b"\x01n\xc0\x0c";
const SRV_DATA: &[u8] = b"\0\0\0\0\x1c\xe8\x01h\0";

fn txt(of: &[(&str, &str)]) -> Vec<u8> {
    let property = |(key, value): &(&str, &str)| {
        let property = format!("{key}={value}");
        [vec![property.len() as u8], property.into_bytes()].concat()
    };
    of.iter().flat_map(property).collect()
}

fn answer(of: &[(&str, &str)], srv: &[u8]) -> Vec<u8> {
    let mut packet = empty(3);
    push(&mut packet, INSTANCE, TXT, &txt(of));
    push(&mut packet, INSTANCE, SRV, srv);
    push(&mut packet, b"\x01h\0", A, &[10, 0, 0, 5]);
    packet
}

fn of_node(id: &str) -> [(&str, &str); 3] {
    [("v", "1"), ("cluster", "shop"), ("node", id)]
}

fn valid() -> Vec<u8> {
    answer(&of_node(&NodeId::from_name("n").to_string()), SRV_DATA)
}

fn instance(port: u16, ips: &[[u8; 4]]) -> Instance {
    let txt = TxtRecord { cluster: "shop".into(), node: NodeId::from_name("n"), addrs: Vec::new() };
    Instance { txt, port, ips: ips.iter().map(|&ip| ip.into()).collect() }
}

#[test]
fn an_instance_is_read() {
    assert_eq!(read(&valid(), ID), [instance(7400, &[[10, 0, 0, 5]])]);
    let id = NodeId::from_name("n").to_string();
    let stated = [&of_node(&id)[..], &[("addrs", "[::1]:7")]].concat();
    assert_eq!(read(&answer(&stated, SRV_DATA), ID)[0].txt.addrs, ["[::1]:7".parse().unwrap()]);
}

#[test]
fn what_does_not_answer_the_question_is_passed_over() {
    assert_eq!(read(&valid(), ID + 1), [], "of another question");
    assert_eq!(read(&question(ID), ID), [], "a question");
    let mut elsewhere = valid();
    let at = elsewhere.windows(10).position(|bytes| bytes == b"_artillery").unwrap();
    elsewhere[at + 1] = b'x';
    assert_eq!(read(&elsewhere, ID), [], "another service");
    let mut unread = valid();
    unread[5] = 255;
    assert_eq!(read(&unread, ID), [], "too many questions");
}

#[test]
fn a_name_that_points_to_itself_ends() {
    let mut packet = valid();
    let at = question(ID).len();
    packet[at..at + 2].copy_from_slice(&[0xc0, at as u8]);
    assert_eq!(read(&packet, ID), []);
    // With a label in the loop of pointers, the name grows with each turn.
    packet[at..at + 4].copy_from_slice(&[1, b'n', 0xc0, at as u8]);
    assert_eq!(read(&packet, ID), []);
}

/// The next record must not be read as part of the short one.
#[test]
fn a_short_srv_record_is_not_read_beyond_its_end() {
    for len in 0..SRV_DATA.len() {
        let id = NodeId::from_name("n").to_string();
        assert_eq!(read(&answer(&of_node(&id), &SRV_DATA[..len]), ID), [instance(0, &[])], "{len} bytes");
    }
    let longer = [SRV_DATA, b"\0"].concat();
    let id = NodeId::from_name("n").to_string();
    assert_eq!(read(&answer(&of_node(&id), &longer), ID), [instance(0, &[])], "a byte too many");
}

#[test]
fn an_address_of_another_length_ends_the_answer() {
    let mut packet = valid();
    packet[7] = 5;
    push(&mut packet, b"\x01h\0", A, &[10, 0, 0]);
    push(&mut packet, b"\x01h\0", A, &[10, 0, 0, 6]);
    assert_eq!(read(&packet, ID), [instance(7400, &[[10, 0, 0, 5]])]);
    let mut short = valid();
    short[7] = 4;
    push(&mut short, b"\x01h\0", AAAA, &[0; 4]);
    assert_eq!(read(&short, ID), [instance(7400, &[[10, 0, 0, 5]])]);
}

#[test]
fn a_property_is_not_read_beyond_its_record() {
    let id = NodeId::from_name("n").to_string();
    let mut data = txt(&of_node(&id));
    // The last property claims a larger length.
    let last = data.len() - id.len() - "node=".len() - 1;
    data[last] += 1;
    let mut packet = empty(2);
    push(&mut packet, INSTANCE, TXT, &data);
    push(&mut packet, INSTANCE, SRV, SRV_DATA);
    assert_eq!(read(&packet, ID), []);
}

#[test]
fn counts_that_are_larger_than_the_packet_end_with_it() {
    let mut packet = valid();
    packet[6..12].fill(255);
    assert_eq!(read(&packet, ID), [instance(7400, &[[10, 0, 0, 5]])]);
}

#[test]
fn only_so_many_records_are_read() {
    let mut packet = empty(0);
    packet[6..8].copy_from_slice(&500_u16.to_be_bytes());
    for number in 0..500_u32 {
        let id = NodeId::from_name(&number.to_string()).to_string();
        let name = format!("\x03{number:03}\u{0}");
        let name = [&name.as_bytes()[..4], b"\xc0\x0c"].concat();
        push(&mut packet, &name, TXT, &txt(&of_node(&id)));
    }
    assert_eq!(read(&packet, ID).len(), usize::from(MAX_RECORDS));
}

fn is_bounded(instances: &[Instance]) -> bool {
    let most = usize::from(MAX_RECORDS);
    instances.len() <= most && instances.iter().all(|one| one.ips.len() <= most && one.txt.addrs.len() <= 16)
}

/// Random bytes with many that begin a name, point to one, or end one.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0), Just(1), Just(12), Just(0xc0), any::<u8>()];
    prop::collection::vec(byte, 0..600)
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in bytes()) {
        prop_assert!(is_bounded(&read(&bytes, ID)));
        // After a valid beginning, the bytes are more often decoded as records.
        prop_assert!(is_bounded(&read(&[empty(200), bytes].concat(), ID)));
    }

    #[test]
    fn a_changed_answer_is_read_without_a_panic(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        end in any::<prop::sample::Index>(),
        behind in bytes(),
    ) {
        let mut packet = valid();
        for (at, byte) in flips {
            let at = at.index(packet.len());
            packet[at] = byte;
        }
        packet.truncate(end.index(packet.len() + 1));
        packet.extend(behind);
        prop_assert!(is_bounded(&read(&packet, ID)));
    }
}
