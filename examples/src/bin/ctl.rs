//! See `artillery_examples::ctl`.

fn main() -> std::process::ExitCode {
    artillery_examples::ctl::main()
}
