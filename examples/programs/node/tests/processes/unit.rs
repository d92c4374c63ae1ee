//! The unit of systemd in `deploy/systemd`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use artillery_processes::{NODE, expect, token};

fn deployed(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../deploy/systemd");
    fs::read_to_string(folder.join(name)).unwrap()
}

/// The values of a setting.
fn settings<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect()
}

fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("artillery-unit-{}", token()));
    fs::create_dir(&folder).unwrap();
    folder
}

#[tokio::test]
async fn the_node_accepts_the_flags_of_the_unit() {
    let (unit, flags, folder) = (deployed("artillery-node.service"), deployed("node.env"), folder());
    fs::write(folder.join("secret"), format!("{}\n", token())).unwrap();
    let folder_text = folder.to_str().unwrap();
    let command = settings(&unit, "ExecStart")[0]
        .replace("%H", "host")
        .replace("${STATE_DIRECTORY}", folder_text)
        .replace("${CREDENTIALS_DIRECTORY}", folder_text)
        .replace("$ARTILLERY_FLAGS", settings(&flags, "ARTILLERY_FLAGS")[0]);
    // A setting that is refused ends the node before it opens a port, and after all others were read.
    let args: Vec<_> = command.split_whitespace().skip(1).chain(["--expect", "0"]).collect();
    let (_, error) = expect(2, &NODE, None, &args).await;
    assert!(error.contains("error: expect"), "{error}");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn systemd_accepts_the_unit() {
    let unit = deployed("artillery-node.service");
    assert_eq!(settings(&unit, "Type"), ["notify"]);
    let folder = folder();
    let file = folder.join("artillery-node.service");
    // The program must exist for this check.
    fs::write(&file, unit.replace("/usr/local/bin/artillery-node", "/bin/true")).unwrap();
    match Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output() {
        Ok(done) => {
            let errors = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success() && !errors.contains("artillery-node.service"), "{errors}");
        }
        Err(error) => eprintln!("SKIPPED: systemd-analyze: {error}"),
    }
    fs::remove_dir_all(&folder).unwrap();
}
