//! Serves incoming calls, each on a stream of its own.

use std::time::Duration;

use artillery_core::{
    MemberId,
    transport::{CloseCode, IncomingStream},
};
use artillery_proto::node::NodeInput;
use bytes::Bytes;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::ControlCommand;
use crate::{
    control::embedded::LogHandle,
    driver::serve::OperatedNode,
    message::control::{ControlAnswer, ControlCall},
    wire::control::{decode_call, encode_answer},
};

/// The parts that answer calls of other nodes.
pub(crate) struct ControlEndpoint {
    pub(crate) commands: mpsc::Sender<ControlCommand>,
    pub(crate) log: LogHandle,
    pub(crate) node: Box<dyn OperatedNode>,
    /// The longest time that a peer waits for an answer.
    pub(crate) limit: Duration,
}

/// Answers one call. If the stream ends without an answer, the peer knows that none will follow.
pub(crate) async fn serve(from: MemberId, mut stream: IncomingStream, endpoint: &ControlEndpoint) {
    let Some(mut writer) = stream.writer.take() else {
        stream.connection.close(CloseCode::VIOLATION, "a call without a return path");
        return;
    };
    let answered = async {
        // The peer has ended or lost the stream, and expects no answer.
        let Ok(Some(frame)) = stream.reader.next().await else { return };
        let call = match decode_call(&frame) {
            Ok(call) => call,
            Err(error) => {
                tracing::warn!(peer = %from, %error, "a peer violated the protocol");
                return stream.connection.close(CloseCode::VIOLATION, &error.to_string());
            }
        };
        let Some(answer) = endpoint.answer(from, call).await else { return };
        match encode_answer(&answer) {
            // If the answer is lost with its connection, the peer calls again.
            Ok(encoded) => drop(writer.send(&encoded.header, &[encoded.body]).await),
            Err(error) => tracing::error!(%error, "an answer can't be encoded"),
        }
        writer.finish();
    };
    // The limit also ends the wait for a peer that doesn't read its answer.
    drop(timeout(endpoint.limit, answered).await);
}

impl ControlEndpoint {
    async fn answer(&self, from: MemberId, call: ControlCall) -> Option<ControlAnswer> {
        match call {
            ControlCall::Renewal(theirs, renewal) => {
                let histories = self.log.histories();
                if let Some(Err(over)) = theirs.map(|theirs| histories.meet(theirs)) {
                    return over.map(ControlAnswer::OtherHistory);
                }
                let (answer, renewed) = oneshot::channel();
                // With a full queue the call gets no answer: the peer calls again.
                self.commands.try_send(ControlCommand::Renewal { from, renewal, answer }).ok()?;
                Some(match renewed.await.ok()? {
                    Ok(renewed) => ControlAnswer::Renewed(histories.mine(), Box::new(renewed)),
                    Err(_) => ControlAnswer::RolledBack,
                })
            }
            ControlCall::Survey => {
                self.node.standing().await.map(|standing| ControlAnswer::Surveyed(Box::new(standing)))
            }
            ControlCall::Log(message) => {
                if !self.log.log().stands() {
                    // With a full queue the notice is dropped: the next message repeats it.
                    let _ = self.commands.try_send(ControlCommand::Input(NodeInput::Reached { by: from }));
                }
                self.serve_log(from, message).await
            }
        }
    }

    async fn serve_log(&self, from: MemberId, message: Bytes) -> Option<ControlAnswer> {
        match self.log.serve(from, message).await {
            Ok(answer) => Some(ControlAnswer::Log(answer)),
            Err(error) => {
                tracing::debug!(peer = %from, %error, "a message of the log's group was not taken");
                None
            }
        }
    }
}
