use tokio::runtime::Handle;

/// Whether this thread belongs to a runtime, so that it must not block.
pub(super) fn within_runtime() -> bool {
    Handle::try_current().is_ok()
}
