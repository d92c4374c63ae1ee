//! Operations about the node and its cluster, rather than about data.

use super::Server;
use crate::{
    driver::BoxFuture,
    local::answering::Answering,
    message::request::{AdminOperation, ResponseAnswer},
};

impl Server {
    /// Answers an operation that is neither a read nor a write. Every operation except a query of the routing gets a
    /// task of its own.
    pub(super) fn tell(&self, operation: AdminOperation, answering: Answering) {
        match operation {
            AdminOperation::Routing | AdminOperation::RoutingAnyway => {
                // A node that yields shows no routing: a client that looks for the cluster must find the successor.
                let is_shown = !self.local.yields() || operation == AdminOperation::RoutingAnyway;
                let routing = self.local.routing().borrow().as_deref().filter(|_| is_shown).cloned();
                let routing = routing.map(Box::new);
                answering.respond(ResponseAnswer::Routing(routing));
            }
            AdminOperation::Status => answer(self.node.status(), ResponseAnswer::Status, answering),
            AdminOperation::Arrange(command) => {
                answer(self.node.arrange(command), ResponseAnswer::Arranged, answering);
            }
            AdminOperation::Survey => {
                let surveyed = |standing: Option<_>| ResponseAnswer::Survey(standing.map(Box::new));
                answer(self.node.standing(), surveyed, answering);
            }
            AdminOperation::Recover { cluster, history } => {
                let recovered = |outcome: Result<_, _>| ResponseAnswer::Recovered(outcome.map(Box::new));
                answer(self.node.recover(cluster, history), recovered, answering);
            }
            AdminOperation::Reopen { chain } => answer(self.node.reopen(chain), ResponseAnswer::Reopened, answering),
            AdminOperation::Replace { cluster, by } => {
                answer(self.node.replace(cluster, by), ResponseAnswer::Replaced, answering);
            }
        }
    }
}

/// Answers in a task of its own: the operation may take seconds.
fn answer<T: 'static>(
    outcome: BoxFuture<T>,
    as_answer: impl FnOnce(T) -> ResponseAnswer + Send + 'static,
    answering: Answering,
) {
    tokio::spawn(async move { answering.respond(as_answer(outcome.await)) });
}
