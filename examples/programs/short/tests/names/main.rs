//! The short names are those in help, usage and version.

use artillery_processes::expect;

#[tokio::test]
async fn programs_call_themselves_by_their_short_names() {
    for (program, name) in [(env!("CARGO_BIN_EXE_node"), "node"), (env!("CARGO_BIN_EXE_ctl"), "ctl")] {
        let (help, _) = expect(0, program, None, &["--help"]).await;
        assert!(help.contains(&format!("Usage: {name} ")) && !help.contains("artillery-"), "{help}");
        let (version, _) = expect(0, program, None, &["--version"]).await;
        assert_eq!(version, format!("{name} {}\n", env!("CARGO_PKG_VERSION")));
        let (_, error) = expect(2, program, None, &["--no-such-flag"]).await;
        assert!(error.contains(&format!("Usage: {name} ")), "{error}");
    }
}
