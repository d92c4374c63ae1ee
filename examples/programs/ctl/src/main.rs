//! `artillery-ctl`: inspects a cluster and works with its data from outside.

fn main() -> std::process::ExitCode {
    artillery_ctl::main()
}
