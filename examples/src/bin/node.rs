//! See `artillery_examples::node`.

/// A node allocates on every command: by this one more are served than by the system's (`benches/README.md`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    artillery_examples::node::main()
}
