//! The events that an application's own subscriber receives from embedded nodes. This test has a process to itself,
//! since the subscriber is global.

use std::{
    fmt::Write,
    sync::{Mutex, PoisonError},
};

use artillery_ddata::Node;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
};

/// Maximum number of lines during a node's start.
const MOST: usize = 8;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn lines() -> Vec<String> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Records each event of level INFO or more severe.
struct Embedder;

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Subscriber for Embedder {
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(format!("{} {}", event.metadata().level(), event.metadata().target()));
        event.record(&mut text);
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push(text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn builder(cluster: &str) -> artillery_ddata::NodeBuilder {
    let loopback = ([127, 0, 0, 1], 0).into();
    Node::builder().cluster(cluster).secret(*b"0123456789abcdef").listen(loopback).mdns(false)
}

#[tokio::test]
async fn nodes_start_with_few_lines_and_none_of_the_log_s_routine() {
    tracing::subscriber::set_global_default(Embedder).unwrap();
    let alone = builder("alone").expect(1).start().await.unwrap();
    alone.ready().await.unwrap();
    let first = lines();
    assert!(first.len() <= MOST, "{} lines: {first:#?}", first.len());

    let one = builder("three").start().await.unwrap();
    let seed = one.addr().to_string();
    let two = builder("three").seed(&seed).start().await.unwrap();
    let three = builder("three").seed(&seed).start().await.unwrap();
    for node in [&one, &two, &three] {
        node.ready().await.unwrap();
        assert!(node.waiting_for().await.is_empty());
    }
    let all = lines();
    let of_three = &all[first.len()..];
    assert!(of_three.len() <= 3 * MOST, "{} lines: {of_three:#?}", of_three.len());
    // Errors of openraft may be logged.
    let is_routine = |line: &String| line.contains(" openraft") && !line.starts_with("ERROR");
    assert!(!all.iter().any(is_routine), "{all:#?}");

    // The loss of a member is reported as an event and as a warning.
    let mut events = one.events();
    let lost = three.name().to_owned();
    three.abort().await;
    loop {
        let event = events.next().await.expect("the node is running");
        if let artillery_ddata::node::NodeEvent::MemberLost { node, .. } = &event {
            assert_eq!(node.name, lost);
            let line = event.to_string();
            assert!(lines().iter().any(|seen| seen.starts_with("WARN") && seen.contains(&line)), "{:#?}", lines());
            break;
        }
    }
    for node in [alone, one, two] {
        node.abort().await;
    }
    while events.next().await.is_some() {}
}
