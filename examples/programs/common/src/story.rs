//! Progress messages of a program.

/// Prints progress messages.
pub struct Story {
    /// Whether to print to standard error, because standard output is reserved for the summary.
    pub aside: bool,
}

impl Story {
    /// Prints a line.
    pub fn say(&self, line: &str) {
        if self.aside { eprintln!("{line}") } else { println!("{line}") }
    }
}
