//! Streams that peers opened: chain frames and formation messages.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use artillery_core::{
    Frame, MemberId,
    error::ReadError,
    transport::{CloseCode, IncomingStream},
};
use tokio::sync::mpsc;

use super::chain::{ChainCommand, Inlets};
use crate::{
    ChainId,
    control::formation::FormationMessage,
    wire::{chain, control::ControlDecodeError, formation},
};

#[derive(Default)]
pub(crate) struct ChainInlets {
    inlets: RwLock<BTreeMap<ChainId, Inlets>>,
}

impl ChainInlets {
    pub(crate) fn add(&self, chain: ChainId, inlets: Inlets) {
        self.inlets.write().unwrap_or_else(PoisonError::into_inner).insert(chain, inlets);
    }

    pub(crate) fn get(&self, chain: ChainId) -> Option<Inlets> {
        self.inlets.read().unwrap_or_else(PoisonError::into_inner).get(&chain).cloned()
    }

    pub(crate) fn all(&self) -> Vec<(ChainId, Inlets)> {
        let inlets = self.inlets.read().unwrap_or_else(PoisonError::into_inner);
        inlets.iter().map(|(&chain, inlets)| (chain, inlets.clone())).collect()
    }

    /// Drops all inlets, which ends the chains' tasks.
    pub(crate) fn close(&self) {
        self.inlets.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[derive(Debug, thiserror::Error)]
enum Violation {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("a frame that is no chain message: {0}")]
    Chain(#[from] chain::DecodeError),
    #[error("a frame that is no message of formation: {0}")]
    Formation(#[from] ControlDecodeError),
}

/// Reads a stream of chain frames to its end. Besides the stream, it waits only for the chain's task, which waits for
/// no peer.
pub(crate) async fn chain_stream(from: MemberId, mut stream: IncomingStream, chains: Arc<ChainInlets>) {
    let mut present = None;
    let outcome: Result<(), Violation> = async {
        while let Some(frame) = stream.reader.next().await? {
            let mut next = Some(frame);
            while let Some(frame) = next {
                chain_frame(from, &frame, &chains, &mut present).await?;
                next = stream.reader.next_ready();
            }
        }
        Ok(())
    }
    .await;
    conclude(from, &stream, outcome);
}

async fn chain_frame(
    from: MemberId,
    frame: &Frame,
    chains: &ChainInlets,
    present: &mut Option<(ChainId, mpsc::Sender<ChainCommand>)>,
) -> Result<(), Violation> {
    let frame = chain::decode(frame)?;
    let id = frame.chain;
    if present.as_ref().is_none_or(|&(chain, _)| chain != id) {
        *present = chains.get(id).map(|inlets| (id, inlets.commands));
    }
    // Frames of an unknown chain are dropped. The sender has a newer or older configuration, and will send them again.
    if let Some((_, commands)) = present
        && commands.send(ChainCommand::Frame { from, frame }).await.is_err()
    {
        *present = None;
    }
    Ok(())
}

/// Reads a stream of formation messages to its end.
pub(crate) async fn formation_stream(
    from: MemberId,
    mut stream: IncomingStream,
    messages: mpsc::Sender<(MemberId, FormationMessage)>,
) {
    let outcome: Result<(), Violation> = async {
        while let Some(frame) = stream.reader.next().await? {
            // The receiver is dropped once the formation has ended.
            if messages.send((from, formation::decode(&frame)?)).await.is_err() {
                break;
            }
        }
        Ok(())
    }
    .await;
    conclude(from, &stream, outcome);
}

fn conclude(from: MemberId, stream: &IncomingStream, outcome: Result<(), Violation>) {
    match outcome {
        Ok(()) => {}
        Err(Violation::Read(ReadError::Lost(reason))) => tracing::debug!(peer = %from, %reason, "a stream ended"),
        Err(violation) => {
            tracing::warn!(peer = %from, %violation, "a peer violated the protocol");
            stream.connection.close(CloseCode::VIOLATION, &violation.to_string());
        }
    }
}
