//! Settings of a formation.

use std::time::Duration;

use super::MAX_FOUNDERS;
use crate::{
    ClusterId,
    control::{ChainSettings, InvalidChainSettings, InvalidTiming, MAX_LINEAGE, Timing},
    guards::Guards,
};

/// Settings of a formation. All founders must have been started with the same name and chain settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormationSettings {
    /// The cluster's name.
    pub name: String,
    /// The fewest founders of a cluster that this node forms with others, from 1 to [`MAX_FOUNDERS`]. All free nodes that it sees
    /// become founders. If they expect different numbers, the largest counts.
    pub expect: u16,
    /// The chain settings that the cluster fixes for good.
    pub chains: ChainSettings,
    /// The cluster's times if this node proposes it. They are not compared with those of the other founders.
    pub timing: Timing,
    /// What this node does after its cluster was given up; `None`: it has belonged to none.
    pub after: Option<After>,
    /// The cluster exists: this node joins it, and doesn't take part in creating one. An operator's order ([`After::founds`]) has
    /// priority over this setting.
    pub existing: bool,
    /// How long a node looks for others before it proposes; twice as long before it forms a cluster alone. Zero: it looks for none.
    pub search: Duration,
    /// How long it does so while a seed hasn't answered.
    pub search_seeds: Duration,
    /// How long a node that has seen another one waits for more before it proposes.
    pub settle: Duration,
    /// How much longer a node waits for each node before it in the order of ids.
    pub stagger: Duration,
    /// How often messages are repeated.
    pub repeat: Duration,
    /// How long changes are gathered before they are sent.
    pub gather: Duration,
    /// How long an accepted proposal may take before a ballot is held on it: a random time between this and twice this.
    pub patience: Duration,
    /// The guards that stand.
    pub guards: Guards,
}

impl FormationSettings {
    /// Settings for a cluster called `name` of `expect` founders.
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
    /// The first setting that is out of them.
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

/// What a node does after an operator gave its cluster up (`ctl found`). It joins no cluster that was given up, even if a node
/// that is still in one tells it to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct After {
    /// The clusters that were given up, oldest first.
    pub lineage: Vec<ClusterId>,
    /// True: the node founds the next cluster, by itself. False: it joins that one, and founds none.
    pub founds: bool,
}

/// A setting of a formation makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidFormation {
    /// [`FormationSettings::expect`].
    #[error("{0} founders were expected: from 1 to {MAX_FOUNDERS} are possible")]
    Expect(u16),
    /// A time that must not be zero: [`FormationSettings::repeat`], [`FormationSettings::patience`], [`FormationSettings::stagger`].
    #[error("repeat, patience and stagger must not be zero")]
    ZeroTime,
    /// The cluster would succeed more than [`MAX_LINEAGE`] clusters.
    #[error("{0} clusters that it succeeds: up to {MAX_LINEAGE} are possible")]
    Lineage(usize),
    /// A setting of the chains.
    #[error(transparent)]
    Chains(#[from] InvalidChainSettings),
    /// A time of the cluster.
    #[error("{field}: {0}", field = .0.field())]
    Timing(#[from] InvalidTiming),
}
