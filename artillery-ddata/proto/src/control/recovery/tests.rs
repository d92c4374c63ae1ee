use super::{plan as plan_after, *};
use crate::{
    Role,
    fixtures::{self, founder, id, serving as config},
};

const CLUSTER: ClusterId = ClusterId(7);

fn plan(asked: ClusterId, standings: &[Standing]) -> Result<Plan, NotRecovered> {
    plan_after(asked, standings, Duration::ZERO)
}

/// A node that serves, if its configuration names it, and knows these voters.
fn standing(n: u8, voters: &[u8], config: ChainConfig, last: Version) -> Standing {
    let serves = (config.role(id(n)) == Some(Role::Serving)).then_some(config.epoch);
    let voters = vec![voters.iter().map(|&n| id(n)).collect()];
    Standing {
        applied: LogIndex(config.epoch.0),
        log: Some(LogEnd { term: Term(2), index: 5 }),
        voters,
        in_touch: Some(Duration::from_millis(1500)),
        served: true,
        chains: vec![ChainStanding { config, serves, whole: true, synced: true, last, watermark: Sequence(3) }],
        ..fixtures::standing(founder(n), CLUSTER)
    }
}

fn three(n: u8) -> Standing {
    standing(n, &[1, 2, 3], config(1, &[1, 2, 3]), Version::new(1, 4))
}

#[test]
fn the_surviving_node_goes_on() {
    let plan = plan(CLUSTER, &[three(2)]).unwrap();
    assert_eq!((plan.by.id, plan.newest, plan.upto), (id(2), Epoch(1), LogIndex(1)));
    assert_eq!(plan.silent, BTreeSet::from([id(1), id(3)]));
    let kept = &plan.chains[0];
    assert_eq!((kept.last, kept.gone_on_to), (Version::new(1, 4), None));
    let text = kept.to_string();
    assert!(
        text.contains("up to version 1.4") && text.contains("its last 1 updates") && text.contains("1.5 s"),
        "{text}"
    );
}

#[test]
fn while_a_majority_answers_nothing_is_lost() {
    let refused = NotRecovered::Quorum { answer: 2, voters: 3 };
    assert_eq!(plan(CLUSTER, &[three(1), three(3)]), Err(refused));
    let leading = Standing { leads: true, ..three(1) };
    assert_eq!(plan(CLUSTER, &[leading]), Err(NotRecovered::Leads { leader: id(1) }));
}

#[test]
fn two_that_could_not_elect_each_other_are_no_quorum() {
    // Node 2 knows a newer set of voters. Node 1 missed that change, and gets no vote of node 2.
    let newer = LogEnd { term: Term(3), index: 9 };
    let sets = |sets: &[&[u8]]| sets.iter().map(|set| set.iter().map(|&n| id(n)).collect()).collect();
    let two = Standing { log: Some(newer), voters: sets(&[&[1, 2, 3], &[3, 4, 5]]), ..three(2) };
    assert_eq!(plan(CLUSTER, &[three(1), two.clone()]).unwrap().by.id, id(1));
    let two = Standing { log: three(1).log, ..two };
    assert_eq!(plan(CLUSTER, &[three(1), two]), Err(NotRecovered::Quorum { answer: 2, voters: 3 }));
}

#[test]
fn nodes_that_are_no_voters_make_no_quorum() {
    let spare = |n| Standing { log: None, voters: vec![[1, 2, 3].map(id).into()], ..three(n) };
    assert_eq!(plan(CLUSTER, &[three(1), spare(4), spare(5)]).unwrap().by.id, id(1));
}

#[test]
fn the_newest_epoch_counts_for_more_than_length() {
    let five = [1, 2, 3, 4, 5];
    let old = standing(1, &five, config(1, &[1, 2, 3]), Version::new(1, 90));
    let newer = standing(2, &five, config(2, &[2, 3]), Version::new(2, 60));
    let plan = plan(CLUSTER, &[old, newer]).unwrap();
    assert_eq!((plan.by.id, plan.chains[0].gone_on_to), (id(2), None));
}

#[test]
fn of_one_epoch_the_longest_history_is_taken() {
    let five = [1, 2, 3, 4, 5];
    let short = standing(1, &five, config(1, &[1, 2, 3]), Version::new(1, 4));
    let long = standing(2, &five, config(1, &[1, 2, 3]), Version::new(1, 9));
    assert_eq!(plan(CLUSTER, &[short, long]).unwrap().by.id, id(2));
}

