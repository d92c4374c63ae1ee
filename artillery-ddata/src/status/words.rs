//! Words of the status.

use std::fmt;

use artillery_core::MemberState;
use serde::{Deserialize, Serialize};

use crate::{Mode, message::Fullness};

/// Defines an enum of words, with a variant for words that this release doesn't know.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)*
            /// A word of a newer release.
            #[serde(untagged)]
            Other(String),
        }

        impl $name {
            /// The word in the JSON.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)*
                    Self::Other(word) => word,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

words! {
    /// Which members of a chain serve strong reads.
    ChainMode {
        /// Every serving member.
        Craq = "craq",
        /// Only the tail.
        Classic = "classic",
    }
}

words! {
    /// The state of a node, as the reporting node sees it by its own probes and by the reports of other nodes: a
    /// suggestion, never a decision.
    GossipState {
        /// It answers probes, or is new and not suspected.
        Alive = "alive",
        /// It did not answer a probe in time, and may still refute the suspicion.
        Suspect = "suspect",
        /// It did not refute the suspicion in time, or a later incarnation has replaced it.
        Down = "down",
        /// It announced its departure, for example because it was shut down.
        Left = "left",
    }
}

words! {
    /// A step of loading a data directory.
    LoadingStep {
        /// The journal is verified.
        Check = "check",
        /// The verified records are loaded.
        Load = "take_in",
    }
}

words! {
    /// An exhausted resource.
    Exhausted {
        /// The disk: it is considered full, by [`DataConfig::reserve_bytes`](crate::config::DataConfig::reserve_bytes).
        Disk = "disk",
        /// The memory: the node has reached [`Limits::max_memory_bytes`](crate::config::Limits::max_memory_bytes).
        Memory = "memory",
    }
}

impl From<Mode> for ChainMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Classic => Self::Classic,
            _ => Self::Craq,
        }
    }
}

impl From<MemberState> for GossipState {
    fn from(state: MemberState) -> Self {
        match state {
            MemberState::Alive => Self::Alive,
            MemberState::Suspect => Self::Suspect,
            MemberState::Down => Self::Down,
            MemberState::Left => Self::Left,
        }
    }
}

impl Exhausted {
    pub(crate) fn of(what: Fullness) -> Option<Self> {
        match what {
            Fullness::Nothing => None,
            Fullness::Disk => Some(Self::Disk),
            Fullness::Memory => Some(Self::Memory),
        }
    }
}
