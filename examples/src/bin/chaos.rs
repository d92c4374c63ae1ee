//! See `artillery_examples::chaos`.

fn main() -> std::process::ExitCode {
    artillery_examples::chaos::main()
}
