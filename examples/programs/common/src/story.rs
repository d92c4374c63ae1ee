//! What a program says on the way.

/// Tells the reader what is going on.
pub struct Story {
    /// Print to standard error: standard output belongs to the summary.
    pub aside: bool,
}

impl Story {
    /// Prints a line.
    pub fn say(&self, line: &str) {
        if self.aside { eprintln!("{line}") } else { println!("{line}") }
    }
}
