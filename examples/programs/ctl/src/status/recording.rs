//! Tests the picture of `status --watch` on a simulated terminal, and generates `docs/status.svg`. After a change of
//! the picture run `WRITE_RECORDING=1 cargo test -p artillery-ctl --lib recording`.

mod svg;

use std::time::Duration;

use artillery_ddata::status::ReadsStatus;
use ratatui::{Terminal, backend::TestBackend, buffer::Buffer};

use super::{
    events::between,
    picture::Picture,
    snapshot::{Chain, Member, MemberReport, Node, Snapshot},
};

const WIDTH: u16 = 100;
const HEIGHT: u16 = 30;

fn draw(before: Option<&Snapshot>, now: &Snapshot, events: &[String], trouble: Option<&str>, width: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, HEIGHT)).unwrap();
    let picture = Picture { before, now, events, trouble };
    terminal.draw(|frame| frame.render_widget(&picture, frame.area())).unwrap();
    terminal.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> String {
    let line = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..buffer.area.height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
}

fn member(name: &str, role: &str, last: u64, watermark: u64, head: u64) -> Member {
    let state = MemberReport {
        last,
        watermark,
        lag: Some(head - last),
        dirty: last - watermark,
        unreplicated: 0,
        lease: Some(870),
        open: role != "syncing",
        halted: None,
    };
    Member { name: name.to_owned(), role: role.to_owned(), state: Ok(state) }
}

fn node(name: &str, role: &str, reads: u64) -> Node {
    let mut counts = ReadsStatus::default();
    (counts.local_clean, counts.dirty) = (reads * 9, reads);
    (counts.version_query, counts.shared_query) = (reads / 5, reads - reads / 5);
    Node { name: name.to_owned(), role: role.to_owned(), reads: Some(counts) }
}

fn snapshot(millis: u64, epoch: u64, members: Vec<Member>, nodes: Vec<Node>) -> Snapshot {
    let copies = members.iter().filter(|member| member.role != "syncing").count() as u32;
    let chain = Chain { number: 0, epoch, copies, members };
    Snapshot { at: Duration::from_millis(millis), chains: vec![chain], nodes }
}

/// A chain under load: its head dies, and a spare joins.
fn story() -> Vec<Snapshot> {
    let healthy = |millis, last, reads| {
        let members = vec![
            member("a", "head", last, last - 7, last),
            member("b", "middle", last - 3, last - 7, last),
            member("c", "tail", last - 6, last - 6, last),
        ];
        let nodes =
            vec![node("a", "head", reads), node("b", "middle", reads), node("c", "tail", reads), node("d", "spare", 0)];
        snapshot(millis, 1, members, nodes)
    };
    let shorter = |millis, last, reads| {
        let members = vec![member("b", "head", last, last - 4, last), member("c", "tail", last - 3, last - 3, last)];
        let mut nodes =
            vec![node("a", "spare", 0), node("b", "head", reads), node("c", "tail", reads), node("d", "spare", 0)];
        nodes[0].reads = None;
        snapshot(millis, 2, members, nodes)
    };
    let joining = |millis, epoch, role: &str, last, reads| {
        let third = if role == "tail" { last - 5 } else { last - 900 };
        let middle = if role == "tail" { "middle" } else { "tail" };
        let members = vec![
            member("b", "head", last, last - 5, last),
            member("c", middle, last - 3, last - 5, last),
            member("d", role, third, third, last),
        ];
        snapshot(millis, epoch, members, vec![node("b", "head", reads), node("c", middle, reads), node("d", role, 40)])
    };
    vec![
        healthy(500, 4_000, 10_000),
        healthy(1_000, 5_201, 14_000),
        healthy(1_500, 6_402, 18_000),
        shorter(3_000, 6_400, 26_000),
        shorter(3_500, 7_303, 30_000),
        joining(4_000, 3, "syncing", 8_204, 34_000),
        joining(4_500, 4, "tail", 9_306, 38_000),
        joining(5_000, 4, "tail", 10_407, 42_000),
    ]
}

