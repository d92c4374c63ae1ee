mod batch;
mod reader;
mod writer;

pub use batch::FrameBatch;
pub use reader::FrameReader;
pub(super) use reader::StreamSource;
pub use writer::FrameWriter;
pub(super) use writer::StreamSink;
