//! Streams of frames.

mod batch;
mod reader;
mod writer;

pub use batch::FrameBatch;
pub use reader::FrameReader;
pub(super) use reader::Source;
pub use writer::FrameWriter;
pub(super) use writer::Sink;