/// One frame for each snapshot after the first, with all events up to then.
fn frames() -> Vec<Buffer> {
    let story = story();
    let mut events = Vec::new();
    let frame = |pair: &[Snapshot]| {
        let seconds = pair[1].at.as_secs();
        events.extend(between(&pair[0], &pair[1]).iter().map(|event| format!("{seconds:>4} s  {event}")));
        draw(Some(&pair[0]), &pair[1], &events, None, WIDTH)
    };
    story.windows(2).map(frame).collect()
}

#[test]
fn the_picture_shows_the_chain_its_lag_its_reads_and_what_happened() {
    let frames = frames();
    let first = text(&frames[0]);
    for shown in
        ["chain 0 · epoch 1 · 3 copies · 2402 writes/s", "│3      │dirty", "newest 5201", "dirty  7", "lease  870 ms"]
    {
        assert!(first.contains(shown), "no {shown:?} in\n{first}");
    }
    let of = |role: &str| first.lines().find(|line| line.contains(role) && line.contains("72000")).map(str::to_owned);
    assert!(of("middle").is_some_and(|line| line.contains("8000") && line.contains("1600")), "{first}");
    assert!(first.contains("◀──") && first.contains("watermark 5195"), "{first}");
    let (order, heads) = (first.find(" head").unwrap(), first.find(" tail").unwrap());
    assert!(order < heads && first.contains('▶'), "{first}");
    assert!(text(&frames[4]).contains("│897    │"), "{}", text(&frames[4]));
    let last = text(frames.last().unwrap());
    for event in
        ["epoch 1 → 2", "a is out, was head", "b is head, was middle", "d joins as syncing", "d is tail, was syncing"]
    {
        assert!(last.contains(event), "no {event:?} in\n{last}");
    }
}

fn dot(text: &str) -> Option<usize> {
    text.lines().find_map(|line| line.chars().position(|sign| sign == '●'))
}

#[test]
fn a_dot_goes_down_the_chain_while_something_is_written() {
    let frames = frames();
    assert!(text(&frames[0]).contains('●'));
    let places: std::collections::BTreeSet<_> = frames.iter().map(|frame| dot(&text(frame))).collect();
    assert!(places.len() > 2, "the dot doesn't move: {places:?}");
    let quiet = &story()[0];
    let later = Snapshot { at: Duration::from_secs(9), ..quiet.clone() };
    assert!(!text(&draw(Some(quiet), &later, &[], None, WIDTH)).contains('●'));
}

#[test]
fn any_size_and_unknown_values_are_drawn() {
    let mut now = story().swap_remove(2);
    now.chains[0].members[1].state = Err("it was not reached".to_owned());
    let narrow = text(&draw(None, &now, &[], Some("no node answers"), 40));
    assert!(narrow.contains("▼ b middle · it was not reached") && narrow.contains("no node answers"), "{narrow}");
    for (width, height) in [(1, 1), (20, 3), (47, 9), (300, 60)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let picture = Picture { before: None, now: &now, events: &[], trouble: None };
        terminal.draw(|frame| frame.render_widget(&picture, frame.area())).unwrap();
    }
    let empty = draw(None, &Snapshot::default(), &[], None, WIDTH);
    assert!(text(&empty).contains("q quits"));
}

#[test]
fn only_changes_are_printed() {
    let story = story();
    assert_eq!(between(&story[0], &story[1]), [""; 0]);
    let lost = between(&story[2], &story[3]);
    let told =
        ["chain 0: epoch 1 → 2", "chain 0: b is head, was middle", "chain 0: a is out, was head", "a doesn't answer"];
    assert_eq!(lost, told);
    let mut halted = story[1].clone();
    if let Ok(state) = &mut halted.chains[0].members[2].state {
        state.halted = Some("its store failed".to_owned());
    }
    assert_eq!(between(&story[1], &halted), ["chain 0: c stopped serving: its store failed"]);
    assert_eq!(between(&halted, &halted), [""; 0]);
}

#[test]
fn the_recording_in_the_docs_is_what_is_drawn() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/status.svg");
    let drawn = svg::animated(&frames());
    if std::env::var_os("WRITE_RECORDING").is_some() {
        std::fs::write(path, &drawn).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == drawn, "docs/status.svg is out of date: run with WRITE_RECORDING=1 to regenerate it");
}
