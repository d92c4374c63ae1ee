//! Reports the node's state to the service manager that started it, by the protocol of systemd (`sd_notify`). Without
//! `NOTIFY_SOCKET` nothing is sent.

use std::{
    env,
    ffi::OsStr,
    io,
    os::unix::net::{SocketAddr, UnixDatagram},
    sync::Arc,
    time::Duration,
};

use artillery_ddata::{
    Node,
    node::{Loading, WaitingFor},
    status::{LoadingStatus, LoadingStep},
};
use tokio::time::interval;

const SOCKET: &str = "NOTIFY_SOCKET";
/// The time between two looks at the node. A report that the manager couldn't take is repeated after it.
const PERIOD: Duration = Duration::from_secs(1);
/// A start may take this long from each report on. Reports are made every second, so this allows for a busy machine.
const EXTENSION: Duration = Duration::from_secs(60);
/// Longer texts are cut, since systemd ignores messages above 4 KiB. A character has at most four bytes.
const MAX_TEXT_CHARS: usize = 800;

/// The service manager. Clones send to the same one.
#[derive(Clone, Default)]
pub(super) struct Manager(Option<Arc<UnixDatagram>>);

impl Manager {
    /// The service manager that the environment names.
    pub(super) fn from_environment() -> Self {
        let Some(name) = env::var_os(SOCKET).filter(|name| !name.is_empty()) else { return Self::default() };
        match connected(&name) {
            Ok(socket) => Self(Some(Arc::new(socket))),
            Err(error) => {
                tracing::warn!(%error, "{SOCKET} {}: the service manager can't be informed", name.display());
                Self::default()
            }
        }
    }

    /// Sends lines, without waiting for a manager that is busy or suspended. Whether they were sent, or no manager wants
    /// them.
    fn send(&self, lines: &str) -> bool {
        let Some(socket) = &self.0 else { return true };
        match socket.send(lines.as_bytes()) {
            Ok(_) => true,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => false,
            Err(error) => {
                tracing::debug!(%error, "the service manager can't be informed");
                false
            }
        }
    }

    /// Reports the progress of loading, and extends the timeout of the start. A load that makes no progress isn't reported,
    /// so that it times out.
    pub(super) fn loads(&self, loading: Loading) {
        if self.0.is_some() {
            self.send(&format!("{}\n{}", status(&loading_text(loading)), extension()));
        }
    }

    /// Reports that the process ends.
    pub(super) fn stops(&self) {
        self.send(&format!("STOPPING=1\n{}", status("stopping")));
    }

    /// Reports why the process ends or restarts.
    pub(super) fn ends(&self, why: &str) {
        self.send(&status(why));
    }

    /// Reports the reasons why the node isn't ready, its readiness, and then whether it serves, until the node has ended.
    pub(super) async fn follow(self, node: Node) {
        if self.0.is_none() {
            return;
        }
        let mut ticks = interval(PERIOD);
        let mut ready = std::pin::pin!(node.ready());
        loop {
            tokio::select! {
                biased;
                ready = &mut ready => match ready {
                    Ok(_) => break,
                    Err(_) => return,
                },
                _ = ticks.tick() => self.waits(&node.waiting_for().await),
            }
        }
        while !self.send(&format!("READY=1\n{}", status(&serves(&node).await))) {
            ticks.tick().await;
        }
        let mut sent = String::new();
        loop {
            ticks.tick().await;
            let text = serves(&node).await;
            if sent != text && self.send(&status(&text)) {
                sent = text;
            }
        }
    }

    /// A node that waits for others isn't hung, and a restart wouldn't help it.
    fn waits(&self, reasons: &[WaitingFor]) {
        let is_loading = |reason: &WaitingFor| matches!(reason, WaitingFor::Loading(_));
        if reasons.is_empty() || reasons.iter().any(is_loading) {
            return;
        }
        let is_over = |reason: &WaitingFor| matches!(reason, WaitingFor::Halted { .. } | WaitingFor::Stopped { .. });
        let extension = if reasons.iter().any(is_over) { String::new() } else { extension() };
        self.send(&format!("{}\n{extension}", status(&waits(reasons))));
    }
}

fn connected(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_encoded_bytes() {
        #[cfg(target_os = "linux")]
        [b'@', rest @ ..] => <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(rest)?,
        [b'/', ..] => SocketAddr::from_pathname(name)?,
        _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "neither a path nor an abstract socket")),
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

async fn serves(node: &Node) -> String {
    match node.waiting_for().await {
        reasons if reasons.is_empty() => "serving".to_owned(),
        reasons => waits(&reasons),
    }
}

fn waits(reasons: &[WaitingFor]) -> String {
    let reasons: Vec<_> = reasons.iter().map(ToString::to_string).collect();
    format!("not serving: {}", reasons.join("; "))
}

fn loading_text(loading: Loading) -> String {
    let LoadingStatus { step, read_bytes, total_bytes, .. } = loading.into();
    let step = if step == LoadingStep::Check { "checking" } else { "loading" };
    let percent = (u128::from(read_bytes) * 100).checked_div(u128::from(total_bytes)).unwrap_or(100);
    let left = loading.left.map_or_else(String::new, |left| format!(", about {} s left", left.as_secs()));
    format!("{step} the directory: {percent} % of {} MiB{left}", total_bytes.div_ceil(1 << 20))
}

/// The text as one line of the protocol.
fn status(text: &str) -> String {
    let text = text.chars().take(MAX_TEXT_CHARS).map(|char| if char.is_control() { ' ' } else { char });
    format!("STATUS={}", text.collect::<String>())
}

fn extension() -> String {
    format!("EXTEND_TIMEOUT_USEC={}", EXTENSION.as_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 4096];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[test]
    fn a_text_is_one_short_line() {
        assert_eq!(status("a\nREADY=1"), "STATUS=a READY=1");
        assert!(status(&"🦀".repeat(2000)).len() < 4096 - 100);
    }

    #[test]
    fn a_manager_that_reads_nothing_delays_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let manager = Manager(Some(Arc::new(connected(path.as_os_str()).unwrap())));
        let sent = (0..100_000).take_while(|_| manager.send("STATUS=a")).count();
        assert!(sent < 100_000, "the queue of the socket has no end");
        assert_eq!(received(&socket), "STATUS=a");
        assert!(manager.send("READY=1"), "there is space again");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn abstract_sockets_are_known() {
        use std::os::linux::net::SocketAddrExt;
        let name = format!("artillery-manager-{}", artillery_processes::token());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        Manager(Some(Arc::new(connected(OsStr::new(&format!("@{name}"))).unwrap()))).stops();
        assert_eq!(received(&socket), "STOPPING=1\nSTATUS=stopping");
        assert!(connected(OsStr::new("vsock:2:1")).is_err());
    }

    #[test]
    fn nodes_that_wait_for_others_get_more_time() {
        let (own, socket) = UnixDatagram::pair().unwrap();
        let manager = Manager(Some(Arc::new(own)));
        manager.waits(&[WaitingFor::Leader]);
        assert!(received(&socket).ends_with("\nEXTEND_TIMEOUT_USEC=60000000"));
        manager.waits(&[WaitingFor::Leader, WaitingFor::Stopped { why: "it is over".to_owned() }]);
        let over = received(&socket);
        assert!(over.contains("it is over") && !over.contains("EXTEND"), "{over}");
    }
}
