//! The control plane: which members form a chain, in which order and epoch. `artillery-proto` makes the decisions; this
//! module holds the log on which the nodes agree.

pub(crate) mod embedded;

pub(crate) use artillery_proto::control::{
    Bootstrap, ConfigLog, Configs, History, Met, NodeInfo, StorePosition, StoreRolledBack, Timing, branch, chain_of,
    chain_of_prefix, formation, log, message, recovery, reopening, succession,
};
