use std::collections::BTreeMap;

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

use super::*;
use crate::guards::Mutant;

fn polls(founders: u16) -> Vec<Poll> {
    (0..founders).map(|me| Poll::new(me, founders, Guards::ALL)).collect()
}

fn tell(polls: &mut [Poll], from: u16, to: u16) -> bool {
    let progress = polls[usize::from(from)].progress().clone();
    polls[usize::from(to)].receive(from, &progress)
}

#[test]
fn one_founder_decides_at_once() {
    assert_eq!(Poll::new(0, 1, Guards::ALL).verdict(), Some(ProposalVerdict::Form));
}

#[test]
fn all_must_accept_before_a_vote() {
    let mut polls = polls(3);
    tell(&mut polls, 0, 1);
    assert_eq!(polls[1].progress().vote, None);
    tell(&mut polls, 2, 1);
    assert_eq!(polls[1].progress().vote.map(|vote| vote.verdict), Some(ProposalVerdict::Form));
    assert_eq!(polls[1].verdict(), None, "one vote of three");
    tell(&mut polls, 1, 0);
    assert_eq!(
        polls[0].verdict(),
        Some(ProposalVerdict::Form),
        "the vote shows that all accepted: this founder votes too"
    );
}

#[test]
fn both_of_two_are_needed_either_way() {
    let mut polls = polls(2);
    polls[0].challenge();
    assert_eq!(polls[0].verdict(), None);
    tell(&mut polls, 0, 1);
    tell(&mut polls, 1, 0);
    assert_eq!(
        polls[0].progress().vote.map(|vote| vote.verdict),
        Some(ProposalVerdict::Form),
        "all founders have accepted by now"
    );
    assert_eq!(polls[0].verdict(), None);
    tell(&mut polls, 0, 1);
    assert_eq!(polls[1].verdict(), Some(ProposalVerdict::Form));
}

#[test]
fn a_majority_abandons_what_one_never_accepted() {
    let mut polls = polls(3);
    polls[0].challenge();
    tell(&mut polls, 0, 1);
    tell(&mut polls, 1, 0);
    tell(&mut polls, 0, 1);
    assert_eq!(polls[1].verdict(), Some(ProposalVerdict::Abandon));
    tell(&mut polls, 1, 0);
    assert_eq!(polls[0].verdict(), Some(ProposalVerdict::Abandon));
}

#[test]
fn a_promise_prevents_a_late_vote() {
    let mut polls = polls(3);
    polls[0].challenge();
    tell(&mut polls, 0, 1);
    tell(&mut polls, 2, 1);
    assert_eq!(polls[1].progress().vote, None, "it knows that all accepted, but has promised another founder's ballot");
}

#[test]
fn the_owner_of_a_ballot_takes_over_what_it_finds() {
    let mut polls = polls(5);
    for from in 1..5 {
        tell(&mut polls, from, 0);
    }
    assert!(polls[0].progress().vote.is_some());
    polls[4].challenge();
    for peer in [0, 1] {
        tell(&mut polls, 4, peer);
        tell(&mut polls, peer, 4);
    }
    let ballot = Ballot { round: 1, owner: 4 };
    assert_eq!(polls[4].progress().vote, Some(Vote { ballot, verdict: ProposalVerdict::Form }));
}

#[test]
fn a_lower_ballot_is_not_joined() {
    let mut polls = polls(3);
    polls[0].challenge();
    polls[1].challenge();
    tell(&mut polls, 1, 2);
    tell(&mut polls, 0, 2);
    assert_eq!(polls[2].progress().promised, Ballot { round: 1, owner: 1 });
}

#[test]
fn nonsense_is_ignored() {
    let mut poll = Poll::new(0, 3, Guards::ALL);
    let told = ProposalProgress { accepted: [1, 7, u16::MAX].into(), ..ProposalProgress::default() };
    assert!(!poll.receive(3, &told), "the position is out of range");
    assert!(!poll.receive(0, &told), "the sender is this founder itself");
    assert!(poll.receive(1, &told));
    assert_eq!(poll.progress().accepted, [0, 1].into());
    assert!(!poll.receive(1, &told), "nothing new");
}

/// Founders exchange messages at random, through a network that delays, repeats, reorders and loses them. The founders
/// accept one by one. Fails if two verdicts are found, or *form* before all have accepted.
fn soup(seed: u64, guards: Guards) -> Result<BTreeMap<usize, ProposalVerdict>, &'static str> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut below = |bound: usize| (rng.next_u64() % bound as u64) as usize;
    let founders = 1 + below(6);
    let mut polls: Vec<Option<Poll>> = (0..founders).map(|_| None).collect();
    let mut sent: Vec<(u16, ProposalProgress)> = vec![];
    let mut verdicts = BTreeMap::new();
    let challenges = 2 + below(8);
    for _ in 0..400 {
        let at = below(founders);
        let Some(poll) = &mut polls[at] else {
            if below(6) == 0 {
                polls[at] = Some(Poll::new(at as u16, founders as u16, guards));
            }
            continue;
        };
        match below(100) {
            chance if chance < challenges => poll.challenge(),
            chance if chance < 40 => sent.push((at as u16, poll.progress().clone())),
            _ if sent.is_empty() => {}
            _ => {
                // Usually a recent message.
                let age = if below(4) == 0 { below(sent.len()) } else { below(sent.len().min(6)) };
                let (from, progress) = sent[sent.len() - 1 - age].clone();
                poll.receive(from, &progress);
            }
        }
        verdicts.extend(poll.verdict().map(|verdict| (at, verdict)));
        let formed = verdicts.values().any(|&verdict| verdict == ProposalVerdict::Form);
        if formed && !polls.iter().all(Option::is_some) {
            return Err("formed although not all had accepted");
        }
        if formed && verdicts.values().any(|&verdict| verdict == ProposalVerdict::Abandon) {
            return Err("two verdicts");
        }
    }
    Ok(verdicts)
}

#[test]
fn never_two_verdicts() {
    let mut found = [0, 0];
    for seed in 0..4000 {
        let verdicts = soup(seed, Guards::ALL).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        found[0] += usize::from(verdicts.values().any(|&verdict| verdict == ProposalVerdict::Form));
        found[1] += usize::from(verdicts.values().any(|&verdict| verdict == ProposalVerdict::Abandon));
    }
    assert!(found.iter().all(|&found| found > 100), "both must happen: {found:?}");
}

#[test]
fn the_soup_has_teeth() {
    for mutant in [Mutant::MajorityAccepts, Mutant::FreshVerdict, Mutant::BrokenPromise] {
        let caught = (0..20_000).find(|&seed| soup(seed, Guards::without(mutant)).is_err());
        assert!(caught.is_some(), "{mutant:?} was not seen");
    }
}
