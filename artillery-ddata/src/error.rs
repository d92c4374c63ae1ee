//! Why calls, connections and identities fail: the reasons in an [`Error`](crate::Error) and in the errors of builders.

pub(crate) mod kinds;

pub use artillery_core::error::{
    BindError, CloseReason, ConnectError, IdentityError, ParseIdError, StartError as ClusterStartError,
};

pub use self::kinds::{Advice, NotApplied, Unknown};
