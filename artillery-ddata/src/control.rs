//! Which chain, in which order, under which epoch: decisions, not suggestions. What decides stands in `artillery-proto`;
//! here is the log on which the nodes agree.

pub(crate) mod embedded;

pub(crate) use artillery_proto::control::{
    Bootstrap, ConfigLog, Configs, History, Met, NodeInfo, Timing, chain_of, formation, log, message, recovery,
    succession,
};
