use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use tokio::sync::Semaphore;

use super::*;
use crate::{
    api::{Refusal, Reply},
    message::request::{AdminOperation, ResponseAnswer},
};

/// A lane with two slots.
struct Desk {
    calls: Arc<LaneTable>,
    places: Arc<Semaphore>,
    numbers: AtomicU64,
}

impl Desk {
    fn new() -> Self {
        Self { calls: Arc::default(), places: Arc::new(Semaphore::new(2)), numbers: AtomicU64::new(0) }
    }

    fn begin(&self, after: Duration) -> LaneCall {
        let place = self.places.clone().try_acquire_owned().expect("no slot is free");
        let question = Question { forwarded: false, ..Question::admin(AdminOperation::Status) };
        let until = Instant::now() + after;
        self.calls.begin(question, until, until, (place, Share::none())).expect("the lane is closed")
    }

    fn send(&self) -> Vec<u64> {
        let mut questions = Vec::new();
        self.calls.send(1 << 20, &self.numbers, &mut questions);
        questions.into_iter().map(|(number, ..)| number).collect()
    }

    fn answer(&self, number: u64) {
        let answer = ResponseAnswer::Reply(Reply::Refused(Refusal::Busy));
        self.calls.answer(&mut vec![Response { number, by: None, answer }]);
    }
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn an_answer_finds_its_call() {
    let desk = Desk::new();
    let (mut first, mut second) = (desk.begin(LONG), desk.begin(LONG));
    assert_eq!(desk.send(), [1, 2]);
    desk.answer(2);
    desk.answer(3);
    assert!(matches!(second.in_time().await, Some(CallOutcome::Answered(Response { number: 2, .. }))));
    desk.answer(1);
    assert!(matches!(first.in_time().await, Some(CallOutcome::Answered(Response { number: 1, .. }))));
    assert_eq!(desk.places.available_permits(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_sent_call_keeps_its_slot_until_answered_or_lost() {
    let desk = Desk::new();
    let (first, second) = (desk.begin(LONG), desk.begin(LONG));
    assert_eq!(desk.send(), [1, 2]);
    assert!(matches!(first.give_up(Unknown::TimedOut), CallOutcome::Unanswered(Unknown::TimedOut)));
    drop(second);
    assert_eq!(desk.places.available_permits(), 0);
    desk.answer(1);
    assert_eq!(desk.places.available_permits(), 1);
    desk.calls.lose(&Unknown::NoAnswer);
    assert_eq!(desk.places.available_permits(), 2);
    assert!(desk.calls.with(|state| state.calls.is_empty() && state.by_number.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn a_call_given_up_in_the_queue_is_never_sent() {
    let desk = Desk::new();
    let (first, second) = (desk.begin(LONG), desk.begin(LONG));
    assert!(matches!(first.give_up(Unknown::TimedOut), CallOutcome::NotSent(NotSent::TimedOut)));
    drop(second);
    assert_eq!(desk.places.available_permits(), 2);
    assert!(desk.send().is_empty());
}

#[tokio::test(start_paused = true)]
async fn each_call_expires_at_its_own_time() {
    let desk = Desk::new();
    let (mut late, mut later) = (desk.begin(Duration::from_millis(70)), desk.begin(Duration::from_millis(30)));
    let began = Instant::now();
    let keeping = desk.calls.keep_time();
    let asking = async {
        assert!(later.in_time().await.is_none());
        assert_eq!(began.elapsed().as_millis(), 30);
        later.extend(began + Duration::from_millis(100));
        assert!(late.in_time().await.is_none());
        assert_eq!(began.elapsed().as_millis(), 70);
        assert!(later.in_time().await.is_none());
        assert_eq!(began.elapsed().as_millis(), 100);
        // A new call expires too, though the timer was idle before.
        drop((late, later));
        assert!(desk.begin(Duration::from_millis(5)).in_time().await.is_none());
        assert_eq!(began.elapsed().as_millis(), 105);
    };
    tokio::select! {
        () = keeping => unreachable!(),
        () = asking => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_ends_sent_calls_and_a_stop_ends_all() {
    let desk = Desk::new();
    let mut sent = desk.begin(LONG);
    assert_eq!(desk.send(), [1]);
    let mut queued = desk.begin(LONG);
    desk.calls.lose(&Unknown::NoAnswer);
    assert!(matches!(sent.in_time().await, Some(CallOutcome::Unanswered(Unknown::NoAnswer))));
    desk.calls.stop();
    assert!(matches!(queued.in_time().await, Some(CallOutcome::NotSent(NotSent::Stopped))));
    assert!(!desk.calls.wait().await);
}

#[tokio::test(start_paused = true)]
async fn an_answer_on_its_own_stream_reaches_its_caller() {
    let desk = Desk::new();
    let (mut wanted, unwanted) = (desk.begin(LONG), desk.begin(LONG));
    assert_eq!(desk.send(), [1, 2]);
    let way = desk.calls.take(1).unwrap().0;
    let answer = async {
        tokio::task::yield_now().await;
        drop(way.send(CallOutcome::NotSent(NotSent::Lost)));
    };
    let (outcome, ()) = tokio::join!(wanted.in_time(), answer);
    assert!(matches!(outcome, Some(CallOutcome::NotSent(NotSent::Lost))));
    let way = desk.calls.take(2).unwrap().0;
    drop(unwanted);
    assert!(way.is_closed(), "its caller has gone");
    assert!(desk.calls.take(1).is_none() && desk.calls.with(|state| state.calls.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn an_ended_call_frees_its_room_before_its_caller_polls() {
    let desk = Desk::new();
    let (mut first, _second) = (desk.begin(LONG), desk.begin(LONG));
    let mut waiting = std::pin::pin!(first.in_time());
    assert!(poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_pending())).await);
    assert_eq!(desk.send(), [1, 2]);
    desk.answer(1);
    assert_eq!(desk.places.available_permits(), 1);
    desk.calls.lose(&Unknown::NoAnswer);
    assert_eq!(desk.places.available_permits(), 2);
}

#[tokio::test(start_paused = true)]
async fn given_up_calls_leave_the_queue_together() {
    let desk = Desk { places: Arc::new(Semaphore::new(1000)), ..Desk::new() };
    let mut all: Vec<_> = (0..1000).map(|_| desk.begin(LONG)).collect();
    let kept: Vec<_> = all.drain(..).enumerate().filter_map(|(at, call)| (at % 10 == 3).then_some(call)).collect();
    assert_eq!(desk.places.available_permits(), 900);
    let (calls, queued) = desk.calls.with(|state| (state.calls.len(), state.queue.len()));
    assert!(calls == queued && queued < 2 * kept.len() + 2, "{calls} calls, {queued} in the queue");
    assert_eq!(desk.send().len(), kept.len());
    assert!(desk.calls.with(|state| state.queue.is_empty() && state.given_up == 0));
    drop(kept);
    desk.calls.lose(&Unknown::NoAnswer);
    assert!(desk.calls.with(|state| state.calls.is_empty()));
}
