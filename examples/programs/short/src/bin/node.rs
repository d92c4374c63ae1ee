//! `node`: `artillery-node` under its short name.

fn main() -> std::process::ExitCode {
    artillery_node::main()
}
