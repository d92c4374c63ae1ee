//! `ctl`: `artillery-ctl` under its short name.

fn main() -> std::process::ExitCode {
    artillery_ctl::main()
}