#[test]
fn known_losses_are_reported() {
    let five = [1, 2, 3, 4, 5];
    let left_behind = standing(1, &five, config(1, &[1, 2, 3]), Version::new(1, 4));
    let spare = standing(4, &five, config(3, &[2, 5]), Version::NONE);
    let plan = plan(CLUSTER, &[left_behind, spare]).unwrap();
    assert_eq!((plan.by.id, plan.newest, plan.upto), (id(1), Epoch(3), LogIndex(3)));
    assert_eq!(plan.chains[0].gone_on_to, Some(Epoch(3)));
    assert!(plan.chains[0].to_string().contains("MISSING: the chain continued to epoch 3"));
}

#[test]
fn without_a_serving_member_nothing_survives() {
    let spare = |n| standing(n, &[1, 2, 3, 4, 5], config(2, &[1, 2, 3]), Version::NONE);
    assert_eq!(plan(CLUSTER, &[spare(4), spare(5)]), Err(NotRecovered::NoHistory { chain: ChainId(0) }));
    let syncing = Standing {
        chains: vec![ChainStanding { serves: None, whole: false, ..three(1).chains[0].clone() }],
        ..three(1)
    };
    let refused = plan(CLUSTER, &[syncing]).unwrap_err();
    assert_eq!(refused, NotRecovered::NoHistory { chain: ChainId(0) });
    assert!(refused.to_string().ends_with("start a new cluster"), "{refused}");
}

#[test]
fn several_chains_need_a_node_that_has_all() {
    let other = |serves: Option<u64>| ChainStanding {
        config: ChainConfig { chain: ChainId(1), ..config(1, &[1]) },
        serves: serves.map(Epoch),
        whole: serves.is_some(),
        synced: true,
        last: Version::new(1, 1),
        watermark: Sequence(1),
    };
    let with = |n, chain: ChainStanding| Standing { chains: vec![three(n).chains[0].clone(), chain], ..three(n) };
    let five = |standing: Standing| Standing { voters: vec![[1, 2, 3, 4, 5].map(id).into()], ..standing };
    let (all, some) = (five(with(2, other(Some(1)))), five(with(1, other(None))));
    assert_eq!(plan(CLUSTER, &[some.clone(), all]).unwrap().by.id, id(2));
    let longer =
        Standing { chains: vec![ChainStanding { last: Version::new(1, 9), ..some.chains[0].clone() }], ..some };
    let half = five(with(2, other(Some(1))));
    assert_eq!(
        plan(CLUSTER, &[Standing { chains: vec![longer.chains[0].clone(), other(None)], ..longer }, half]),
        Err(NotRecovered::Scattered)
    );
}

#[test]
fn another_cluster_and_two_recoveries_are_told_apart() {
    assert_eq!(plan(CLUSTER, &[]), Err(NotRecovered::Nobody));
    let refused = NotRecovered::DifferentCluster { asked: ClusterId(8), found: CLUSTER };
    assert_eq!(plan(ClusterId(8), &[three(1)]), Err(refused));
    let first = History::first(CLUSTER);
    let (one, other) = (first.next(1), first.next(2));
    let of = |n, history| Standing { history, ..three(n) };
    assert_eq!(plan(CLUSTER, &[of(1, one), of(2, other)]), Err(NotRecovered::Parted { one, other }));
    // Nodes of an older history are ignored.
    let newer = plan(CLUSTER, &[of(1, first), of(2, one), of(3, first)]).unwrap();
    assert_eq!((newer.history, newer.by.id), (one, id(2)));
}

#[test]
fn a_lease_asked_for_since_the_order_shows_that_a_majority_lives() {
    let (waited, ago) = (Duration::from_millis(1_010), Duration::from_millis(200));
    let lost = three(2);
    assert_eq!(plan_after(CLUSTER, std::slice::from_ref(&lost), waited).map(|plan| plan.by.id), Ok(id(2)));
    let touched = Standing { in_touch: Some(ago), ..lost.clone() };
    let refused = NotRecovered::InTouch { node: id(2), ago };
    assert!(refused.to_string().starts_with("nothing is lost"));
    assert_eq!(plan_after(CLUSTER, std::slice::from_ref(&touched), waited), Err(refused));
    // A spare's answer is as good as a member's.
    let five = |standing: Standing| Standing { voters: vec![[1, 2, 3, 4, 5].map(id).into()], ..standing };
    let both = [five(lost), five(Standing { me: three(3).me, ..touched.clone() })];
    assert_eq!(plan_after(CLUSTER, &both, waited), Err(NotRecovered::InTouch { node: id(3), ago }));
    let spare = Standing {
        in_touch: None,
        heard: Some(ago),
        ..standing(4, &[1, 2, 3, 4, 5], config(2, &[2, 3]), Version::NONE)
    };
    let removed = standing(1, &[1, 2, 3, 4, 5], config(1, &[1, 2, 3]), Version::new(1, 4));
    let refused = NotRecovered::InTouch { node: id(4), ago };
    assert_eq!(
        plan_after(CLUSTER, &[removed, spare], waited),
        Err(refused),
        "a spare is answered, though it has no lease"
    );
    assert!(plan(CLUSTER, &[touched]).is_ok(), "at the time of the order it may be from just before the loss");
}

