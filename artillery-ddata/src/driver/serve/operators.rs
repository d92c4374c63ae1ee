//! Operations about the node and its cluster, rather than about data.

use super::Server;
use crate::{
    control::{message::ArrangeError, recovery::NotRecovered, reopening::NotReopened, succession::NotFounded},
    local::answering::Answering,
    message::request::{AdminOperation, ResponseAnswer},
};

impl Server {
    /// Answers an operation that is neither a read nor a write. One that takes time gets a task of its own.
    pub(super) fn tell(&self, operation: AdminOperation, answering: Answering) {
        match operation {
            AdminOperation::Routing | AdminOperation::RoutingAnyway => {
                // A yielding node hides its routing: a node that looks for a cluster must find the successor.
                let is_shown = !self.local.yields() || operation == AdminOperation::RoutingAnyway;
                let routing = self.local.routing().borrow().as_deref().filter(|_| is_shown).cloned();
                let routing = routing.map(Box::new);
                answering.respond(ResponseAnswer::Routing(routing));
            }
            AdminOperation::Status => {
                let json = (self.status)();
                tokio::spawn(async move { answering.respond(ResponseAnswer::Status(json.await)) });
            }
            AdminOperation::Arrange(wish) => {
                let done = self.arrange.as_ref().map(|arrange| arrange(wish));
                tokio::spawn(async move {
                    let result = match done {
                        Some(done) => done.await,
                        None => Err(ArrangeError::Fixed),
                    };
                    answering.respond(ResponseAnswer::Arranged(result));
                });
            }
            AdminOperation::Survey => {
                let standing = self.recovery.as_ref().map(|recovery| recovery.standing());
                tokio::spawn(async move {
                    let standing = match standing {
                        Some(standing) => standing.await,
                        None => None,
                    };
                    answering.respond(ResponseAnswer::Survey(standing.map(Box::new)));
                });
            }
            AdminOperation::Recover { cluster, history } => {
                let recovered = self.recovery.as_ref().map(|recovery| recovery.recover(cluster, history));
                tokio::spawn(async move {
                    let recovered = match recovered {
                        Some(recovered) => recovered.await,
                        None => Err(NotRecovered::Static),
                    };
                    answering.respond(ResponseAnswer::Recovered(recovered.map(Box::new)));
                });
            }
            AdminOperation::Reopen { chain } => {
                let reopened = self.recovery.as_ref().map(|recovery| recovery.reopen(chain));
                tokio::spawn(async move {
                    let reopened = match reopened {
                        Some(reopened) => reopened.await,
                        None => Err(NotReopened::Fixed),
                    };
                    answering.respond(ResponseAnswer::Reopened(reopened));
                });
            }
            AdminOperation::Found { cluster, founds } => {
                let founds = self.recovery.as_ref().map(|recovery| recovery.found(cluster, founds));
                tokio::spawn(async move {
                    let founds = match founds {
                        Some(founds) => founds.await,
                        None => Err(NotFounded::Static),
                    };
                    answering.respond(ResponseAnswer::Founds(founds));
                });
            }
        }
    }
}
