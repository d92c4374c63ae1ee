use std::time::Duration;

use super::MAX_FOUNDERS;
use crate::{
    ClusterId,
    control::{ChainSettings, InvalidChainSettings, InvalidTiming, MAX_LINEAGE, Timing},
    guards::Guards,
};

/// Settings of a formation. All founders must have the same name and chain settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormationSettings {
    pub name: String,
    /// The minimum number of founders of a cluster that this node forms with others, from 1 to [`MAX_FOUNDERS`]. A
    /// proposal names up to 16 of the free nodes that the proposer sees, or more if more are expected. If founders
    /// expect different numbers, the largest is required.
    pub expect: u16,
    pub chains: ChainSettings,
    /// The times of the cluster if this node proposes it. They are not compared with those of the other founders.
    pub timing: Timing,
    /// The node's role after its former cluster was replaced; `None`: it had none.
    pub after: Option<After>,
    /// The cluster exists: this node joins it, and doesn't take part in creating one. An operator's order
    /// ([`After::founds`]) overrides this setting.
    pub existing: bool,
    /// How long a node searches for others before it proposes; doubled before it forms a cluster alone. Zero: no
    /// search.
    pub search: Duration,
    /// How long it searches while a seed hasn't answered.
    pub search_seeds: Duration,
    /// How long a node that has seen another one waits for more before it proposes.
    pub settle: Duration,
    /// The additional wait for each node with a lower id.
    pub stagger: Duration,
    pub repeat: Duration,
    /// How long changes are collected before they are sent.
    pub gather: Duration,
    /// The time after which the first ballot is held on an accepted proposal: a random time from this to twice this.
    pub patience: Duration,
    pub guards: Guards,
}

impl FormationSettings {
    pub fn new(name: impl Into<String>, expect: u16, chains: ChainSettings) -> Self {
        Self {
            name: name.into(),
            expect,
            chains,
            timing: Timing::default(),
            after: None,
            existing: false,
            search: Duration::from_secs(1),
            search_seeds: Duration::from_secs(10),
            settle: Duration::from_millis(200),
            stagger: Duration::from_millis(100),
            repeat: Duration::from_millis(200),
            gather: Duration::from_millis(5),
            patience: Duration::from_millis(1000),
            guards: Guards::default(),
        }
    }

    /// Checks each setting against its limits.
    ///
    /// # Errors
    /// The first setting that is out of range.
    pub fn validate(&self) -> Result<(), InvalidFormation> {
        if self.expect == 0 || self.expect > MAX_FOUNDERS {
            return Err(InvalidFormation::Expect(self.expect));
        }
        if self.repeat.is_zero() || self.patience.is_zero() || self.stagger.is_zero() {
            return Err(InvalidFormation::ZeroTime);
        }
        if let Some(after) = self.after.as_ref().filter(|after| after.lineage.len() > MAX_LINEAGE) {
            return Err(InvalidFormation::Lineage(after.lineage.len()));
        }
        self.chains.validate()?;
        Ok(self.timing.validate()?)
    }
}

/// A node's role after an operator replaced its cluster (`ctl create-anew`). It never joins a replaced cluster, even if
/// a node that is still in one invites it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct After {
    /// The replaced clusters, oldest first.
    pub lineage: Vec<ClusterId>,
    /// True: the node creates the next cluster by itself. False: it joins that one, and creates none.
    pub founds: bool,
}

/// A setting of a formation is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidFormation {
    /// [`FormationSettings::expect`] is out of range.
    #[error("{0} founders were expected: from 1 to {MAX_FOUNDERS} are possible")]
    Expect(u16),
    /// [`FormationSettings::repeat`], [`FormationSettings::patience`] or [`FormationSettings::stagger`] is zero.
    #[error("repeat, patience and stagger must not be zero")]
    ZeroTime,
    /// The cluster would succeed more than [`MAX_LINEAGE`] clusters.
    #[error("{0} clusters that it succeeds: up to {MAX_LINEAGE} are possible")]
    Lineage(usize),
    #[error(transparent)]
    Chains(#[from] InvalidChainSettings),
    /// A time of the cluster is out of range.
    #[error("{field}: {0}", field = .0.field())]
    Timing(#[from] InvalidTiming),
}
