//! Turns that take longer than the time slice of a chain.

use super::*;

impl Rig {
    /// Runs a turn with a clock that advances by one millisecond per reading. Returns whether nothing is left.
    fn take_slowly(&mut self, now: u64) -> bool {
        let time = Cell::new(now);
        let is_whole = self.runner.take(|| at(time.replace(time.get() + 1)), &mut self.turn, |_| None);
        while let Some(output) = self.runner.poll_output() {
            if let RunnerOutput::Reply(caller, reply) = output {
                self.replies.push((caller, reply));
            }
        }
        is_whole
    }

    fn answered(&self) -> Vec<u64> {
        self.replies.iter().map(|(caller, _)| *caller).collect()
    }
}

fn with_reads(mut rig: Rig, count: u64, lease: u64) -> Rig {
    rig.lease(lease, 0);
    (0..count).for_each(|caller| rig.ask(caller, None));
    rig
}

#[test]
fn what_is_left_of_a_turn_keeps_its_order() {
    let mut rig = with_reads(Rig::new(), 5, 1_000);
    assert!(!rig.take_slowly(10));
    assert_eq!(rig.answered(), [0, 1], "the turn ends after two milliseconds");
    // Inputs received in the meantime are processed last.
    rig.ask(5, None);
    assert!(!rig.take_slowly(20));
    assert!(rig.take_slowly(30));
    assert_eq!(rig.answered(), [0, 1, 2, 3, 4, 5]);
    assert!(!rig.turn.has_inputs());
}

#[test]
fn each_part_of_a_turn_has_a_reading_and_a_lease_of_its_own() {
    let mut rig = with_reads(Rig::new(), 6, 100);
    assert!(!rig.take_slowly(90));
    assert!(!rig.take_slowly(130));
    rig.lease(1_000, 0);
    assert!(rig.take_slowly(160));
    let paths = [0, 1, 4, 5].map(|caller| rig.way(caller));
    assert_eq!(paths, [Some(ReadPath::Local); 4]);
    let late = [2, 3].map(|caller| rig.way(caller));
    assert_ne!(late, [Some(ReadPath::Local); 2], "the lease has expired");
}

#[test]
fn short_turns_share_the_time_until_other_tasks_run() {
    let mut rig = Rig::new();
    assert!(rig.take_slowly(10));
    assert!(!rig.runner.is_over(at(11)));
    assert!(rig.take_slowly(11));
    assert!(rig.runner.is_over(at(12)), "the second turn starts no new slice");
    assert!(rig.take_slowly(12));
    assert!(!rig.runner.is_over(at(13)));
}

#[test]
fn writes_that_were_not_received_wait() {
    let mut rig = Rig::new();
    let (time, received) = (Cell::new(10), Cell::new(0));
    let more = |_| {
        received.set(received.get() + 1);
        let write = Write::put("k".into(), "v".into());
        Some(WriteRequest { request: None, history: None, write, deadline: at(1 << 40), caller: 1 })
    };
    assert!(rig.runner.take(|| at(time.replace(time.get() + 1)), &mut rig.turn, more));
    assert_eq!(received.get(), 2);
}

#[test]
fn a_turn_without_a_pause_takes_all_in() {
    let mut rig = with_reads(Rig::new(), 5, 1_000);
    rig.runner.guards = Guards::without(crate::guards::Mutant::NeverPause);
    assert!(rig.take_slowly(10));
    assert_eq!(rig.answered(), [0, 1, 2, 3, 4]);
}
