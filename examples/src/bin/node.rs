//! See `artillery_examples::node`.

fn main() -> std::process::ExitCode {
    artillery_examples::node::main()
}