#[test]
fn an_answer_from_early_in_a_survey_counts_by_when_it_was_given() {
    // The survey took a second, because another node didn't answer.
    let touched =
        |ago| Standing { in_touch: Some(Duration::from_millis(ago)), ..three(2) }.aged(Duration::from_secs(1));
    let after = |standing: Standing| plan_after(CLUSTER, &[standing], Duration::from_secs(2));
    let ago = Duration::from_millis(1_900);
    assert_eq!(after(touched(900)), Err(NotRecovered::InTouch { node: id(2), ago }), "since the order");
    assert!(after(touched(1_100)).is_ok(), "before it");
    let aged = Standing { heard: None, member_heard: Some(ago), ..three(2) }.aged(ago);
    assert_eq!((aged.heard, aged.member_heard), (None, Some(ago)), "it may have received a member's message since");
}

/// The next incarnation of a node that has a disk: it serves nothing.
fn again(n: u8, config: ChainConfig, last: Version) -> Standing {
    let mut standing = standing(n, &[1, 2, 3], config, last);
    standing.me.id.incarnation.starts += 1;
    standing.chains[0].serves = None;
    Standing { served: false, in_touch: None, ..standing }
}

#[test]
fn a_store_that_served_counts_in_its_next_life() {
    let config_of = |epoch, members: &[u8]| config(epoch, members);
    let back = again(2, config_of(4, &[1, 2, 3]), Version::new(3, 9));
    let plan = plan(CLUSTER, std::slice::from_ref(&back)).unwrap();
    assert_eq!((plan.by.id, plan.chains[0].epoch, plan.chains[0].last), (back.me.id, Epoch(4), Version::new(3, 9)));
    assert_eq!((plan.chains[0].gone_on_to, plan.silent), (None, BTreeSet::from([id(1), id(3)])));
    assert!(plan.chains[0].synced && !plan.chains[0].to_string().contains("MISSING"));
}

#[test]
fn of_stores_that_are_back_the_one_of_the_newest_epoch_goes_on() {
    let five = |standing: Standing| Standing { voters: vec![[1, 2, 3, 4, 5].map(id).into()], ..standing };
    // Node 3 was removed in epoch 3: it holds more than node 2, but those updates never reached epoch 3.
    let old = five(again(3, config(2, &[1, 2, 3]), Version::new(2, 90)));
    let newest = five(again(2, config(3, &[1, 2]), Version::new(3, 70)));
    assert_eq!(plan(CLUSTER, &[old.clone(), newest]).unwrap().by, again(2, config(3, &[1, 2]), Version::new(3, 70)).me);
    // It knows that it was removed.
    let knows = five(again(3, config(3, &[1, 2]), Version::new(2, 90)));
    let plan = plan(CLUSTER, &[knows]).unwrap();
    assert_eq!((plan.chains[0].epoch, plan.chains[0].gone_on_to), (Epoch(2), Some(Epoch(3))));
    assert!(plan.chains[0].to_string().contains("MISSING: the chain continued to epoch 3"));
}

#[test]
fn a_store_that_is_not_whole_or_may_have_lost_writes_is_named() {
    let mut torn = again(2, config(4, &[1, 2, 3]), Version::new(3, 9));
    torn.chains[0].whole = false;
    assert_eq!(plan(CLUSTER, std::slice::from_ref(&torn)), Err(NotRecovered::NoHistory { chain: ChainId(0) }));
    let mut weak = again(1, config(4, &[1, 2, 3]), Version::new(3, 5));
    weak.chains[0].synced = false;
    torn.chains[0].watermark = Sequence(8);
    torn.voters = vec![[1, 2, 3, 4, 5].map(id).into()];
    weak.voters.clone_from(&torn.voters);
    let kept = plan(CLUSTER, &[torn, weak]).unwrap().chains.remove(0);
    let text = kept.to_string();
    assert!(text.contains("MISSING: 3 later updates") && text.contains("before a power cut"), "{text}");
}

#[test]
fn a_store_is_the_same_voter_in_each_of_its_lives() {
    let back = |n| again(n, config(1, &[1, 2, 3]), Version::new(1, 4));
    assert_eq!(plan(CLUSTER, &[back(1), back(3)]), Err(NotRecovered::Quorum { answer: 2, voters: 3 }));
    let other = Standing { me: NodeInfo { id: fixtures::incarnation(1, 99), ..founder(1) }, ..back(1) };
    assert!(plan(CLUSTER, &[other, back(3)]).is_ok(), "an emptied directory is another store");
}
