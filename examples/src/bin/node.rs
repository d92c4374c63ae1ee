//! See `artillery_examples::node`.

/// A node allocates on every command: this takes a tenth less of its time than the system's allocator (`benches/README.md`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    artillery_examples::node::main()
}
