//! What an operator asks of a cluster: commands to one node, and the recovery after nodes are lost for good.

pub use artillery_proto::control::{
    History, NodeInfo,
    message::{AdminCommand, ArrangeError, ReorderError},
    recovery::{KeptChain, NotRecovered, Plan, Recovered, Standing, plan as plan_recovery},
    reopening::{NotReopened, Reopened},
    succession::{NotFounded, found as plan_succession},
};

pub use crate::client::recovery::Survey;
