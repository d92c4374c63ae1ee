//! A running demo, as its output describes it.

use std::path::{Path, PathBuf};

use artillery_processes::{DEMO, Node, TEST_TIMEOUT, eventually, token};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// A demo after its introduction.
pub(super) struct Demo {
    pub(super) process: Node,
    pub(super) rows: Vec<Row>,
    pub(super) dir: PathBuf,
}

/// A node, as the introduction lists it.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) role: String,
    pub(super) id: u32,
    pub(super) http: String,
    pub(super) resp: String,
}

impl Demo {
    pub(super) async fn start() -> Self {
        let mut process = Node::of(&DEMO, &token(), &["--restart-after", "1"]);
        let lines = process.out.until(|lines| lines.iter().any(|line| line.starts_with("Ctrl-C"))).await;
        let lines = lines.unwrap_or_else(|| panic!("{:?}, {:?}", process.out.all(), process.err.all()));
        let rows: Vec<_> = lines.iter().filter_map(|line| row(line)).collect();
        assert_eq!(rows.len(), 3, "{lines:?}");
        let dir = lines.iter().find_map(|line| line.split_once("data in ")).unwrap().1;
        let dir = PathBuf::from(dir.trim_end_matches(':'));
        assert!(dir.is_dir());
        Self { process, rows, dir }
    }

    /// Waits for a line with this text, and returns the newest one.
    pub(super) async fn printed(&mut self, text: &str) -> String {
        let seen = self.process.out.until(|lines| lines.iter().any(|line| line.contains(text))).await;
        let seen = seen.unwrap_or_else(|| panic!("no {text:?}: {:?}", self.process.out.all()));
        seen.into_iter().rev().find(|line| line.contains(text)).unwrap()
    }

    /// Waits until all these processes have ended, and the directory is deleted.
    pub(super) async fn is_gone(ids: &[u32], dir: &Path) {
        eventually(async || {
            let alive: Vec<_> = ids.iter().filter(|id| is_alive(**id)).collect();
            match (alive.as_slice(), dir.exists()) {
                ([], false) => Ok(()),
                left => Err(format!("left: {left:?}")),
            }
        })
        .await;
    }
}

fn row(line: &str) -> Option<Row> {
    let words: Vec<_> = line.split_whitespace().collect();
    let &[name, role, id, page, "redis-cli", "-p", port] = words.as_slice() else { return None };
    let http = page.strip_prefix("http://")?.trim_end_matches('/').to_owned();
    Some(Row {
        name: name.to_owned(),
        role: role.to_owned(),
        id: id.parse().ok()?,
        http,
        resp: format!("127.0.0.1:{port}"),
    })
}

/// Whether a process exists and isn't a zombie.
fn is_alive(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Sends one request, and returns the answer up to this text.
pub(super) async fn asked(addr: &str, request: &str, until: &str) -> Result<String, String> {
    let asked = async {
        let mut stream = TcpStream::connect(addr).await?;
        stream.write_all(request.as_bytes()).await?;
        let (mut answer, mut bytes) = (String::new(), [0; 4096]);
        while !answer.contains(until) {
            match stream.read(&mut bytes).await? {
                0 => break,
                length => answer.push_str(&String::from_utf8_lossy(&bytes[..length])),
            }
        }
        Ok::<_, std::io::Error>(answer)
    };
    let answer = timeout(TEST_TIMEOUT, asked).await.map_err(|_| "no answer".to_owned())?;
    let answer = answer.map_err(|error| error.to_string())?;
    if answer.contains(until) { Ok(answer) } else { Err(answer) }
}
