use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{
    Candidates, Discovery, Seed, Source,
    listing::{ListAnswer, follow},
    lookup,
};

/// How often the file is read. It is small, and its modification time may not change with its content.
const READ_PERIOD: Duration = Duration::from_millis(500);

/// The largest accepted file, in bytes: enough for 256 long lines.
const MAX_FILE_BYTES: u64 = 128 << 10;

/// A file with one `HOST:PORT` per line. Text after a `#` is a comment; empty lines are ignored.
///
/// The file is read every half second. It may appear later, and may be written in place or replaced: while it is
/// missing, unreadable or has no address, all places stay. A place is withdrawn once it is missing from three
/// successive lists. An unterminated last line is used once two successive reads return the same content. At most 256
/// places are used, and a file larger than 128 KiB is treated as unreadable. Malformed lines do not affect the others;
/// one warning names up to eight of them, and is not repeated while they are the same. Host names are resolved at each
/// dial.
#[derive(Debug, Clone)]
pub struct FileDiscovery {
    path: PathBuf,
}

impl FileDiscovery {
    /// Reads the addresses from the file at this path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }
}

impl Discovery for FileDiscovery {
    fn candidates(&self) -> Candidates {
        let path: Arc<Path> = self.path.clone().into();
        let readings = Arc::new(Mutex::new(Readings::default()));
        follow(Source::File(path.display().to_string()), READ_PERIOD, move || {
            let (path, readings) = (path.clone(), readings.clone());
            async move {
                let shown = path.clone();
                let bytes = lookup::beside(move || read(&path)).await.map_err(|error| error.to_string())?;
                let mut readings = readings.lock().unwrap_or_else(PoisonError::into_inner);
                let (list, report) = readings.on_read(bytes);
                if let Some(problems) = report {
                    tracing::warn!(file = %shown.display(), problems, "ignoring malformed lines");
                }
                list
            }
        })
    }
}

/// Reads a regular file. Reading anything else might never end.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("it is larger than {MAX_FILE_BYTES} bytes")));
    }
    Ok(bytes)
}

/// The state between successive reads of one file. Does no I/O.
#[derive(Default)]
struct Readings {
    last: Vec<u8>,
    reported: String,
}

const MAX_NAMED_LINES: usize = 8;

/// Maximum length of one line's problem in a report: enough for any valid host name.
const MAX_PROBLEM_CHARS: usize = 300;

impl Readings {
    /// Parses the addresses; `Err` if there is none. Also returns a report of the malformed lines, unless there are
    /// none, the report equals the previous one, or the last line is unfinished.
    fn on_read(&mut self, bytes: Vec<u8>) -> (ListAnswer, Option<String>) {
        let is_new = self.last != bytes;
        let text = String::from_utf8_lossy(&bytes);
        let is_unfinished = is_new && !text.is_empty() && !text.ends_with('\n');
        let whole = if is_unfinished { text.rfind('\n').map_or("", |end| &text[..end]) } else { &text[..] };
        let (mut list, mut bad) = (Vec::new(), Vec::new());
        for (at, line) in whole.trim_start_matches('\u{feff}').lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            match line.parse::<Seed>() {
                _ if line.is_empty() => {}
                Ok(place) => list.push(place),
                Err(error) => bad.push((at + 1, error.to_string())),
            }
        }
        drop(text);
        self.last = bytes;
        // The next read may have more lines to report.
        let report = if is_unfinished { None } else { self.report(&bad) };
        let list = if list.is_empty() { Err("it contains no address".to_owned()) } else { Ok(list) };
        (list, report)
    }

    fn report(&mut self, bad: &[(usize, String)]) -> Option<String> {
        let named = bad.iter().take(MAX_NAMED_LINES);
        let mut parts: Vec<_> =
            named.map(|(line, problem)| format!("line {line}: {problem:.MAX_PROBLEM_CHARS$}")).collect();
        if bad.len() > MAX_NAMED_LINES {
            parts.push(format!("and {} more", bad.len() - MAX_NAMED_LINES));
        }
        let text = parts.join("; ");
        let is_news = !text.is_empty() && text != self.reported;
        is_news.then(|| {
            self.reported.clone_from(&text);
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(readings: &mut Readings, text: &str) -> Option<Vec<String>> {
        let list = readings.on_read(text.as_bytes().to_vec()).0;
        list.ok().map(|list| list.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn comments_and_empty_lines_mean_nothing() {
        let text = "\u{feff}# nodes\r\n\r\n 10.0.0.1:7400 # the first\r\n[fd00::1]:7400\n\tdb.example:7400\n";
        let found = list(&mut Readings::default(), text).unwrap();
        assert_eq!(found, ["10.0.0.1:7400", "[fd00::1]:7400", "db.example:7400"]);
    }

    #[test]
    fn lines_that_make_no_sense_are_named_once_and_cost_no_other() {
        let mut readings = Readings::default();
        let text = b"10.0.0.1\n10.0.0.2:7400\nnot an address\n\xff\xfe:1\n".to_vec();
        let (list, report) = readings.on_read(text.clone());
        assert_eq!(list.unwrap().len(), 1);
        let report = report.unwrap();
        let named: Vec<_> = report.split("; ").map(|part| part.split(':').next().unwrap()).collect();
        assert_eq!(named, ["line 1", "line 3", "line 4"]);
        assert_eq!(readings.on_read(text.clone()).1, None);
        let longer = [&text[..], b"10.0.0.3:7400\n"].concat();
        assert_eq!(readings.on_read(longer).1, None, "another line has changed");
        assert!(readings.on_read(b"10.0.0.1\n".to_vec()).1.is_some(), "other malformed lines");
    }

    #[test]
    fn a_report_is_one_line_of_bounded_length() {
        let text = format!("{}\n", "x".repeat(2000)).repeat(50);
        let report = Readings::default().on_read(text.into_bytes()).1.unwrap();
        assert!(report.contains("line 8: ") && !report.contains("line 9") && report.ends_with("and 42 more"));
        assert!(report.len() < 10 * MAX_PROBLEM_CHARS, "{}", report.len());
    }

    #[test]
    fn an_unfinished_line_is_reported_once_two_readings_have_shown_it() {
        let mut readings = Readings::default();
        assert_eq!(readings.on_read(b"10.0.0.1:7400\n10.0.".to_vec()).1, None);
        assert_eq!(readings.on_read(b"10.0.0.1:7400\n10.0.0.2".to_vec()).1, None);
        assert!(readings.on_read(b"10.0.0.1:7400\n10.0.0.2".to_vec()).1.unwrap().starts_with("line 2: "));
    }

    /// The unfinished `10.0.0.2:74` would be another node's address.
    #[test]
    fn an_unfinished_line_counts_once_two_readings_have_shown_it() {
        let mut readings = Readings::default();
        assert_eq!(list(&mut readings, "10.0.0.1:7400\n10.0.0.2:74").unwrap(), ["10.0.0.1:7400"]);
        assert_eq!(list(&mut readings, "10.0.0.1:7400\n10.0.0.2:7400").unwrap(), ["10.0.0.1:7400"]);
        assert_eq!(list(&mut readings, "10.0.0.1:7400\n10.0.0.2:7400").unwrap().len(), 2);
    }

    #[test]
    fn a_file_without_an_address_is_no_list() {
        for text in ["", "# later\n", "nonsense\n"] {
            assert_eq!(list(&mut Readings::default(), text), None);
        }
    }
}
