//! Parses Prometheus' text format, and finds the problems that `promtool check metrics` finds.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) families: BTreeMap<String, Family>,
}

#[derive(Debug, Default)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) help: String,
    pub(crate) samples: Vec<Sample>,
}

#[derive(Debug, Clone)]
pub(crate) struct Sample {
    name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

impl Page {
    /// The error is the first invalid line, or a text if the last line isn't terminated.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut page = Self::default();
        if !text.ends_with('\n') {
            return Err("the last line has no end".to_owned());
        }
        for line in text.lines().filter(|line| !line.is_empty()) {
            page.line(line).ok_or_else(|| line.to_owned())?;
        }
        Ok(page)
    }

    fn line(&mut self, line: &str) -> Option<()> {
        if let Some(comment) = line.strip_prefix("# ") {
            let (word, rest) = comment.split_once(' ')?;
            let (name, said) = rest.split_once(' ')?;
            let family = self.families.entry(name.to_owned()).or_default();
            let said_once = match word {
                "HELP" => &mut family.help,
                "TYPE" if family.samples.is_empty() => &mut family.kind,
                _ => return None,
            };
            return std::mem::replace(said_once, said.to_owned()).is_empty().then_some(());
        }
        let end = line.find(['{', ' '])?;
        let (name, mut rest) = line.split_at(end);
        let mut labels = BTreeMap::new();
        if let Some(inner) = rest.strip_prefix('{') {
            let mut left = inner;
            while !left.starts_with('}') {
                let (label, behind) = left.split_once("=\"")?;
                let (value, behind) = quoted(behind)?;
                (labels.insert(label.to_owned(), value).is_none()).then_some(())?;
                left = behind.strip_prefix(',').unwrap_or(behind);
            }
            rest = &left[1..];
        }
        let value = rest.strip_prefix(' ')?.parse().ok()?;
        let family = self.families.get_mut(family_of(name, &self.families.keys().cloned().collect()))?;
        family.samples.push(Sample { name: name.to_owned(), labels, value });
        Some(())
    }

    /// The sum of all samples of a family that have this label; `None` if there are none.
    pub(crate) fn sum(&self, family: &str, label: &str, value: &str) -> Option<f64> {
        let samples = &self.families.get(family)?.samples;
        let found: Vec<_> =
            samples.iter().filter(|sample| sample.labels.get(label).is_some_and(|is| is == value)).collect();
        (!found.is_empty()).then(|| found.iter().map(|sample| sample.value).sum())
    }

    /// The only sample of a family without labels; its count if it is a histogram.
    pub(crate) fn value(&self, family: &str) -> Option<f64> {
        let samples = &self.families.get(family)?.samples;
        let is_it = |sample: &&Sample| sample.labels.is_empty() && !sample.name.ends_with("_sum");
        samples.iter().find(is_it).map(|sample| sample.value)
    }

    /// All violations of the format and of Prometheus' naming rules.
    pub(crate) fn lint(&self) -> Vec<String> {
        self.families.iter().flat_map(|(name, family)| family.lint(name)).collect()
    }
}

fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut escaped) = (String::new(), false);
    for (at, sign) in text.char_indices() {
        match (escaped, sign) {
            (true, 'n') => value.push('\n'),
            (true, '\\' | '"') => value.push(sign),
            (true, _) => return None,
            (false, '"') => return Some((value, &text[at + 1..])),
            (false, '\\') => {}
            (false, _) => value.push(sign),
        }
        escaped = !escaped && sign == '\\';
    }
    None
}

fn family_of<'a>(sample: &'a str, families: &BTreeSet<String>) -> &'a str {
    let stems = ["_bucket", "_sum", "_count"].iter().filter_map(|suffix| sample.strip_suffix(suffix));
    stems.into_iter().find(|stem| families.contains(*stem) && !families.contains(sample)).unwrap_or(sample)
}

fn is_name(name: &str) -> bool {
    let fits = |sign: char| sign.is_ascii_lowercase() || sign.is_ascii_digit() || sign == '_';
    name.starts_with(|sign: char| sign.is_ascii_lowercase()) && name.chars().all(fits)
}

/// Units other than base units, and words that repeat the type.
const BAD_WORDS: [&str; 12] = [
    "milliseconds",
    "microseconds",
    "nanoseconds",
    "ms",
    "us",
    "minutes",
    "hours",
    "kilobytes",
    "megabytes",
    "percent",
    "gauge",
    "histogram",
];

