//! Programs that change the network, each run to its end.

use std::process::{Command, Output, Stdio};

use artillery_programs::exit::Failure;

/// Whether a program can be started.
pub(super) fn exists(program: &str) -> bool {
    Command::new(program).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Runs a program; its output becomes the error.
pub(super) fn run(program: &str, args: &[&str]) -> Result<Output, Failure> {
    let failed = |why: &str| Failure::failed(format!("{program} {}: {why}", args.join(" ")));
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(&error.to_string()))?;
    if output.status.success() { Ok(output) } else { Err(failed(String::from_utf8_lossy(&output.stderr).trim())) }
}

pub(super) fn ip(args: &[&str]) -> Result<(), Failure> {
    run("ip", args).map(drop)
}

/// `ip` in a namespace.
pub(super) fn in_namespace(namespace: &str, args: &[&str]) -> Result<(), Failure> {
    ip(&[&["-n", namespace], args].concat())
}

/// `tc` in a namespace.
pub(super) fn tc(namespace: &str, args: &[&str]) -> Result<(), Failure> {
    run("tc", &[&["-n", namespace], args].concat()).map(drop)
}
