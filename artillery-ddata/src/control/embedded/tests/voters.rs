use artillery_proto::control::Term;
use std::{collections::BTreeSet, time::Duration};

use artillery_proto::guards::Guards;

use super::{
    super::{EmbeddedSettings, types::first_voters},
    conformance::{group, leader},
    group::Group,
    network::founding,
};
use crate::{
    MemberId,
    control::{
        ConfigLog,
        log::{AppendError, ConfigChange, ConfigLogError, LogIndex},
    },
};

#[test]
fn the_first_voters_are_an_odd_number() {
    let sizes = [1, 2, 3, 4, 5, 6, 9].map(|founders| first_voters(&founding(founders), 5).len());
    assert_eq!(sizes, [1, 1, 3, 3, 5, 5, 5]);
}

#[tokio::test(start_paused = true)]
async fn each_voter_is_replaced_by_its_next_incarnation() {
    for founders in [3, 5] {
        let group = Group::new(2, founders, founders, false, Guards::ALL);
        for n in 0..founders {
            group.start(n).await;
        }
        group.recover().await.unwrap();
        for n in (0..founders).chain(0..founders) {
            group.net.crash(n);
            let change = ConfigChange::Nodes { add: vec![], remove: vec![] };
            loop {
                let (log, term) = leader(&group.net).await;
                if log.append(term, log.configs().applied().next(), change.clone()).await.is_ok() {
                    break;
                }
                let _ = tokio::time::timeout(Duration::from_millis(50), log.changed(u64::MAX)).await;
            }
            group.recover().await.unwrap();
            let living: BTreeSet<MemberId> = group.net.logs().iter().map(|(founder, _)| founder.id).collect();
            assert_eq!(leader(&group.net).await.0.voters(), living, "only living incarnations vote");
        }
        group.end().await;
        assert_eq!(group.book().violation, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_restarted_founder_waits_to_become_a_voter() {
    let group = Group::new(2, 1, 1, true, Guards::ALL);
    group.start(0).await;
    leader(&group.net).await;
    group.restart(0).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (_, log) = &group.net.logs()[0];
    assert_eq!((log.leads(), log.leader(), log.voters()), (None, None, BTreeSet::new()));
    assert!(log.confirm(Term(1)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn invalid_voter_sets_are_refused() {
    let (_net, founding, log, term) = group(3, &EmbeddedSettings::default()).await;
    let ids: BTreeSet<_> = founding.members.iter().map(|founder| founder.id).collect();
    let stranger = super::network::founding(9).members[8].id;
    assert_eq!(log.set_voters(Term(term.0 + 1), ids.clone()).await, Err(AppendError::NotLeading));
    for bad in [BTreeSet::new(), BTreeSet::from([stranger])] {
        let done = log.set_voters(term, bad).await;
        assert!(matches!(done, Err(AppendError::Log(ConfigLogError::Failed(_)))), "{done:?}");
    }
    assert_eq!(log.set_voters(term, ids.clone()).await, Ok(()), "these are the voters already");
    assert_eq!(log.voters(), ids);
}

#[tokio::test(start_paused = true)]
async fn a_late_node_gets_a_snapshot_with_the_window_of_entries() {
    let settings = EmbeddedSettings { snapshot_every: 8, window: 16, ..EmbeddedSettings::default() };
    let (net, founding, log, term) = group(3, &settings).await;
    let late = net.start(5, &founding, &settings).await;
    for at in 2..60 {
        let add = net.logs().into_iter().map(|(founder, _)| founder).filter(|_| at == 50).collect();
        log.append(term, LogIndex(at), ConfigChange::Nodes { add, remove: vec![] }).await.unwrap();
    }
    let mut seen = 0;
    while late.configs().applied() < LogIndex(59) {
        seen = late.changed(seen).await;
    }
    assert_eq!(late.configs(), log.configs());
    for log in [&late, &log] {
        assert_eq!(log.entry(LogIndex(1)), Err(ConfigLogError::Compacted { first: LogIndex(44) }));
        for at in (44..60).map(LogIndex) {
            assert_eq!(log.entry(at).unwrap().unwrap().index, at);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn large_changes_get_through_and_larger_ones_are_refused() {
    let id = founding(9).members[8].id;
    let change = |ids| ConfigChange::Nodes { add: vec![], remove: vec![id; ids] };
    // By the log, in messages of one entry each; and as one snapshot of many parts.
    for snapshot_every in [512, 4] {
        let settings = EmbeddedSettings { snapshot_every, ..EmbeddedSettings::default() };
        let (net, founding, log, term) = group(1, &settings).await;
        for at in 2..8 {
            log.append(term, LogIndex(at), change(28_000)).await.unwrap();
        }
        let refused = log.append(term, LogIndex(8), change(30_000)).await;
        assert!(matches!(refused, Err(AppendError::Log(ConfigLogError::Failed(_)))), "{refused:?}");
        let late = net.start(5, &founding, &settings).await;
        let add = net.logs().into_iter().map(|(founder, _)| founder).collect();
        log.append(term, LogIndex(8), ConfigChange::Nodes { add, remove: vec![] }).await.unwrap();
        let reached = async {
            let mut seen = 0;
            while late.configs().applied() < LogIndex(8) {
                seen = late.changed(seen).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), reached).await.expect("the late node still lags");
        assert_eq!(late.configs(), log.configs());
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_votes_itself_out_and_another_goes_on() {
    let (net, founding, log, term) = group(3, &EmbeddedSettings::default()).await;
    let me = log.leader().unwrap();
    let heir = founding.members.iter().map(|founder| founder.id).find(|&id| id != me).unwrap();
    log.set_voters(term, BTreeSet::from([heir])).await.unwrap();
    while log.leads().is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (next, term) = leader(&net).await;
    assert_eq!((next.leader(), next.voters()), (Some(heir), BTreeSet::from([heir])));
    let at = next.configs().applied().next();
    next.append(term, at, ConfigChange::Nodes { add: vec![], remove: vec![] }).await.unwrap();
    let mut seen = 0;
    while log.entry(at) == Ok(None) {
        seen = log.changed(seen).await;
    }
    assert_eq!(log.entry(at), next.entry(at), "the old leader applies further entries");
}

#[tokio::test(start_paused = true)]
async fn a_half_done_change_of_voters_is_finished() {
    let (_net, founding, log, term) = group(5, &EmbeddedSettings::default()).await;
    let me = log.leader().unwrap();
    let all: Vec<_> = founding.members.iter().map(|founder| founder.id).collect();
    let few: BTreeSet<_> = all.iter().copied().filter(|&id| id != me).take(2).chain([me]).collect();
    let parts =
        |log: &super::super::Embedded| log.0.metrics.borrow().membership_config.membership().get_joint_config().len();
    for millis in 0..30 {
        let voters = if millis % 2 == 0 { few.clone() } else { all.iter().copied().collect() };
        let _ = tokio::time::timeout(Duration::from_millis(millis / 2), log.set_voters(term, voters)).await;
        let whole = async {
            while parts(&log) > 1 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), whole).await.expect("two sets of voters remain");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_may_not_lead_hands_over_and_leads_in_a_later_term_only() {
    let group = Group::new(2, 3, 3, false, Guards::ALL);
    for n in 0..3 {
        group.start(n).await;
    }
    for waits in [true, false] {
        let (log, term) = leader(&group.net).await;
        let me = log.leader();
        log.may_lead(false);
        assert_eq!(log.leads(), None);
        if waits {
            let (other, _) = leader(&group.net).await;
            assert_ne!(other.leader(), me);
        }
        log.may_lead(true);
        let later = loop {
            let (log, later) = leader(&group.net).await;
            if later > term {
                break later;
            }
            let _ = tokio::time::timeout(Duration::from_millis(50), log.changed(u64::MAX)).await;
        };
        assert!(later > term);
    }
    group.end().await;
    assert_eq!(group.book().violation, None);
}