impl Family {
    fn lint(&self, name: &str) -> Vec<String> {
        let mut problems = Vec::new();
        let mut problem = |is: bool, what: &str| {
            if is {
                problems.push(format!("{name}: {what}"))
            }
        };
        problem(self.help.is_empty(), "no HELP");
        problem(!["counter", "gauge", "histogram"].contains(&self.kind.as_str()), "no known TYPE");
        problem(!is_name(name), "no name of a metric");
        problem((self.kind == "counter") != name.ends_with("_total"), "counters, and only they, end in _total");
        problem(name.split('_').any(|word| BAD_WORDS.contains(&word)), "no base unit, or its type in its name");
        let mut seen = BTreeSet::new();
        for sample in &self.samples {
            problem(!seen.insert((&sample.name, &sample.labels)), "the same series twice");
            problem(
                !sample.labels.keys().all(|label| is_name(label) && !label.starts_with("__")),
                "no name of a label",
            );
            problem(sample.value.is_nan() || (self.kind != "gauge" && sample.value < 0.0), "no value");
            problem(self.kind != "histogram" && sample.labels.contains_key("le"), "le belongs to histograms");
        }
        if self.kind == "histogram" {
            problems.extend(self.lint_ranges().into_iter().map(|what| format!("{name}: {what}")));
        }
        problems
    }

    /// The buckets of each series must be ordered and cumulative, and end with +Inf.
    fn lint_ranges(&self) -> Vec<&'static str> {
        let mut series: BTreeMap<BTreeMap<String, String>, Vec<&Sample>> = BTreeMap::new();
        for sample in &self.samples {
            let mut labels = sample.labels.clone();
            labels.remove("le");
            series.entry(labels).or_default().push(sample);
        }
        let mut problems = Vec::new();
        for samples in series.values() {
            let of = |suffix: &str| samples.iter().filter(|sample| sample.name.ends_with(suffix)).collect::<Vec<_>>();
            let (ranges, sums, counts) = (of("_bucket"), of("_sum"), of("_count"));
            let bound =
                |sample: &Sample| sample.labels.get("le").and_then(|le| le.parse::<f64>().ok()).unwrap_or(f64::NAN);
            let grow = |pair: &[&&Sample]| bound(pair[0]) < bound(pair[1]) && pair[0].value <= pair[1].value;
            if !ranges.windows(2).all(grow) {
                problems.push("ranges that don't grow");
            }
            let last = ranges.last().map(|last| (bound(last), last.value));
            if last.is_none() || last != counts.first().map(|count| (f64::INFINITY, count.value)) {
                problems.push("no range +Inf that is the count");
            }
            if (sums.len(), counts.len()) != (1, 1) {
                problems.push("no sum, or no count");
            }
        }
        problems
    }
}

#[test]
fn violations_are_found() {
    let good = "# HELP a_seconds h\n# TYPE a_seconds histogram\na_seconds_bucket{k=\"x\",le=\"1\"} 1\n\
        a_seconds_bucket{k=\"x\",le=\"+Inf\"} 2\na_seconds_sum{k=\"x\"} 3\na_seconds_count{k=\"x\"} 2\n\
        # HELP b_total h\n# TYPE b_total counter\nb_total{k=\"a\\\"\\\\\\n}\"} 1\n# HELP c h\n# TYPE c gauge\n";
    let page = Page::parse(good).unwrap();
    assert_eq!(page.lint(), [""; 0]);
    assert_eq!((page.sum("b_total", "k", "a\"\\\n}"), page.families.len()), (Some(1.0), 3));
    let breaks = [
        ("# HELP b_total h\n", "", "no HELP"),
        ("TYPE b_total counter", "TYPE b_total gauge", "_total"),
        ("TYPE b_total counter", "TYPE b_total untyped", "TYPE"),
        ("TYPE c gauge", "TYPE c counter", "_total"),
        ("c gauge\n", "c gauge\nc 1\nc 2\n", "twice"),
        ("c gauge\n", "c gauge\nc{le=\"1\"} 1\n", "le"),
        ("c gauge\n", "c gauge\nc{A=\"1\"} 1\n", "label"),
        ("c gauge\n", "c gauge\n# HELP c_ms h\n# TYPE c_ms gauge\n", "base unit"),
        ("b_total{k=\"a\\\"\\\\\\n}\"} 1", "b_total -1", "no value"),
        ("le=\"1\"} 1", "le=\"1\"} 3", "grow"),
        ("le=\"1\"", "le=\"Inf\"", "grow"),
        ("a_seconds_count{k=\"x\"} 2", "a_seconds_count{k=\"x\"} 3", "+Inf"),
        ("a_seconds_sum{k=\"x\"} 3\n", "", "no sum"),
    ];
    for (line, broken, problem) in breaks {
        assert!(good.contains(line), "{line}");
        let found = Page::parse(&good.replace(line, broken)).unwrap().lint();
        assert!(found.iter().any(|found| found.contains(problem)), "{line} → {broken}: {found:?}");
    }
    for nonsense in ["a 1\n", "# TYPE a counter\n# TYPE a counter\n", "# HELP a h\na{b=\"c} 1\n", "# HELP a h\na 1"] {
        assert!(Page::parse(nonsense).is_err(), "{nonsense}");
    }
}
