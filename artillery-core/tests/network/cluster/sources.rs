//! Sources of addresses implemented by an application, correctly or not.

use std::{
    fs,
    future::pending,
    path::PathBuf,
    pin::Pin,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc as blocking,
    },
    task::{Context, Poll},
};

use artillery_core::discovery::{
    Announcement, Candidate, Candidates, Discovery, DnsDiscovery, FileDiscovery, PolledDiscovery, Seed,
};
use futures_core::Stream;

use super::*;

#[derive(Clone, Default)]
struct Registry(Arc<Mutex<Vec<SocketAddr>>>);

impl Registry {
    fn source(&self) -> PolledDiscovery {
        let registry = self.clone();
        PolledDiscovery::new("registry", Duration::from_millis(100), move || {
            let places: Vec<_> = registry.0.lock().unwrap().iter().copied().map(Seed::from).collect();
            async move { Ok::<_, std::io::Error>(places) }
        })
    }
}

/// A stream whose items the contained function creates.
struct Made<F>(F);

impl<F: FnMut(&mut Context<'_>) -> Poll<Option<Candidate>> + Unpin> Stream for Made<F> {
    type Item = Candidate;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Candidate>> {
        (self.0)(context)
    }
}

/// A source whose streams the contained function creates.
struct Source<F>(F);

impl<F: Fn() -> Candidates + Send + Sync + 'static> Discovery for Source<F> {
    fn candidates(&self) -> Candidates {
        (self.0)()
    }
}

