//! Items for the other crates of this project, which pin this crate's exact version. They may change in any release.

#[cfg(feature = "net")]
pub mod clock {
    //! Clocks of this node.

    #[cfg(feature = "testing")]
    pub use crate::clock::Followed;
    pub use crate::clock::{NodeClock, is_virtual, now};
}

#[cfg(feature = "net")]
pub mod random {
    //! Random numbers.

    #[cfg(feature = "testing")]
    pub use crate::random::Seeded;
    pub use crate::random::{fraction, number, wide};
}

#[cfg(feature = "net")]
pub mod watch {
    //! Channels that wake receivers in order.

    pub use crate::watch::{Receiver, RecvError, Ref, Sender, channel};
}

pub mod codec {
    //! Encoding of headers (docs/adr/0002).

    pub use crate::codec::{CodecError, MAX_HEADER, decode, decode_value, encode, is_encoding};
}

pub mod frame {
    //! Encoding of frames.

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
    //! A simulated network within this process.

    pub use crate::transport::simulated::{Network, Weather};
}

#[cfg(feature = "net")]
pub mod discovery {
    //! Sources of addresses implemented by applications.

    use std::sync::Arc;

    use crate::discovery::{Candidates, ContainedDiscovery, Discovery};

    /// Runs a source on a thread of its own until the returned stream is dropped.
    pub fn contained(source: Arc<dyn Discovery>) -> Candidates {
        ContainedDiscovery::new(source).candidates()
    }
}

pub mod text {
    //! Ids as text.

    pub use crate::id::text::{parse_hex, parsed};
}

pub use crate::id::MAX_LINEAGE;
#[cfg(feature = "net")]
pub use crate::transport::{socket::LinkFilter, staggered::first_of};

/// Entry points for the fuzz targets, which are outside this crate.
#[cfg(all(fuzzing, feature = "net"))]
#[allow(missing_docs)]
pub mod fuzzing {
    pub use crate::{
        discovery::fuzzing::{mdns_answer, txt_record},
        transport::fuzzing::hello,
    };
}
