//! The protocol's guards. A test can disable any one of them (docs/adr/0003-mutants.md).
//!
//! Settings carry [`Guards`]. Guarded code asks [`allows!`](crate::allows), by the name of a mutant, whether its guard
//! is disabled. `guards/mutant.rs` lists all mutants. Only the package `artillery-proto-mutants`, built from the same
//! sources, enables the feature `mutants`. Without the feature, and outside of this crate's own tests, no guard can be
//! disabled: [`Guards`] has no size, and `allows!` is always `false`.

#[cfg(any(test, feature = "mutants"))]
mod mutant;

#[cfg(any(test, feature = "mutants"))]
pub use mutant::Mutant;

/// The guards in force: all of them, unless a test disables one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Guards {
    #[cfg(any(test, feature = "mutants"))]
    out: Option<Mutant>,
}

impl Guards {
    pub const ALL: Self = Self {
        #[cfg(any(test, feature = "mutants"))]
        out: None,
    };
}

#[cfg(not(any(test, feature = "mutants")))]
const _: () = assert!(size_of::<Guards>() == 0, "guards must have no size in a shipped build");

#[cfg(any(test, feature = "mutants"))]
impl Guards {
    /// All guards except the one that this mutant disables.
    pub const fn without(mutant: Mutant) -> Self {
        Self { out: Some(mutant) }
    }

    /// Whether this mutant's guard is disabled. Guarded code calls [`allows!`](crate::allows), which also compiles
    /// without mutants.
    pub const fn allow(self, mutant: Mutant) -> bool {
        matches!(self.out, Some(out) if out as u8 == mutant as u8)
    }
}

#[cfg(not(any(test, feature = "mutants")))]
impl Guards {
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

/// Whether these [`Guards`] permit the named mutant's behaviour: `allows!(self.guards, KeepDirty)`.
///
/// A macro lets guarded code name its mutant even in a build without mutants. In such a build the macro is `false`, and
/// the compiler removes the code that depends on it.
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
