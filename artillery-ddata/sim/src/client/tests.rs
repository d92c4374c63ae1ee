//! How clients interpret answers.

use artillery_proto::{
    Incarnation, NodeId, Sequence,
    api::{Computed, ReadPath, ReadReply, WriteReply},
    store::Held,
};

use super::{keys::encode, *};
use crate::{
    history::{Call, Value},
    oracle::Oracle,
};

const KEYS: Keys = Keys { registers: 2, lists: 1, counters: 1, chains: 1 };

fn ids() -> Vec<MemberId> {
    (0..3)
        .map(|n| MemberId { node: NodeId::from_bytes([n; 16]), incarnation: Incarnation { store: 1, starts: 1 } })
        .collect()
}

fn write(call: Call) -> Ask {
    Ask::Write { parts: vec![Part { key: 1, call: PartCall::Register(call) }], batch: 0 }
}

fn client(ask: Ask, id: Option<(Version, u64)>) -> Client {
    let mut client = Client::new(1, 0, &KEYS, 3, 0);
    let request = request(&ask, 0);
    let asked = Asked { ask, chain: 0, request, id, floor: None, tells_floor: false, history: None };
    client.pending = Some(Pending {
        number: 1,
        tries: RetryState::new(asked.repeat()),
        asked: Arc::new(asked),
        called: 1,
        since: 1,
        until: 100,
        attempts: 1,
        retries: 0,
        first: 2,
        node: 2,
        pinned: false,
        waits: true,
        settles: false,
    });
    client
}

fn reply(client: &mut Client, reply: Reply) -> Next {
    client.reply(reply, &KEYS, &ids()).unwrap().unwrap()
}

#[test]
fn an_unanswered_write_is_unknown_a_refused_one_is_not() {
    let put = || client(write(Call::Put(Value(1))), None);
    assert_eq!(put().give_up(), Some(Next::Over(Ending::Unknown(None))));
    assert_eq!(reply(&mut put(), Reply::Expired), Next::Over(Ending::Unknown(None)));
    let (mut refused, not_head) = (put(), Refusal::NotHead(Some(ids()[1])));
    assert_eq!(reply(&mut refused, Reply::Refused(not_head)), Next::Again(1, 0));
    assert_eq!(refused.give_up(), Some(Next::Over(Ending::NotApplied(Some(not_head)))));
    assert_eq!(client(Ask::Read(1, ReadMode::Strong), None).give_up(), Some(Next::Over(Ending::NotApplied(None))));
}

#[test]
fn numbered_write_is_repeated() {
    let mut numbered = client(write(Call::Put(Value(1))), Some((Version::new(1, 1), 1)));
    assert!(matches!(numbered.unanswered(3, 0), Some(Next::Again(..))));
    assert!(matches!(reply(&mut numbered, Reply::Refused(Refusal::Busy)), Next::Again(..)));
    assert_eq!(numbered.give_up(), Some(Next::Over(Ending::Unknown(Some(Refusal::Busy)))));
    assert!(matches!(numbered.unanswered(3, 1000), Some(Next::Again(..))));
    assert_eq!(numbered.pending.as_ref().unwrap().request(), Request::Write(Write::Resolve));
    let barred = Next::Over(Ending::NotApplied(Some(Refusal::Barred)));
    assert_eq!(reply(&mut numbered, Reply::Refused(Refusal::Barred)), barred);
}

#[test]
fn batch_reports_each_part() {
    let part = |key, call| Part { key, call: PartCall::Register(call) };
    let swap = Call::CompareAndSwap { expected: Version::NONE, value: Value(5) };
    let count = Part { key: 3, call: PartCall::Series(crate::history::SeriesCall::Increment) };
    let batch = Ask::Write { parts: vec![part(0, Call::Put(Value(5))), part(1, swap), count], batch: 5 };
    let (at, was) = (Version::new(1, 9), Version::new(1, 4));
    let conflict = Reply::Conflict { at, step: 0, version: was, value: None, replayed: true };
    let Next::Done(told, _) = reply(&mut client(batch.clone(), None), conflict) else { panic!("it must be done") };
    let answers: Vec<Answer> = told.operations.iter().map(|(.., answer)| *answer).collect();
    assert_eq!(answers, [Answer::Refused, Answer::Failed(was)]);
    assert_eq!(told.series[0].2, SeriesAnswer::Refused);
    let committed = WriteReply { version: at, copies: 3, replayed: false, result: Computed::Nothing };
    let Next::Done(told, _) = reply(&mut client(batch, None), Reply::Committed(committed)) else {
        panic!("it must be done")
    };
    assert!(told.operations.iter().all(|(.., answer)| *answer == Answer::Written(at)));
    assert_eq!(told.series[0].2, SeriesAnswer::Counted { version: at, count: None });
}

#[test]
fn senseless_reply_is_a_failure() {
    let held = Held::new(Version::new(1, 1), Some(encode(0, Value(1), 0)));
    let read = ReadReply { held: Some(held), clean: true, way: ReadPath::Local, as_of: Sequence(1), chain_time: 0 };
    let mut reader = client(Ask::Read(1, ReadMode::Strong), None);
    let failure = reader.reply(Reply::Read(read.clone()), &KEYS, &ids()).unwrap_err();
    assert_eq!(failure.oracle, Oracle::Claims, "the value belongs to another key");
    let mut writer = client(write(Call::Delete), None);
    let failure = writer.reply(Reply::Read(read), &KEYS, &ids()).unwrap_err();
    assert_eq!(failure.oracle, Oracle::Answers, "a read reply does not answer a write");
}
