//! A file with addresses, which may change while the node runs.

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

/// The largest file that is read: enough for 256 long lines.
const MAX_FILE_BYTES: u64 = 128 << 10;

/// A file with one `HOST:PORT` a line. Text behind a `#` is a comment, empty lines mean nothing.
///
/// The file is read every half a second. It may appear later, and may be written in place or replaced: while it is missing, has no
/// address or can't be read, all places stay. A place is withdrawn once it is missing in three successive readings. A last line without
/// its end of line counts once two readings have shown it. Malformed lines are logged, and the others are used. Host names
/// are looked up at each dial.
#[derive(Debug, Clone)]
pub struct FileDiscovery {
    path: PathBuf,
}

impl FileDiscovery {
    /// The addresses in the file at this path.
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
                let (list, bad) = readings.on_read(bytes);
                for (line, problem) in bad {
                    tracing::warn!(file = %shown.display(), line, problem, "a line is left out");
                }
                list
            }
        })
    }
}

/// Reading anything but a file might never end.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("it has more than {MAX_FILE_BYTES} bytes")));
    }
    Ok(bytes)
}

/// The readings of one file. Pure.
#[derive(Default)]
struct Readings {
    last: Vec<u8>,
}

/// Numbers of lines, each with its problem.
type BadLines = Vec<(usize, String)>;

impl Readings {
    /// The list in these bytes, and the malformed lines if they are new.
    fn on_read(&mut self, bytes: Vec<u8>) -> (ListAnswer, BadLines) {
        let is_new = self.last != bytes;
        let text = String::from_utf8_lossy(&bytes);
        let whole = if is_new { text.rfind('\n').map_or("", |end| &text[..end]) } else { &text[..] };
        let (mut list, mut bad) = (Vec::new(), Vec::new());
        for (at, line) in whole.trim_start_matches('\u{feff}').lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            match line.parse::<Seed>() {
                _ if line.is_empty() => {}
                Ok(place) => list.push(place),
                Err(error) if is_new => bad.push((at + 1, error.to_string())),
                Err(_) => {}
            }
        }
        drop(text);
        self.last = bytes;
        let list = if list.is_empty() { Err("it has no address".to_owned()) } else { Ok(list) };
        (list, bad)
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
        let (list, bad) = readings.on_read(text.clone());
        assert_eq!(list.unwrap().len(), 1);
        assert_eq!(bad.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 3, 4]);
        assert!(readings.on_read(text).1.is_empty());
    }

    /// `10.0.0.2:74` would be another node's address.
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