fn made(next: impl FnMut(&mut Context<'_>) -> Poll<Option<Candidate>> + Send + Unpin + 'static) -> Candidates {
    Box::pin(Made(next))
}

fn hint(n: usize) -> Candidate {
    let addr = SocketAddr::from(([127, 1, (n / 256 % 256) as u8, (n % 256) as u8], 1));
    Candidate::new(artillery_core::discovery::Source::Other("wrong".into()), None, vec![addr; 1000])
}

/// A file in a temporary directory, which is removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("artillery-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn file(&self) -> PathBuf {
        self.0.join("nodes")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn nodes_meet_by_a_source_of_the_application() {
    let registry = Registry::default();
    let a = node("a").discovery(registry.source()).start().await.unwrap();
    let b = node("b").discovery(registry.source()).start().await.unwrap();
    registry.0.lock().unwrap().extend([a.addr(), b.addr()]);
    see_each_other(&a, &[&b], MemberState::Alive).await;
    let by = artillery_core::discovery::Source::Other("registry".into());
    assert!([a.found_by(b.id().node), b.found_by(a.id().node)].contains(&Some(by)));
    // A node that restarts at another address is met again.
    b.leave().await;
    let b = node("b").discovery(registry.source()).start().await.unwrap();
    *registry.0.lock().unwrap() = vec![a.addr(), b.addr()];
    see_each_other(&a, &[&b], MemberState::Alive).await;
}

/// All kinds of faulty sources at once, next to a working seed.
#[tokio::test]
async fn a_wrong_source_costs_nothing_but_its_own_hints() {
    let (_held, blocked) = blocking::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let a = node("a").start().await.unwrap();
    let b = node("b")
        .discovery(Source(|| panic!("candidates panic on purpose")))
        .discovery(Source(|| made(|_| panic!("a stream panics on purpose"))))
        .discovery(Source(|| made(|_| Poll::Ready(None))))
        .discovery(Source(|| made(|_| Poll::Pending)))
        .discovery(Source(move || {
            let blocked = blocked.clone();
            made(move |_| {
                let _ = blocked.lock().unwrap().recv();
                Poll::Ready(None)
            })
        }))
        .discovery(Source(move || {
            let counted = counted.clone();
            made(move |_| Poll::Ready(Some(hint(counted.fetch_add(1, Ordering::Relaxed)))))
        }))
        .discovery(PolledDiscovery::new("silent", Duration::ZERO, pending::<Result<Vec<Seed>, std::io::Error>>))
        .seed(a.addr().to_string());
    let b = within(b.start()).await.unwrap();
    see_each_other(&a, &[&b], MemberState::Alive).await;
    // Wait for more than the 256 addresses that are dialled at a time.
    until(|| asked.load(Ordering::Relaxed) > 300).await;
    let c = node("c").seed(b.addr().to_string()).start().await.unwrap();
    see_each_other(&b, &[&a, &c], MemberState::Alive).await;
    b.leave().await;
}

/// Only the operator's list may report seeds.
#[tokio::test]
async fn a_source_withdraws_no_seed() {
    let addr = free_addr();
    let seed: Seed = addr.to_string().parse().unwrap();
    let mut gone = (0..3).map(|n| match n {
        0 => seed.candidate().withdrawn(),
        1 => Candidate::new(artillery_core::discovery::Source::Seed(addr.to_string()), None, vec![free_addr()]),
        _ => Candidate::at(artillery_core::discovery::Source::Seed(addr.to_string()), &seed).withdrawn(),
    });
    let gone: Vec<_> = gone.by_ref().collect();
    let a = node("a").seed(addr.to_string()).discovery(Source(move || {
        let mut left = gone.clone();
        made(move |_| left.pop().map_or(Poll::Pending, |one| Poll::Ready(Some(one))))
    }));
    let a = a.start().await.unwrap();
    until(|| matches!(&a.seeds()[0].state, SeedState::Trying { last: Some(_) })).await;
    let b = node("b").listen(addr).start().await.unwrap();
    see_each_other(&a, &[&b], MemberState::Alive).await;
}

#[tokio::test]
async fn a_source_announces_this_node() {
    struct Announces(mpsc::Sender<Announcement>);
    impl Discovery for Announces {
        fn announce(&self, me: &Announcement) {
            let _ = self.0.try_send(me.clone());
        }

        fn candidates(&self) -> Candidates {
            made(|_| Poll::Pending)
        }
    }
    let (sender, mut announced) = mpsc::channel(4);
    let a = node("a").discovery(Announces(sender)).start().await.unwrap();
    let me = within(announced.recv()).await.unwrap();
    assert_eq!((me.name.as_str(), me.node, me.addrs), ("a", a.id().node, vec![a.addr()]));
}

#[tokio::test]
async fn a_file_that_changes_leads_to_nodes() {
    let place = Place::new("nodes-in-a-file");
    let a = node("a").discovery(FileDiscovery::new(place.file())).start().await.unwrap();
    let (b, c) = (node("b").start().await.unwrap(), node("c").start().await.unwrap());
    fs::write(place.file(), format!("# nodes\n{}\nnonsense\n", b.addr())).unwrap();
    see_each_other(&a, &[&b], MemberState::Alive).await;
    // The file is replaced atomically, as editors do, and has no final line terminator.
    let later = free_addr();
    fs::write(place.0.join("new"), format!("{later}\nlocalhost:{}", c.addr().port())).unwrap();
    fs::rename(place.0.join("new"), place.file()).unwrap();
    see_each_other(&a, &[&b, &c], MemberState::Alive).await;
    fs::remove_file(place.file()).unwrap();
    let d = node("d").listen(later).start().await.unwrap();
    see_each_other(&a, &[&b, &c, &d], MemberState::Alive).await;
}

#[tokio::test]
async fn the_addresses_of_a_name_lead_to_nodes() {
    let a = node("a").start().await.unwrap();
    let name: Seed = format!("localhost:{}", a.addr().port()).parse().unwrap();
    let b = node("b").discovery(DnsDiscovery::new(name.clone())).start().await.unwrap();
    see_each_other(&a, &[&b], MemberState::Alive).await;
    assert_eq!(b.found_by(a.id().node), Some(artillery_core::discovery::Source::Dns(name.to_string())));
}
