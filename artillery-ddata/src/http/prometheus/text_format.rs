//! Prometheus' text format, version 0.0.4.

use std::fmt::{Display, Write};

use crate::metrics::Histogram;

/// The content type of [`prometheus`](crate::http::prometheus): text format 0.0.4.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// A page of metrics. The samples of each family follow its heading.
#[derive(Default)]
pub(super) struct Page(String);

pub(super) struct Family<'a> {
    page: &'a mut String,
    name: &'a str,
}

impl Page {
    /// A value that only grows; its name ends in `_total`.
    pub(super) fn counter<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        self.family(name, "counter", help)
    }

    pub(super) fn gauge<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        self.family(name, "gauge", help)
    }

    pub(super) fn histogram<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        self.family(name, "histogram", help)
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }

    fn family<'a>(&'a mut self, name: &'a str, kind: &str, help: &str) -> Family<'a> {
        // Writing to a string can't fail, here and below.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { page: &mut self.0, name }
    }
}

impl Family<'_> {
    pub(super) fn sample(&mut self, labels: Labels<'_>, value: impl Display) -> &mut Self {
        self.line("", labels, None, value)
    }

    pub(super) fn flag(&mut self, labels: Labels<'_>, is: bool) -> &mut Self {
        self.sample(labels, u8::from(is))
    }

    /// Adds the cumulative ranges, the sum and the count.
    pub(super) fn ranges(&mut self, labels: Labels<'_>, histogram: &Histogram) -> &mut Self {
        let mut below = 0;
        for (at, count) in histogram.counts.iter().enumerate() {
            below += count;
            let bound = histogram.bounds.get(at).map_or_else(|| "+Inf".to_owned(), f64::to_string);
            self.line("_bucket", labels, Some(&bound), below);
        }
        self.line("_sum", labels, None, histogram.sum).line("_count", labels, None, below)
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, le: Option<&str>, value: impl Display) -> &mut Self {
        let name = self.name;
        let _ = write!(self.page, "{name}{suffix}");
        let bound = le.map(|le| ("le", le));
        let mut begun = false;
        for (label, text) in labels.iter().copied().chain(bound) {
            let sign = if begun { ',' } else { '{' };
            let _ = write!(self.page, "{sign}{label}=\"{}\"", escaped(text));
            begun = true;
        }
        let end = if begun { "} " } else { " " };
        let _ = writeln!(self.page, "{end}{value}");
        self
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_with_labels_is_printed() {
        let mut page = Page::default();
        page.counter("a_total", "How often.").sample(&[], 1).sample(&[("b", "c\"d\\e\nf"), ("g", "h")], 2.5);
        let text = "# HELP a_total How often.\n# TYPE a_total counter\na_total 1\na_total{b=\"c\\\"d\\\\e\\nf\",g=\"h\"} 2.5\n";
        assert_eq!(page.into_text(), text);
    }
}
