//! Safety under all faults at once, liveness after them, and the effect of disabling each rule.

use std::{collections::BTreeSet, time::Duration};

use super::network::{Network, Trouble};
use crate::guards::Mutant;

/// The longest time from healing until a cluster is formed.
const BOUND: Duration = Duration::from_secs(60);

/// The kind of faults depends on the seed. In a hasty run cuts and restarts interrupt a formation.
fn trouble(seed: u64, hasty: bool) -> Trouble {
    let pick = |from: &[u64], divisor: u64| Some(from[(seed / divisor) as usize % from.len()]).filter(|&pick| pick > 0);
    let (cuts, restarts) = if hasty { ([0, 30, 100], [0, 0, 60, 200]) } else { ([0, 400, 1500], [0, 0, 700, 3000]) };
    Trouble {
        loss: pick(&[0, 100, 400, 600], 1).unwrap_or(0),
        repeat: pick(&[0, 300], 4).unwrap_or(0),
        delay: pick(if hasty { &[2, 10, 30] } else { &[5, 50, 150] }, 8).unwrap_or(0),
        cut_every: pick(&cuts, 24),
        restart_every: pick(&restarts, 72),
    }
}

/// One run: faults, healing, and all checks. Returns how many milliseconds it took after healing, or the violation.
fn run(seed: u64, nodes: impl Fn(u16) -> usize, mutant: Option<Mutant>) -> Result<(Network, u128), String> {
    let (expect, hasty) = (1 + (seed % 5) as u16, [false, true, true][(seed / 5) as usize % 3]);
    let spread = if hasty { 30 } else { [0, 300, 4000][seed as usize % 3] };
    let mut network = Network::new(seed, expect, nodes(expect), spread, hasty, mutant);
    network.trouble(trouble(seed / 15, hasty));
    let rough = if hasty { 100 + network.below(900) } else { 1000 + network.below(9000) };
    network.run_for(rough);
    network.trouble(Trouble::NONE);
    let healed = network.now;
    let due = network.living() >= usize::from(expect);
    let done = network.run_until(healed + BOUND, Network::all_settled);
    if network.violation.is_none() && due && !done {
        let phases: Vec<_> = (0..nodes(expect)).map(|at| network.phase(at)).collect();
        return Err(format!("no cluster {BOUND:?} after healing: {phases:#?}"));
    }
    let took = (network.now - healed).as_millis();
    network.run_for(3000);
    network.check_nobody_is_left_out();
    match network.violation.take() {
        Some(violation) => Err(violation),
        None => Ok((network, took)),
    }
}

fn sound(seed: u64, nodes: impl Fn(u16) -> usize) -> (Network, u128) {
    run(seed, nodes, None).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"))
}

/// From `expect` nodes to one fewer than twice as many.
fn few(seed: u64) -> impl Fn(u16) -> usize {
    move |expect| usize::from(expect) + (seed / 7 % u64::from(expect)) as usize
}

#[test]
fn fewer_than_twice_as_many_never_form_two() {
    let mut worst = 0;
    for seed in 0..1500 {
        let (network, took) = sound(seed, few(seed));
        worst = worst.max(took);
        let able = network.foundings().iter().filter(|founding| !network.lost(founding)).count();
        // Incarnations matter: a restarted memory node is another one.
        assert!(able <= 1 || network.restarts > 0, "seed {seed}: {able} clusters");
    }
    eprintln!("the slowest took {worst} ms after healing");
}

fn partitions(nodes: usize) -> Vec<Vec<Vec<usize>>> {
    let mut all = vec![vec![]];
    for node in 0..nodes {
        let joined = |groups: &Vec<Vec<usize>>, at: usize| {
            let mut groups = groups.clone();
            groups.resize(groups.len().max(at + 1), vec![]);
            groups[at].push(node);
            groups
        };
        all =
            all.iter().flat_map(|groups| (0..=groups.len()).map(|at| joined(groups, at)).collect::<Vec<_>>()).collect();
    }
    all
}

#[test]
fn five_nodes_that_expect_three_form_one_however_they_are_cut_up() {
    let all = partitions(5);
    assert_eq!(all.len(), 52);
    for (seed, groups) in all.iter().enumerate() {
        let mut network = Network::new(seed as u64, 3, 5, 0, false, None);
        network.partition(&groups.iter().map(Vec::as_slice).collect::<Vec<_>>());
        network.run_for(10_000);
        let clusters =
            |network: &Network| (0..5).filter_map(|at| network.cluster(at)).map(|(id, _)| id).collect::<BTreeSet<_>>();
        let formed = groups.iter().filter(|group| group.len() >= 3).count();
        assert_eq!(clusters(&network).len(), formed, "{groups:?}");
        network.partition(&[&[0, 1, 2, 3, 4]]);
        network.run_for(10_000);
        assert!((0..5).all(|at| network.cluster(at).is_some()) && clusters(&network).len() == 1, "{groups:?}");
        assert_eq!(network.violation, None, "{groups:?}");
    }
}

