//! Draws the results of `throughput` or `paper`, and prints them as tables with the promises.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use artillery_benches::{
    graphs::{draw, paper as paper_graphs, table, verdict},
    paper::{results::Results as PaperResults, verdict as paper_verdict},
    throughput::results::Results,
};
use clap::Parser;

/// Draws stored figures as SVG, and prints tables and which promises are met.
#[derive(Parser)]
struct Options {
    /// Results of `throughput`
    #[arg(long, value_name = "FILE", default_value = "benches/results/throughput.json")]
    from: PathBuf,
    /// Draw these results of `paper` instead
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    paper: Option<PathBuf>,
    /// Folder for the pictures (default: that of the figures)
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    match &options.paper {
        Some(file) => draw_paper(file, &options),
        None => draw_throughput(&options),
    }
}

fn draw_throughput(options: &Options) -> Result<(), Box<dyn Error>> {
    let results = Results::load(&options.from)?;
    store(draw::all(&results)?, &options.from, options)?;
    println!("{}", table::all(&results));
    results.skipped.iter().for_each(|skipped| println!("SKIPPED: {skipped}"));
    verdict::all(&results).iter().for_each(|verdict| println!("- {verdict}"));
    Ok(())
}

fn draw_paper(file: &Path, options: &Options) -> Result<(), Box<dyn Error>> {
    let results = PaperResults::load(file)?;
    store(paper_graphs::all(&results)?, file, options)?;
    println!("{}", paper_verdict::tables(&results));
    paper_verdict::all(&results).iter().for_each(|verdict| println!("- {verdict}"));
    Ok(())
}

fn store(pictures: Vec<(String, String)>, figures: &Path, options: &Options) -> Result<(), Box<dyn Error>> {
    let beside = || figures.parent().map(PathBuf::from).unwrap_or_default();
    let into = options.into.clone().unwrap_or_else(beside);
    fs::create_dir_all(&into)?;
    for (name, svg) in pictures {
        let file = into.join(name);
        fs::write(&file, svg)?;
        eprintln!("{} written", file.display());
    }
    Ok(())
}
