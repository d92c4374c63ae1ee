//! The trace of a run, one line per event, identical each time the run is repeated.

use std::fmt::{self, Write as _};

use artillery_proto::{
    MemberId,
    message::{ChainFrame, ChainMessage, Chunk},
};

/// Collects the trace if it was requested.
#[derive(Clone, Debug, Default)]
pub struct Trace(Option<String>);

impl Trace {
    /// Records lines only if `wanted`.
    pub fn new(wanted: bool) -> Self {
        Self(wanted.then(String::new))
    }

    /// Adds a line. `text` is called only if the trace was requested.
    pub fn line(&mut self, now: u64, text: impl FnOnce(&mut String) -> fmt::Result) {
        if let Some(story) = &mut self.0 {
            // Writing to a string never fails.
            let _ = write!(story, "{}.{:09} ", now / 1_000_000_000, now % 1_000_000_000);
            let _ = text(story);
            story.push('\n');
        }
    }

    /// The trace, if it was requested.
    pub fn take(self) -> Option<String> {
        self.0
    }
}

/// Displays a frame in one line.
pub struct Brief<'a>(pub &'a ChainFrame);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ChainFrame { chain, epoch, message, .. } = self.0;
        write!(f, "c{} e{epoch} ", chain.0)?;
        match message {
            ChainMessage::Updates(updates) => {
                write!(f, "updates w={} after {}", updates.watermark, updates.after)?;
                for update in &updates.updates {
                    write!(f, " {}", update.version)?;
                }
                Ok(())
            }
            ChainMessage::Control(control) => write!(f, "{control:?}"),
            ChainMessage::Durable(version) => write!(f, "durable up to {version}"),
            ChainMessage::Full(what) => write!(f, "full: {what:?}"),
            ChainMessage::Snapshot(part) => write!(f, "snapshot {} at {:?}", part.id, part.at),
            ChainMessage::Chunk(Chunk { watermark, after, version, part, bytes }) => {
                write!(f, "piece w={watermark} after {after} {version} {part:?} {} bytes", bytes.len())
            }
        }
    }
}

/// The short name of a member, `n` and its index in `ids`, or its id if it is not one of them.
pub fn name(ids: &[MemberId], id: MemberId) -> String {
    match ids.iter().position(|&known| known == id) {
        Some(index) => format!("n{index}"),
        None => id.to_string(),
    }
}
