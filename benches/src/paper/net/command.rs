//! Programs that change the network, each run to its end.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

use crate::throughput::Failed;

/// Whether a program can be started.
pub(super) fn exists(program: &str) -> bool {
    Command::new(program).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Runs a program. Its standard error becomes the text of a failure.
pub(super) fn run(program: &str, args: &[&str]) -> Result<Output, Failed> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    checked(output.map_err(|error| format!("{program}: {error}"))?, program)
}

/// Has `ip` or `tc` execute some lines, in a namespace.
pub(super) fn batch(
    program: &str,
    namespace: Option<&str>,
    lines: impl IntoIterator<Item = String>,
) -> Result<(), Failed> {
    let mut command = Command::new(program);
    if let Some(namespace) = namespace {
        command.args(["-n", namespace]);
    }
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
    let text = lines.into_iter().collect::<Vec<_>>().join("\n") + "\n";
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(text.as_bytes())?;
    }
    checked(child.wait_with_output()?, program).map(drop)
}

fn checked(output: Output, program: &str) -> Result<Output, Failed> {
    if output.status.success() {
        return Ok(output);
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()).into())
}