/// Halves that can't see each other at first, each large enough to form a cluster, with faults.
#[test]
fn many_nodes_in_trouble_may_form_several_that_never_mix() {
    let mut several = 0;
    for seed in 0..300 {
        let expect = 1 + (seed % 4) as u16;
        let nodes = usize::from(2 * expect) + (seed % 3) as usize;
        let mut network = Network::new(seed, expect, nodes, 300, false, None);
        network.trouble(Trouble { cut_every: None, ..trouble(seed / 15, false) });
        let all: Vec<_> = (0..nodes).collect();
        let (low, high) = all.split_at(usize::from(expect));
        network.partition(&[low, high]);
        network.run_for(3000 + 100 * (seed % 50));
        network.trouble(Trouble::NONE);
        network.run_until(network.now + BOUND, Network::all_settled);
        assert_eq!(network.violation, None, "seed {seed}");
        let foundings = network.foundings();
        several += usize::from(foundings.len() > 1);
        let ids: BTreeSet<_> = foundings.iter().map(|founding| founding.cluster).collect();
        assert_eq!(ids.len(), foundings.len());
    }
    assert!(several > 20, "only {several} runs had more than one cluster: the test shows little");
}

/// One to five nodes that expect different numbers start within three seconds of each other. Returns the violation.
fn unequal(seed: u64, mutant: Option<Mutant>) -> Result<(), String> {
    let nodes = 1 + seed % 5;
    let most = 1 + (seed / 5) % nodes;
    let mut network = Network::new(seed, most as u16, nodes as usize, 3000, false, mutant);
    if seed.is_multiple_of(2) {
        network.mix_expectations();
    }
    if (seed / 25).is_multiple_of(2) {
        network.find_by_seed();
    }
    network.trouble(Trouble { loss: [0, 100][(seed / 3) as usize % 2], delay: 20, ..Trouble::NONE });
    network.run_for(3000);
    let done = network.run_until(network.now + BOUND, Network::all_settled);
    match (network.violation.take(), network.foundings().len()) {
        (Some(violation), _) => Err(violation),
        (None, 1) if done => Ok(()),
        (None, clusters) => Err(format!("{clusters} clusters, all settled: {done}")),
    }
}

#[test]
fn any_number_of_nodes_with_any_expectations_form_one_cluster() {
    for seed in 0..1000 {
        unequal(seed, None).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
}

#[test]
fn every_rule_of_unequal_nodes_is_needed() {
    for mutant in [Mutant::ProposeUnsearched, Mutant::ProposeOnAnswer, Mutant::NameOnlyExpected, Mutant::AcceptFewer] {
        let caught = (0..5000).find_map(|seed| unequal(seed, Some(mutant)).err().map(|violation| (seed, violation)));
        let (seed, violation) = caught.unwrap_or_else(|| panic!("{mutant:?} was not seen"));
        eprintln!("{mutant:?}: seed {seed}: {violation}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in [3, 77, 400] {
        let trace = || sound(seed, |expect| usize::from(expect) + 1).0.trace;
        assert_eq!(trace(), trace());
    }
}

/// Disables each rule: the checks above must detect it. (The tests of the ballots detect `FreshVerdict`.)
#[test]
fn every_rule_is_needed() {
    let mutants = [
        Mutant::GiveUpWhenSlow,
        Mutant::GiveUpWhenOneIsReplaced,
        Mutant::AcceptTwo,
        Mutant::AnyLife,
        Mutant::MajorityAccepts,
        Mutant::FormWithoutVote,
        Mutant::BrokenPromise,
        Mutant::RefuseForNow,
        Mutant::FormAgain,
    ];
    for mutant in mutants {
        let caught =
            (0..10_000).find_map(|seed| run(seed, few(seed), Some(mutant)).err().map(|violation| (seed, violation)));
        let (seed, violation) = caught.unwrap_or_else(|| panic!("{mutant:?} was not seen"));
        eprintln!("{mutant:?}: seed {seed}: {violation}");
    }
}
