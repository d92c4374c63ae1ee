//! Settings of a formation.

use std::time::Duration;

use super::MAX_FOUNDERS;
use crate::{
    ClusterId,
    control::{ChainSettings, InvalidChainSettings, InvalidTiming, MAX_LINEAGE, Timing},
    guards::Guards,
};

/// Settings of a formation: all founders must have been started with the same name, number of founders and chains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// What the cluster is called.
    pub name: String,
    /// How many nodes found it, from 1 to [`MAX_FOUNDERS`].
    pub expect: u16,
    /// What it settles for good.
    pub chains: ChainSettings,
    /// The times that the cluster goes by if this node proposes it. What the others were started with isn't compared.
    pub timing: Timing,
    /// What this node does after its cluster was given up; `None`: it has belonged to none.
    pub after: Option<After>,
    /// How long enough nodes must have been seen before one proposes.
    pub settle: Duration,
    /// How much longer a node waits for each one before it in the order of ids.
    pub stagger: Duration,
    /// How often what was said is said again.
    pub repeat: Duration,
    /// How long changes are gathered before they are told.
    pub gather: Duration,
    /// How long an accepted proposal may take before a ballot is held on it; between this and twice as long.
    pub patience: Duration,
    /// The guards that stand.
    pub guards: Guards,
}

impl Settings {
    /// Settings for a cluster called `name` of `expect` founders.
    pub fn new(name: impl Into<String>, expect: u16, chains: ChainSettings) -> Self {
        Self {
            name: name.into(),
            expect,
            chains,
            timing: Timing::default(),
            after: None,
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
    pub fn validate(&self) -> Result<(), InvalidSettings> {
        if self.expect == 0 || self.expect > MAX_FOUNDERS {
            return Err(InvalidSettings::Expect(self.expect));
        }
        if self.repeat.is_zero() || self.patience.is_zero() || self.stagger.is_zero() {
            return Err(InvalidSettings::ZeroTime);
        }
        if let Some(after) = self.after.as_ref().filter(|after| after.lineage.len() > MAX_LINEAGE) {
            return Err(InvalidSettings::Lineage(after.lineage.len()));
        }
        self.chains.validate()?;
        Ok(self.timing.validate()?)
    }
}

/// What a node does whose former cluster an operator gave up (`ctl found`). It joins no cluster that was given up, even if
/// a node that is still in one tells it to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct After {
    /// The clusters that were given up, the oldest first.
    pub lineage: Vec<ClusterId>,
    /// It founds the next one, by itself; otherwise it joins that, and has part in founding no other.
    pub founds: bool,
}

/// A setting of a formation makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSettings {
    /// [`Settings::expect`].
    #[error("{0} founders were expected: from 1 to {MAX_FOUNDERS} are possible")]
    Expect(u16),
    /// A time that must not be zero: [`Settings::repeat`], [`Settings::patience`], [`Settings::stagger`].
    #[error("repeat, patience and stagger must not be zero")]
    ZeroTime,
    /// More clusters are named that this one succeeds than [`MAX_LINEAGE`].
    #[error("{0} clusters that it succeeds: up to {MAX_LINEAGE} are possible")]
    Lineage(usize),
    /// A setting of the chains.
    #[error(transparent)]
    Chains(#[from] InvalidChainSettings),
    /// A time of the cluster.
    #[error("{field}: {0}", field = .0.field())]
    Timing(#[from] InvalidTiming),
}
