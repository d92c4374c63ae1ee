//! The progress of loading the directory, in the log and at the HTTP port.

use artillery_ddata::{http::NodeSlot, node::Loading, status::LoadingStatus};

pub(super) fn show(slot: &NodeSlot, loading: Loading) {
    slot.loads(loading);
    let LoadingStatus { step, records, records_per_second, read_bytes, total_bytes, .. } = loading.into();
    tracing::info!(
        step = step.as_str(),
        records,
        records_per_second,
        read_bytes,
        total_bytes,
        seconds = loading.elapsed.as_secs(),
        seconds_left = loading.left.map(|left| left.as_secs()),
        "loading the directory"
    );
}
