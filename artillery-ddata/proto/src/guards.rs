//! The guards of the protocol, each of which a test can take out (docs/adr/0003-mutants.md).
//!
//! Settings carry [`Guards`]. A guarded place asks them with [`allows!`](crate::allows), by the name of a mutant,
//! whether its guard is out. All mutants stand in one table (`guards/mutant.rs`). Only the package `artillery-proto-mutants`, made
//! of the same sources, has the feature `mutants`. Without it there are no mutants and no guard can be taken out: [`Guards`] has no
//! size, and `allows!` is the constant `false`.

#[cfg(any(test, feature = "mutants"))]
mod mutant;

#[cfg(any(test, feature = "mutants"))]
pub use mutant::Mutant;

/// Which guards stand: all of them, unless a test takes one out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Guards {
    #[cfg(any(test, feature = "mutants"))]
    out: Option<Mutant>,
}

impl Guards {
    /// All guards stand.
    pub const ALL: Self = Self {
        #[cfg(any(test, feature = "mutants"))]
        out: None,
    };
}

#[cfg(not(any(test, feature = "mutants")))]
const _: () = assert!(size_of::<Guards>() == 0, "guards cost nothing in a program");

#[cfg(any(test, feature = "mutants"))]
impl Guards {
    /// All guards but the one that this mutant takes out.
    pub const fn without(mutant: Mutant) -> Self {
        Self { out: Some(mutant) }
    }

    /// Whether this mutant's guard is out. Guarded places ask with [`allows!`](crate::allows), which needs no mutant.
    pub const fn allow(self, mutant: Mutant) -> bool {
        matches!(self.out, Some(out) if out as u8 == mutant as u8)
    }
}

#[cfg(not(any(test, feature = "mutants")))]
impl Guards {
    /// No guard is out.
    #[doc(hidden)]
    #[inline(always)]
    pub const fn allow(self, _mutant: &str) -> bool {
        false
    }
}

#[cfg(any(test, feature = "mutants"))]
impl From<Option<Mutant>> for Guards {
    fn from(out: Option<Mutant>) -> Self {
        Self { out }
    }
}

/// Whether these [`Guards`] allow what the named mutant does: `allows!(self.guards, KeepDirty)`.
///
/// It is a macro, so that a guarded place can name its mutant in a build without mutants. There it is `false`, and the
/// compiler drops the code that depends on it.
#[cfg(any(test, feature = "mutants"))]
#[doc(hidden)]
#[macro_export]
macro_rules! allows {
    ($guards:expr, $mutant:ident) => {
        $guards.allow($crate::guards::Mutant::$mutant)
    };
}

#[cfg(not(any(test, feature = "mutants")))]
#[doc(hidden)]
#[macro_export]
macro_rules! allows {
    ($guards:expr, $mutant:ident) => {
        $guards.allow(stringify!($mutant))
    };
}
