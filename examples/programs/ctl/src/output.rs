//! The output of `ctl`: bytes and words for people, objects for scripts (`docs/json.md`).

use std::io::{self, Write};
#[cfg(target_os = "linux")]
use std::os::fd::AsFd;
use std::time::Duration;

use artillery_ddata::kv::Committed;
use artillery_programs::exit::Failure;
use comfy_table::{Table, presets::NOTHING};
use serde_json::{Value, json};
#[cfg(target_os = "linux")]
use tokio::{io::Interest, net::unix::pipe::Sender};

#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    pub(super) json: bool,
}

impl Output {
    /// Prints one object on its own line. Returns whether it could be written.
    pub(super) fn object(self, value: &Value) -> bool {
        self.bytes(value.to_string().as_bytes())
    }

    /// Prints bytes unchanged, and a newline. Returns false if writing failed, for example because the reader has
    /// closed the pipe.
    pub(super) fn bytes(self, bytes: &[u8]) -> bool {
        let mut out = io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()).is_ok()
    }

    /// Reports a failed command as JSON. Without `--json` the message on standard error suffices.
    pub(super) fn failure(self, failure: &Failure) {
        if self.json {
            self.object(&failed(failure));
        }
    }

    /// Like [`failure`](Self::failure), on standard error: standard output belongs to another program.
    pub(super) fn failure_aside(self, failure: &Failure) {
        if self.json {
            eprintln!("{}", failed(failure));
        }
    }
}

fn failed(failure: &Failure) -> Value {
    json!({ "error": failure.to_string(), "kind": failure.kind })
}

/// Waits until the reader of standard output has closed it. Never returns if that can't be detected: with a file, and
/// outside Linux.
pub(super) async fn reader_gone() {
    #[cfg(target_os = "linux")]
    if let Ok(out) = io::stdout().as_fd().try_clone_to_owned().and_then(Sender::from_owned_fd_unchecked)
        && out.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

pub(super) fn plain_table(heads: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING);
    if !heads.is_empty() {
        table.set_header(heads);
    }
    table
}

/// The fields that `--json` prints for a committed write.
pub(super) fn done_with<T>(key: &str, done: &Committed<T>) -> Value {
    json!({
        "key": key,
        "version": done.version.to_string(),
        "request": done.request_id.to_string(),
        "replayed": done.replayed,
    })
}

/// Adds a value to an object: as `value` if it is text, otherwise as `value_hex` in hexadecimal.
pub(super) fn with_value(mut object: Value, value: Option<&[u8]>) -> Value {
    let text = value.and_then(|value| std::str::from_utf8(value).ok());
    object["value"] = json!(text);
    if let (Some(value), None) = (value, text) {
        object["value_hex"] = hex(value).into();
    }
    object
}

/// Adds a key to an object: as `key`, and if it isn't text, also as `key_hex` in hexadecimal. Then `key` has `U+FFFD` in
/// place of what isn't text.
pub(super) fn with_key(mut object: Value, key: &[u8]) -> Value {
    object["key"] = String::from_utf8_lossy(key).into();
    if std::str::from_utf8(key).is_err() {
        object["key_hex"] = hex(key).into();
    }
    object
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Adds how long a key will stay: `null` if it is absent or doesn't expire.
pub(super) fn with_expiry(mut object: Value, expires_in: Option<Duration>) -> Value {
    object["expires_in_ms"] = json!(expires_in.map(millis));
    object
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_no_text_are_hexadecimal() {
        let with = |value| with_value(json!({}), Some(value));
        assert_eq!(with(b"\xff\x00"), json!({ "value": null, "value_hex": "ff00" }));
        assert_eq!(with("ä".as_bytes()), json!({ "value": "ä" }));
    }

    #[test]
    fn keys_that_are_no_text_can_be_told_apart() {
        assert_eq!(with_key(json!({}), b"a\xff"), json!({ "key": "a\u{fffd}", "key_hex": "61ff" }));
        assert_eq!(with_key(json!({}), "ä".as_bytes()), json!({ "key": "ä" }));
    }
}
