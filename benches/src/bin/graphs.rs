//! Draws what `throughput` has stored, and prints it as a table with the promises beside it.

use std::{error::Error, fs, path::PathBuf};

use artillery_benches::{
    graphs::{draw, table, verdict},
    throughput::results::Results,
};
use clap::Parser;

/// Draws stored figures as SVG, and prints tables and which promises are met.
#[derive(Parser)]
struct Options {
    /// What `throughput` has written
    #[arg(long, value_name = "FILE", default_value = "benches/results/throughput.json")]
    from: PathBuf,
    /// Folder that the pictures are written to (default: where the figures are)
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let results = Results::load(&options.from)?;
    let beside = || options.from.parent().map(PathBuf::from).unwrap_or_default();
    let into = options.into.clone().unwrap_or_else(beside);
    fs::create_dir_all(&into)?;
    for (name, svg) in draw::all(&results)? {
        let file = into.join(name);
        fs::write(&file, svg)?;
        eprintln!("{} is written", file.display());
    }
    println!("{}", table::all(&results));
    results.skipped.iter().for_each(|skipped| println!("SKIPPED: {skipped}"));
    verdict::all(&results).iter().for_each(|verdict| println!("- {verdict}"));
    Ok(())
}
