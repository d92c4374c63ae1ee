//! Streams of frames.

mod batch;
mod reader;
mod writer;

pub use batch::FrameBatch;
pub use reader::FrameReader;
pub use writer::FrameWriter;
