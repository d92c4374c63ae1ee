//! Where a call may wait.

use tokio::runtime::Handle;

/// Whether this thread is a runtime's, so that it must not wait.
pub(super) fn within_runtime() -> bool {
    Handle::try_current().is_ok()
}
