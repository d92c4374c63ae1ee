//! The command line of a program under the name by which it was started.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::Path,
};

use clap::{Command, Parser};

/// Stands for the program's name in [`Command::after_help`].
pub const NAME: &str = "{name}";

/// The name by which this program was started, without its folder; `usual` if the system doesn't know it.
pub fn name(usual: &str) -> String {
    name_of(env::args_os().next().as_deref(), usual)
}

fn name_of(started_as: Option<&OsStr>, usual: &str) -> String {
    let file = started_as.map(Path::new).and_then(Path::file_name).and_then(OsStr::to_str);
    file.unwrap_or(usual).to_owned()
}

/// The command line of a program that is called `name` in its help, its usage lines and its version.
pub fn named<P: Parser>(name: &str) -> Command {
    let command = P::command().bin_name(name).display_name(name);
    match command.get_after_help().map(ToString::to_string) {
        Some(help) => command.after_help(help.replace(NAME, name)),
        None => command,
    }
}

/// Parses these arguments, except the first. Help, version and errors end the process.
pub fn parse<P: Parser>(name: &str, args: impl IntoIterator<Item = OsString>) -> P {
    let mut command = named::<P>(name);
    let matches = command.try_get_matches_from_mut(args);
    let parsed = matches.and_then(|mut matches| P::from_arg_matches_mut(&mut matches));
    parsed.unwrap_or_else(|error| error.format(&mut command).exit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program
    #[derive(Parser)]
    #[command(name = "artillery-program", version, after_help = "Examples:\n  {name} --fast")]
    struct Args {}

    #[test]
    fn a_program_has_the_name_of_its_file() {
        let name = |started_as: &str| name_of(Some(OsStr::new(started_as)), "usual");
        assert_eq!([name("program"), name("/opt/bin/p"), name("..")], ["program", "p", "usual"]);
        assert_eq!(name_of(None, "usual"), "usual");
    }

    #[test]
    fn help_and_version_have_the_name() {
        let mut command = named::<Args>("p");
        assert_eq!(command.render_version(), format!("p {}\n", env!("CARGO_PKG_VERSION")));
        let help = command.render_help().to_string();
        assert!(help.contains("Usage: p") && help.contains("  p --fast") && !help.contains("artillery"), "{help}");
    }
}
