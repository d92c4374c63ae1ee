//! What operators ask of a cluster: orders to a node, and what to do when nodes are lost for good.

pub use artillery_proto::control::{
    Founder, History, ParseHistoryError,
    message::{Arrange, ArrangeError, ReorderError},
    recovery::{Kept, NotRecovered, Plan, Recovered, Standing, plan as plan_recovery},
    succession::{NotFounded, found as plan_succession},
};

pub use crate::client::recovery::Survey;
