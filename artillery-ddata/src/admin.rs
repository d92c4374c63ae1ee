//! Operator commands to a node, recovery after nodes are lost permanently, and verification of a data directory.

pub use artillery_proto::{
    control::{
        History, NodeInfo, Term,
        branch::{Branch, ChainBranch},
        log::LogIndex,
        message::{AdminCommand, ArrangeError, NotGivenUp, ReorderError, StoreHolding},
        recovery::{ChainStanding, KeptChain, LogEnd, NotRecovered, Plan, Recovered, Standing, plan as plan_recovery},
        reopening::{NotReopened, Reopened},
        succession::{NotReplaced, Replacement, plan as plan_succession},
    },
    data_dir::{ChainReport, CopyState, DamagePlace, StoreReport},
    journal::{GroupNumber, TornEnd},
};

pub use crate::{
    client::{order::AdminError, recovery::Survey},
    node::durable::check_directory,
    rpc::Unanswered,
};
