//! Why calls, connections and identities fail: the reasons in an [`Error`](crate::Error) and in the errors of builders.

pub(crate) mod kinds;

pub use artillery_core::error::{BindError, CloseReason, ConnectError, IdentityError, StartError as ClusterStartError};
pub use artillery_proto::ParseIdError;

pub use self::kinds::{Advice, NotApplied, Unknown};
