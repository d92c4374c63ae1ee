//! Why a node can't be started, and work that blocks during a start.

use std::io;

use artillery_core::{error, error::IdentityError};

use super::durable::DataDirError;
use crate::{config::ConfigProblem, control::formation::InvalidFormation, offload::offload};

/// Why a node can't be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The settings are invalid. Lists the problems found.
    #[error("{}", list(.0))]
    Config(Vec<ConfigProblem>),
    /// Neither a secret nor certificates were given.
    #[error("a node needs the cluster's secret or certificates of its own")]
    NoIdentity,
    /// The secret or the certificates can't be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The settings of the formation can't be used.
    #[error(transparent)]
    Formation(#[from] InvalidFormation),
    /// No name was given, and the directory holds a store without its node's name: the file NAME was lost.
    #[error("the directory holds a store, and not the name of its node: give the name")]
    NoName,
    /// The node's directory can't be used.
    #[error(transparent)]
    Data(#[from] DataDirError),
    /// The node's threads can't be started, or one of them ended or panicked during the start.
    #[error("no thread for the node: {0}")]
    Threads(io::Error),
    /// The membership layer can't be started.
    #[error(transparent)]
    Cluster(#[from] error::StartError),
}

fn list(problems: &[ConfigProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Runs work on a directory on a thread for blocking tasks.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DataDirError> + Send + 'static,
) -> Result<T, StartError> {
    let worked = offload(work).await;
    Ok(worked.map_err(|error| StartError::Threads(io::Error::other(error)))??)
}
