//! Decides which node answers a request.

use bytes::Bytes;

use super::Server;
use crate::{
    ChainId, Mode, Place,
    api::{ReadMode, Refusal, Write},
    control::chain_of_prefix,
    local::handle::ChainHandle,
    message::request::{Operation, Request},
    rpc::router::{check_key, check_value},
};

pub(super) enum For {
    Here(ChainHandle),
    AnotherNode,
}

impl Server {
    /// Whether this node answers the request or forwards it. A request that was forwarded before isn't forwarded again:
    /// this node's chain answers it, or refuses it and names the member to ask.
    ///
    /// # Errors
    /// The refusal: this node knows no such chain, a forwarded request is for a chain that isn't here, a key belongs to
    /// another chain, or a key or value is too long.
    pub(super) fn place(&self, request: &Request) -> Result<For, Refusal> {
        match &request.operation {
            Operation::Read { query, .. } => self.check(request.chain, query.keys().iter(), std::iter::empty())?,
            Operation::Write { write, .. } => {
                self.check(request.chain, write.keys(), write.values())?;
                self.check_sequential(request.chain, write)?;
            }
            Operation::Admin(_) => return Err(Refusal::NoChain),
        }
        match self.local.here(request.chain) {
            Some(here) if request.forwarded || self.answers(request, here.place) => Ok(For::Here(here.handle)),
            None if request.forwarded => Err(Refusal::NoChain),
            _ => Ok(For::AnotherNode),
        }
    }

    /// Checks that a sequential key will belong to the chain.
    fn check_sequential(&self, chain: ChainId, write: &Write) -> Result<(), Refusal> {
        let Write::PutSequential { prefix, .. } = write else { return Ok(()) };
        let decided = chain_of_prefix(prefix, self.local.chain_count());
        if decided == Some(chain) { Ok(()) } else { Err(Refusal::ManyChains) }
    }

    /// Checks that all keys belong to the chain, and that keys and values respect their length limits.
    fn check<'a>(
        &self,
        chain: ChainId,
        keys: impl Iterator<Item = &'a Bytes>,
        mut values: impl Iterator<Item = &'a Bytes>,
    ) -> Result<(), Refusal> {
        if chain.0 >= self.local.chain_count() {
            return Err(Refusal::NoChain);
        }
        for key in keys {
            check_key(key)?;
            if !self.belongs(key, chain) {
                return Err(Refusal::NoChain);
            }
        }
        values.try_for_each(|value| check_value(value, self.max_value_bytes))
    }

    /// Whether a node in this place of the chain answers the request.
    fn answers(&self, request: &Request, place: Place) -> bool {
        match &request.operation {
            Operation::Write { .. } => place == Place::Head,
            Operation::Read { mode: ReadMode::Strong | ReadMode::Bounded { .. }, .. }
                if self.is_classic(request.chain) =>
            {
                self.is_tail(request)
            }
            Operation::Read { mode: ReadMode::Eventual, .. } => true,
            _ => matches!(place, Place::Head | Place::Middle | Place::Tail),
        }
    }

    fn is_classic(&self, chain: ChainId) -> bool {
        let routing = self.local.routing();
        let routing = routing.borrow();
        routing.as_ref().and_then(|routing| routing.chain(chain)).is_some_and(|config| config.mode == Mode::Classic)
    }

    fn is_tail(&self, request: &Request) -> bool {
        let routing = self.local.routing();
        let routing = routing.borrow();
        let config = routing.as_ref().and_then(|routing| routing.chain(request.chain));
        config.is_some_and(|config| config.tail() == Some(self.local.me))
    }
}
