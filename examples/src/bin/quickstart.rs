//! See `artillery_examples::quickstart`.

fn main() -> std::process::ExitCode {
    artillery_examples::quickstart::main()
}
