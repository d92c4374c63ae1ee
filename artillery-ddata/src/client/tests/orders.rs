//! Operators' orders: whether an order that isn't answered may have been carried out.

use super::*;
use crate::{
    ClusterId, MemberId,
    admin::{AdminCommand, AdminError, ArrangeError, NodeInfo, NotReopened, Replacement, Unanswered},
    message::request::AdminOperation,
};

const TIMEOUT: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(300);

fn info(node: &FakeNode) -> NodeInfo {
    NodeInfo { id: node.me(), name: node.local.name.clone(), addrs: vec![node.addr()], host: None }
}

/// Skips queries of the routing. Returns the stream of the first other request, still unanswered, with its operation
/// and its number.
async fn ordered(streams: &mut mpsc::Receiver<IncomingStream>) -> (IncomingStream, AdminOperation, u64) {
    loop {
        let mut stream = streams.recv().await.unwrap();
        let request = decode_request(&stream.reader.next().await.unwrap().unwrap()).unwrap();
        match request.operation {
            Operation::Admin(AdminOperation::Routing | AdminOperation::RoutingAnyway) => {}
            Operation::Admin(operation) => return (stream, operation, request.number),
            other => panic!("{other:?}"),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Order {
    Arrange,
    Reopen,
    Recover,
    CreateAnew,
}

const ORDERS: [Order; 4] = [Order::Arrange, Order::Reopen, Order::Recover, Order::CreateAnew];

impl Order {
    async fn give(self, client: &Client, to: &NodeInfo, timeout: Duration) -> AdminError<()> {
        let node = to.id.node;
        match self {
            Self::Arrange => without_reason(client.arrange(node, AdminCommand::Leave, timeout).await),
            Self::Reopen => without_reason(client.reopen(node, crate::ChainId(0), timeout).await),
            Self::Recover => {
                let history = History::first(ClusterId(1));
                without_reason(client.recover(to, ClusterId(1), history, timeout).await)
            }
            Self::CreateAnew => {
                without_reason(client.create_anew(to, ClusterId(1), Replacement::Create, timeout).await)
            }
        }
    }
}

fn without_reason<T: std::fmt::Debug, R>(outcome: Result<T, AdminError<R>>) -> AdminError<()> {
    match outcome.expect_err("the order has no answer") {
        AdminError::Rejected(_) => AdminError::Rejected(()),
        AdminError::Undecided(_) => AdminError::Undecided(()),
        AdminError::NotSent(error) => AdminError::NotSent(error),
        AdminError::OutcomeUnknown { node, reason } => AdminError::OutcomeUnknown { node, reason },
    }
}

#[tokio::test]
async fn the_outcome_of_an_unanswered_order_is_unknown() {
    for order in ORDERS {
        let (client, silent, _seed, mut streams) = client_of_silence().await;
        let to = info(&silent);
        let (error, received) = tokio::join!(order.give(&client, &to, SHORT), ordered(&mut streams));
        let AdminError::OutcomeUnknown { node, reason: Unanswered::TimedOut } = error else { panic!("{error:?}") };
        assert_eq!(node, silent.me().node, "{:?}", received.1);
    }
}

#[tokio::test]
async fn the_outcome_of_an_order_whose_connection_is_lost_is_unknown() {
    for order in ORDERS {
        let (client, silent, _seed, mut streams) = client_of_silence().await;
        let to = info(&silent);
        let lost = async {
            let received = ordered(&mut streams).await;
            silent.endpoint.shutdown().await;
            received
        };
        let (error, received) = tokio::join!(order.give(&client, &to, TIMEOUT), lost);
        let AdminError::OutcomeUnknown { reason: Unanswered::Lost(reason), .. } = error else { panic!("{error:?}") };
        assert_eq!(*reason, CloseReason::Shutdown, "{:?}", received.1);
    }
}

#[tokio::test]
async fn an_answer_that_does_not_fit_leaves_the_outcome_unknown() {
    for order in ORDERS {
        let (client, silent, _seed, mut streams) = client_of_silence().await;
        let to = info(&silent);
        let answering = async {
            let (stream, operation, number) = ordered(&mut streams).await;
            // A node refuses to send an answer that is too large, although it has acted.
            let answer = ResponseAnswer::Reply(Reply::Refused(Refusal::ResultsTooLarge { len: 2, limit: 1 }));
            let response = encode_response(&Response { number, by: None, answer }).unwrap();
            let mut writer = stream.writer.unwrap();
            writer.send(&response.header, &response.body).await.unwrap();
            (operation, stream.reader, writer)
        };
        let (error, answered) = tokio::join!(order.give(&client, &to, TIMEOUT), answering);
        assert!(
            matches!(error, AdminError::OutcomeUnknown { reason: Unanswered::Unusable, .. }),
            "{:?}: {error:?}",
            answered.0
        );
    }
}

#[tokio::test]
async fn an_order_to_a_node_that_is_not_reached_is_not_sent() {
    let (client, silent, seed, _streams) = client_of_silence().await;
    let to = info(&silent);
    silent.endpoint.shutdown().await;
    let stranger = NodeInfo { id: member("stranger"), ..to.clone() };
    for order in ORDERS {
        let error = order.give(&client, &to, SHORT).await;
        let AdminError::NotSent(Error::NotApplied { reason }) = &error else { panic!("{order:?}: {error:?}") };
        assert!(matches!(reason, NotApplied::Unreachable { .. } | NotApplied::TimedOut), "{order:?}: {reason:?}");
        let error = order.give(&client, &stranger, SHORT).await;
        assert!(matches!(error, AdminError::NotSent(_)), "{order:?}: {error:?}");
    }
    // Another incarnation answers at the address.
    let before = MemberId { incarnation: crate::Incarnation { store: 6, starts: 1 }, ..seed.me() };
    let error = Order::Recover.give(&client, &NodeInfo { id: before, ..info(&seed) }, SHORT).await;
    assert!(matches!(error, AdminError::NotSent(_)), "{error:?}");
    client.close().await;
    let error = Order::Arrange.give(&client, &to, SHORT).await;
    assert_eq!(error, AdminError::NotSent(Error::not_applied(NotApplied::Stopped)));
}

#[tokio::test]
async fn a_refused_order_names_the_reason_of_the_node() {
    let (node, client) = client_of_one().await;
    let refused = client.arrange(node.me().node, AdminCommand::Leave, TIMEOUT).await;
    assert_eq!(refused, Err(AdminError::Rejected(ArrangeError::Fixed)));
    let refused = client.reopen(node.me().node, crate::ChainId(0), TIMEOUT).await.unwrap_err();
    assert_eq!(refused.rejection(), Some(&NotReopened::Fixed));
}
