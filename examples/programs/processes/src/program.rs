//! Finds the programs, and runs them to completion.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{self, Output, Stdio},
    sync::LazyLock,
    time::SystemTime,
};

use tokio::{process::Command, time::timeout};

use crate::TEST_TIMEOUT;

/// The path of a program, which is built on first access if it is missing or outdated.
type Program = LazyLock<String>;

/// The program `artillery-node`.
pub static NODE: Program = LazyLock::new(|| built("artillery-node"));
/// The program `artillery-ctl`.
pub static CTL: Program = LazyLock::new(|| built("artillery-ctl"));
/// The program `chaos`.
pub static CHAOS: Program = LazyLock::new(|| built("chaos"));
/// The program `demo`.
pub static DEMO: Program = LazyLock::new(|| built("demo"));
/// The program `quickstart`.
pub static QUICKSTART: Program = LazyLock::new(|| built("quickstart"));

/// Shared sources: a program that is older than one of these must be rebuilt.
const SHARED_SOURCES: [&str; 5] = [
    "artillery-core/src",
    "artillery-ddata/src",
    "artillery-ddata/checker/src",
    "artillery-ddata/proto/src",
    "examples/programs/common/src",
];

/// The path of a program, derived from that of the running test or bench. Cargo builds the programs of the packages whose tests
/// it runs: all programs with `--workspace`, one with `-p`. This function builds any other that is missing or outdated.
fn built(name: &str) -> String {
    let test = env::current_exe().expect("a test knows where it is");
    let folder = test.parent().expect("the test is in a folder");
    // A test is in a folder below the programs, a bench is one of them.
    let folder = if folder.ends_with("deps") { folder.parent().expect("it is below the programs") } else { folder };
    let program = folder.join(name);
    if !is_current(name, &program) {
        build(name, folder);
    }
    program.into_os_string().into_string().expect("a path in UTF-8")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).expect("this package is inside the workspace").to_owned()
}

/// Whether the program exists, and none of its sources is newer.
fn is_current(name: &str, program: &Path) -> bool {
    let Some(built) = changed(program) else { return false };
    let own = format!("examples/programs/{}/src", short(name));
    // The nodes of `demo` are those of `artillery-node`.
    let contained = (name == "demo").then_some("examples/programs/node/src");
    SHARED_SOURCES
        .into_iter()
        .chain([own.as_str()])
        .chain(contained)
        .all(|folder| is_older(&root().join(folder), built))
}

/// The name of the folder of a program, and of its package without `artillery-`.
fn short(name: &str) -> &str {
    name.strip_prefix("artillery-").unwrap_or(name)
}

fn changed(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|found| found.modified()).ok()
}

/// Whether this file, or every file below this folder, is older. Tests and modules used only by them are ignored, since
/// cargo doesn't rebuild programs for them.
fn is_older(path: &Path, built: SystemTime) -> bool {
    if path.file_stem().is_some_and(|stem| ["tests", "fake", "fixtures"].iter().any(|name| stem == *name)) {
        return true;
    }
    match fs::read_dir(path) {
        Ok(mut entries) => entries.all(|entry| entry.is_ok_and(|entry| is_older(&entry.path(), built))),
        Err(_) => changed(path).is_some_and(|changed| changed <= built),
    }
}

/// Builds a program as `cargo test` does, into this folder.
fn build(name: &str, folder: &Path) {
    let profile = match folder.file_name().and_then(|profile| profile.to_str()) {
        Some("debug") | None => "test",
        Some(profile) => profile,
    };
    let package = format!("artillery-{}", short(name));
    let mut cargo = process::Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--locked", "--profile", profile, "-p", &package, "--bin", name, "--target-dir"]);
    let built =
        cargo.arg(folder.parent().expect("the profile's folder is in the target folder")).current_dir(root()).status();
    assert!(built.expect("cargo must be available to build a program").success(), "could not build {name}");
}

/// A command for a program. `ARTILLERY_SECRET` is set to the given secret, or removed from the environment.
pub(crate) fn command(program: &str, secret: Option<&str>, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env_remove("ARTILLERY_SECRET").stdin(Stdio::null()).kill_on_drop(true);
    // With a secret, a node listens beyond this machine by default.
    if program == &**NODE && !args.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    if let Some(secret) = secret {
        command.env("ARTILLERY_SECRET", secret);
    }
    command
}

/// Runs a program to completion. Panics if that takes longer than [`TEST_TIMEOUT`].
pub async fn run(program: &str, secret: Option<&str>, args: &[&str]) -> Output {
    let done = timeout(TEST_TIMEOUT, command(program, secret, args).output()).await;
    done.unwrap_or_else(|_| panic!("{program} {args:?} didn't end")).unwrap()
}

/// The output of a program as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Panics unless a program prints help for `--help` and this version for `--version`.
pub async fn assert_help_and_version(program: &str, version: &str) {
    assert!(expect(0, program, None, &["--help"]).await.0.contains("--log"));
    assert!(expect(0, program, None, &["--version"]).await.0.contains(version));
}

/// Panics unless a program refuses each of these arguments with exit code 2, an empty standard output and an error that
/// contains the given text.
pub async fn assert_refused(program: &str, all: &[(&[&str], &str)]) {
    for (args, named) in all {
        let (out, err) = expect(2, program, None, args).await;
        assert!(out.is_empty() && err.contains(named), "{args:?}: {err}");
    }
}

/// Like [`run`], but panics unless the exit code is `code`. Returns standard output and standard error.
pub async fn expect(code: i32, program: &str, secret: Option<&str>, args: &[&str]) -> (String, String) {
    let done = run(program, secret, args).await;
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    assert_eq!(done.status.code(), Some(code), "{program} {args:?}\n{out}\n{err}");
    (out, err)
}
