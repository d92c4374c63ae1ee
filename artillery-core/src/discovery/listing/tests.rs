use std::net::SocketAddr;

use super::*;

fn place(n: usize) -> Seed {
    SocketAddr::from(([10, 0, (n / 256) as u8, (n % 256) as u8], 7400)).into()
}

fn listing() -> Listing {
    Listing::new(Source::Other("test".into()))
}

/// The address of each candidate, and whether it is withdrawn.
fn shown(news: &[Candidate]) -> Vec<(String, bool)> {
    news.iter().map(|one| (one.addrs[0].to_string(), one.gone)).collect()
}

#[test]
fn a_place_is_reported_once() {
    let mut listing = listing();
    assert_eq!(shown(&listing.on_list([place(1), place(2), place(1)])).len(), 2);
    assert_eq!(shown(&listing.on_list([place(2), place(3)])), [("10.0.0.3:7400".into(), false)]);
}

#[test]
fn a_place_is_withdrawn_once_three_lists_lack_it() {
    let mut listing = listing();
    listing.on_list([place(1), place(2)]);
    for _ in 0..2 {
        assert_eq!(shown(&listing.on_list([place(1)])), []);
        assert_eq!(shown(&listing.on_list([place(1)])), []);
        assert_eq!(shown(&listing.on_list([place(1), place(2)])), [], "it is back");
    }
    listing.on_list([place(1)]);
    listing.on_failure("no answer");
    listing.on_list([place(1)]);
    assert_eq!(shown(&listing.on_list([place(1)])), [("10.0.0.2:7400".into(), true)]);
    assert_eq!(shown(&listing.on_list([place(2)])), [("10.0.0.2:7400".into(), false)], "found again");
}

#[test]
fn a_failure_withdraws_nothing() {
    let mut listing = listing();
    listing.on_list([place(1)]);
    (0..10).for_each(|_| listing.on_failure("no answer"));
    assert_eq!(shown(&listing.on_list([place(1)])), []);
}

/// Each list may be entirely different. Withdrawn places free their slots.
#[test]
fn a_list_is_bounded_and_those_gone_make_room() {
    let mut listing = listing();
    assert_eq!(listing.on_list((0..1000).map(place)).len(), MAX_PLACES);
    for _ in 1..LOOKS_UNTIL_GONE {
        assert_eq!(listing.on_list((1000..2000).map(place)).len(), 0);
    }
    let news = listing.on_list((1000..2000).map(place));
    assert_eq!(news.iter().filter(|one| one.gone).count(), MAX_PLACES);
    assert_eq!(news.iter().filter(|one| !one.gone).count(), MAX_PLACES);
}

#[test]
fn the_order_of_a_list_that_is_too_long_withdraws_no_place() {
    let mut listing = listing();
    assert_eq!(listing.on_list((0..1000).map(place)).len(), MAX_PLACES);
    for _ in 0..LOOKS_UNTIL_GONE {
        assert_eq!(shown(&listing.on_list((0..1000).rev().map(place))), []);
    }
}

#[test]
fn host_names_stay_names() {
    let news = listing().on_list(["db.example:7400".parse().unwrap()]);
    assert_eq!((&news[0].addrs[..], &news[0].host), (&[][..], &Some("db.example:7400".parse().unwrap())));
}

#[tokio::test]
async fn an_answer_that_never_arrives_is_a_failure() {
    let never = std::future::pending::<Result<Vec<Seed>, std::io::Error>>();
    assert!(within(Duration::from_millis(1), never).await.unwrap_err().contains("no answer"));
}

#[tokio::test]
async fn the_function_is_called_again_after_a_failure() {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let source = PolledDiscovery::new("test", Duration::ZERO, move || {
        let first = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        std::future::ready(if first { Err("busy") } else { Ok(vec![place(1)]) })
    });
    let mut candidates = source.candidates();
    let found = std::future::poll_fn(|context| candidates.as_mut().poll_next(context)).await.unwrap();
    assert_eq!((found.addrs[0].to_string(), found.source), ("10.0.0.1:7400".into(), Source::Other("test".into())));
}
