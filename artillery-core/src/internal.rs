//! What the other crates of this project need and applications don't. It may change in any release: they pin this crate's
//! version exactly.

#[cfg(feature = "net")]
pub mod clock {
    //! The clocks of this node.

    #[cfg(feature = "testing")]
    pub use crate::clock::Followed;
    pub use crate::clock::{now, wall};
}

pub mod codec {
    //! The encoding of headers (docs/adr/0002).

    pub use crate::codec::{CodecError, MAX_HEADER, decode, decode_value, encode, is_encoding};
}

pub mod frame {
    //! The bytes of frames.

    pub use crate::frame::{FrameDecoder, PREFIX, prefix};
}

pub mod membership {
    //! SWIM as a state machine.

    pub use crate::membership::{
        LocalMember, MAX_MEMBER_NAME_BYTES, MAX_MEMBER_PAYLOAD_BYTES, PacketError, Swim, SwimError, SwimEvent,
        SwimMember, SwimOutput, SwimPeer, WireError,
    };
}

#[cfg(feature = "testing")]
pub mod simulated {
    //! A network in this process.

    pub use crate::transport::simulated::{Network, Weather};
}

#[cfg(feature = "net")]
pub mod discovery {
    //! Sources that applications have made.

    use std::sync::Arc;

    use crate::discovery::{Candidates, ContainedDiscovery, Discovery};

    /// The candidates of a source, which runs on a thread of its own until the stream is dropped.
    pub fn contained(source: Arc<dyn Discovery>) -> Candidates {
        ContainedDiscovery::new(source).candidates()
    }
}

pub use crate::id::MAX_LINEAGE;
#[cfg(feature = "net")]
pub use crate::transport::{socket::LinkFilter, staggered::first_of};

/// Doors for the fuzz targets, which stand outside this crate.
#[cfg(all(fuzzing, feature = "net"))]
#[allow(missing_docs)]
pub mod fuzzing {
    pub use crate::{
        discovery::fuzzing::{mdns_answer, txt_record},
        transport::fuzzing::hello,
    };
}
