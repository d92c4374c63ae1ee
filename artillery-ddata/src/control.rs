//! Which chain, in which order, under which epoch: decisions, not suggestions. What decides stands in `artillery-proto`;
//! here is the log on which the nodes agree.

pub(crate) mod embedded;

pub use artillery_proto::control::{
    ChainSettings, ConfigLog, Configs, Founder, Founding, History, InvalidChainSettings, InvalidTiming, MAX_CHAINS,
    MAX_LINEAGE, Met, ParseHistoryError, Relation, Static, Term, Timing, chain_of, conformance, first_configs,
    formation, log, message, placement, recovery, succession,
};
