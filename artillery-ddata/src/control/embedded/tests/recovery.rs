//! One of three nodes restarts the log, and the nodes left behind learn of it.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::timeout;

use super::{
    super::{EmbeddedSettings, LogHandle},
    conformance::{group, leader},
    network::{Net, node},
};
use crate::{
    Epoch,
    control::{
        Bootstrap, ConfigLog, History, NodeInfo,
        log::{ConfigChange, LogIndex},
    },
};

const MINUTE: Duration = Duration::from_secs(60);

fn part(net: &Net, founding: &Bootstrap, n: usize) {
    let mut world = net.world();
    for other in founding.members.iter().map(|member| member.id.node).filter(|&other| other != node(n)) {
        world.cuts.extend([(node(n), other), (other, node(n))]);
    }
}

/// The first of three nodes is cut off, and continues alone.
async fn recovered() -> (Net, Bootstrap, LogHandle, History) {
    let (net, founding, ..) = group(3, &EmbeddedSettings::default()).await;
    part(&net, &founding, 0);
    let me = founding.members[0].clone();
    let before = net.log(me.id).unwrap();
    let seat = LogHandle::new(before.clone());
    let history = History::first(founding.cluster).next(99);
    let configs = before.configs().recovered(history, me.clone(), Epoch(3), LogIndex(9));
    seat.recover(configs).await.unwrap();
    net.world().living.insert(me.id.node, (me, seat.log()));
    assert_eq!(before.leads(), None);
    (net, founding, seat, history)
}

async fn leads(seat: &LogHandle) {
    let mut seen = 0;
    let leads = async {
        while seat.leads().is_none() {
            seen = seat.changed(seen).await;
        }
    };
    timeout(MINUTE, leads).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_recovered_node_leads_alone_beyond_all_earlier_entries() {
    let (_net, founding, seat, history) = recovered().await;
    let me = founding.members[0].id;
    leads(&seat).await;
    let configs = seat.configs();
    assert_eq!((configs.history(), seat.voters()), (history, BTreeSet::from([me])));
    let config = configs.iter().next().unwrap();
    assert_eq!(config.serving().collect::<Vec<_>>(), [me]);
    assert!(config.epoch > Epoch(1 << 20) && configs.applied() > LogIndex(1 << 20));
    assert_eq!(configs.serves_since(me), Some(configs.applied()));
    let (term, at) = (seat.leads().unwrap(), configs.applied().next());
    seat.append(term, at, ConfigChange::Nodes { add: vec![], remove: vec![] }).await.unwrap();
    assert_eq!(seat.confirm(term).await, Ok(at));
}

#[tokio::test(start_paused = true)]
async fn a_recovered_log_has_newer_terms() {
    let (net, founding, ..) = group(3, &EmbeddedSettings::default()).await;
    let (log, term) = leader(&net).await;
    let me = founding.members.iter().find(|member| log.leader() == Some(member.id)).unwrap().clone();
    let seat = LogHandle::new(log.clone());
    let history = History::first(founding.cluster).next(99);
    seat.recover(log.configs().recovered(history, me, Epoch(1), LogIndex(1))).await.unwrap();
    leads(&seat).await;
    assert!(seat.leads().unwrap() > term);
}

#[tokio::test(start_paused = true)]
async fn a_returning_majority_learns_that_it_was_left_behind() {
    let (net, founding, seat, history) = recovered().await;
    leads(&seat).await;
    let (old, term) = leader(&net).await;
    assert!(old.leads() == Some(term) && old.configs().history() != history || seat.leads() == Some(term));
    net.heal();
    for other in &founding.members[1..] {
        let histories = net.log(other.id).unwrap().histories().clone();
        assert_eq!(timeout(MINUTE, histories.left_behind(None)).await, Ok(history), "{}", other.name);
    }
    let here = seat.histories();
    assert!(timeout(MINUTE, here.left_behind(None)).await.is_err());
    assert!(seat.leads().is_some(), "the recovered node isn't disturbed");
}

#[tokio::test(start_paused = true)]
async fn a_returning_node_gets_the_recovered_log() {
    let (net, founding, seat, history) = recovered().await;
    leads(&seat).await;
    net.crash(1);
    net.crash(2);
    net.heal();
    let back = net.start(1, &founding, &EmbeddedSettings::default()).await;
    let founder: NodeInfo = net.logs().into_iter().map(|(founder, _)| founder).find(|f| f.id.node == node(1)).unwrap();
    let (term, at) = (seat.leads().unwrap(), seat.configs().applied().next());
    seat.append(term, at, ConfigChange::Nodes { add: vec![founder], remove: vec![] }).await.unwrap();
    let mut seen = 0;
    let told = async {
        while back.configs().applied() < at {
            seen = back.changed(seen).await;
        }
    };
    timeout(MINUTE, told).await.unwrap();
    assert_eq!(back.configs(), seat.configs());
    assert_eq!(back.histories().mine(), Some(history));
}
