//! Damage to a journal: a flipped bit in each byte, a missing file, another store, and a value that looks like a group.

use super::*;

/// A journal of several segments and starts. The last start writes no group of its own.
fn filled() -> (SimulatedDisk, Vec<(GroupNumber, JournalEntry)>) {
    let disk = harsh(3);
    let mut number = 0;
    for start in 1..4 {
        let (mut journal, _) = opened(&disk, start, Guards::ALL).unwrap();
        for _ in 0..6 {
            number += 1;
            journal.append(&[entry(number, 300 * number as usize)]).unwrap();
            journal.sync().unwrap();
        }
    }
    opened(&disk, 4, Guards::ALL).unwrap();
    let (_, entries) = opened(&disk.copy(1), 9, Guards::ALL).unwrap();
    assert_eq!(entries.len() as u64, number);
    (disk, entries)
}

fn length(disk: &SimulatedDisk, name: &str) -> usize {
    usize::try_from(disk.open(name).unwrap().length().unwrap()).unwrap()
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
enum Flipped {
    /// The flip is in the padding, or in an invalid group.
    Harmless,
    Named,
    /// Entries are missing, or differ.
    Silent,
}

/// Flips a bit of each byte in turn, and counts the effects.
fn flip_all(disk: &SimulatedDisk, entries: &[(GroupNumber, JournalEntry)], guards: Guards) -> [usize; 3] {
    let mut counts = [0; 3];
    for name in disk.names().unwrap() {
        for byte in 0..length(disk, &name) {
            let copy = disk.copy(1);
            copy.flip(&name, byte * 8 + byte % 8);
            let flipped = match opened(&copy, 10, guards) {
                Ok((_, found)) if found == entries => Flipped::Harmless,
                Ok(_) => Flipped::Silent,
                Err(JournalError::Damaged { file, .. }) if file == name => Flipped::Named,
                Err(error) => panic!("{name}, byte {byte}: {error}"),
            };
            counts[flipped as usize] += 1;
        }
    }
    counts
}

#[test]
fn a_flipped_bit_is_named_or_harmless() {
    let (disk, entries) = filled();
    let [harmless, named, silent] = flip_all(&disk, &entries, Guards::ALL);
    println!("{harmless} harmless, {named} named, {silent} silent");
    assert_eq!(silent, 0);
    assert!(harmless + named >= 20_000);
}

#[test]
fn damage_that_counts_as_torn_is_silent() {
    let (disk, entries) = filled();
    let guards = Guards::without(Mutant::TakeDamageForTorn);
    assert!(flip_all(&disk, &entries, guards)[Flipped::Silent as usize] > 0);
}

#[test]
fn damage_names_its_file_its_place_and_its_kind() {
    let (disk, _) = filled();
    let check = |disk: SimulatedDisk| {
        FoundJournal::check(Arc::new(disk), settings(Guards::ALL), |_, _, _| {}).expect_err("damage").to_string()
    };
    let flipped = |bit| {
        let copy = disk.copy(1);
        copy.flip("journal-0000000001", bit);
        check(copy)
    };
    assert_eq!(flipped(8 * 200), "journal-0000000001 is damaged at byte 0: its header is not whole");
    assert_eq!(flipped(8 * (4096 + 100)), "journal-0000000001 is damaged at byte 4096: group 0 is not whole");
    let removed = disk.copy(1);
    removed.remove("journal-0000000002").unwrap();
    assert_eq!(check(removed), "journal-0000000002 is damaged at byte 0: the file is missing");
    let settings = JournalSettings { store: STORE + 1, ..settings(Guards::ALL) };
    let foreign = FoundJournal::check(Arc::new(disk.copy(1)), settings, |_, _, _| {}).expect_err("a foreign store");
    assert!(foreign.to_string().ends_with("is damaged at byte 0: it belongs to another store"), "{foreign}");
}

/// Opens a journal whose only group is torn. The group's value contains a whole group of a segment with this salt, at a
/// position where groups begin, which states that the torn one was synced.
fn torn_around_a_forged_group(salt: u128) -> Result<usize, JournalError> {
    let disk = harsh(1);
    let (mut journal, _) = opened(&disk, 1, Guards::ALL).unwrap();
    let mut forged = Vec::new();
    group::begin(&mut forged);
    group::finish(&mut forged, (salt, 2 * 4096), GroupNumber(1), GroupNumber(1), Guards::ALL);
    let mut value = vec![0; 3 * 4096];
    let place = 4096 - (24 + 9 + 3);
    value[place..place + forged.len()].copy_from_slice(&forged);
    let entry = JournalEntry::Taken { chain: CHAIN, version: Version::new(1, 1), value: value.into() };
    journal.append(&[entry]).unwrap();
    disk.flip("journal-0000000001", 8 * (4096 + 30));
    opened(&disk, 2, Guards::ALL).map(|(_, entries)| entries.len())
}

#[test]
fn a_value_that_looks_like_a_group_is_none() {
    assert_eq!(torn_around_a_forged_group(0), Ok(0));
    let known = torn_around_a_forged_group(1 << 64);
    assert!(matches!(known, Err(JournalError::Damaged { .. })), "with the salt it would be one: {known:?}");
}
