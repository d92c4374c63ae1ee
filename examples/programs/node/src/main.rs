//! `artillery-node`: one node of a cluster as a process.

fn main() -> std::process::ExitCode {
    artillery_node::main()
}
