//! A node of the demo: this program again, as a process that ends with the demo.

use std::{
    ffi::OsString,
    io::{self, Read},
    path::PathBuf,
    process::{self, ExitCode},
    thread,
};

use artillery_programs::exit;

use crate::place;

/// The first argument of such a process. The directory of the demo follows, then the arguments of a node.
pub(super) const COMMAND: &str = "run-node";

/// Runs the node. Standard input is a pipe from the demo: its end is the end of the demo, even by SIGKILL. Then the
/// process deletes the directory of the demo, and ends.
pub(super) fn main(args: Vec<OsString>) -> ExitCode {
    let mut args = args.into_iter().skip(2);
    let Some(dir) = args.next().map(PathBuf::from) else { return ExitCode::from(exit::FAILED) };
    let watch = move || {
        wait_for_the_end(io::stdin().lock());
        let removed = place::remove(&dir);
        process::exit(i32::from(if removed.is_ok() { exit::DONE } else { exit::FAILED }));
    };
    if let Err(error) = thread::Builder::new().name("demo's end".to_owned()).spawn(watch) {
        eprintln!("error: this node can't be tied to the demo: {error}");
        return ExitCode::from(exit::FAILED);
    }
    artillery_node::main_of("demo", [COMMAND.into()].into_iter().chain(args))
}

fn wait_for_the_end(mut pipe: impl Read) {
    let mut bytes = [0; 64];
    loop {
        match pipe.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(length) if length > 0 => {}
            _ => return,
        }
    }
}
