//! What can go wrong with a call, by the state that it leaves behind: the reasons in an [`Error`](crate::Error).

pub(crate) mod kinds;

pub use artillery_core::error::{BindError, CloseReason, ConnectError, IdentityError};
pub use artillery_proto::{ParseFrontierError, ParseRequestIdError, ParseVersionError};

pub use self::kinds::{Advice, NotApplied, Unknown};
