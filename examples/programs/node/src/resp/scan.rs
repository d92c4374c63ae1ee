//! SCAN returns keys in the order of their hashes, so that a cursor is valid at every node and no node stores it.

use artillery_ddata::Kv;
use bytes::Bytes;

use super::{
    ask::{lower, number},
    failure::{SYNTAX, told_of_read},
    frame::{Words, keep},
    glob,
    reply::Reply,
};

/// The default number of keys that one call examines.
const COUNT: u32 = 10;
/// The maximum number of keys that one call examines.
const MAX_COUNT: i64 = 10_000;

#[derive(Debug, Clone)]
pub(super) struct Scan {
    cursor: u64,
    pattern: Option<Bytes>,
    count: u32,
    /// Whether keys of type string are wanted; all keys have this type.
    strings: bool,
}

impl Scan {
    pub(super) fn of(words: &Words) -> Result<Self, Reply> {
        let cursor = std::str::from_utf8(&words[1]).ok().and_then(|text| text.parse().ok());
        let cursor = cursor.ok_or_else(|| Reply::error("invalid cursor"))?;
        let mut scan = Self { cursor, pattern: None, count: COUNT, strings: true };
        let mut options = words[2..].iter();
        while let Some(option) = options.next() {
            let value = options.next().ok_or_else(|| Reply::error(SYNTAX))?;
            match lower(option).as_str() {
                "match" => {
                    glob::check(value)?;
                    scan.pattern = Some(keep(value));
                }
                "count" => match number(value)? {
                    count @ 1.. => scan.count = count.min(MAX_COUNT) as u32,
                    _ => return Err(Reply::error(SYNTAX)),
                },
                "type" => scan.strings = lower(value) == "string",
                _ => return Err(Reply::error(SYNTAX)),
            }
        }
        Ok(scan)
    }

    /// The next cursor and keys; cursor 0 ends the scan.
    pub(super) async fn ask(&self, kv: &Kv) -> Reply {
        let page = match kv.scan_hashed(self.cursor).limit(self.count).await {
            Ok(page) => page,
            Err(error) => return told_of_read(kv, b"", &error),
        };
        let mut keys = Vec::new();
        for key in page.keys {
            // Matching may take long, and other tasks share the thread.
            tokio::task::coop::consume_budget().await;
            if self.strings && self.pattern.as_ref().is_none_or(|glob| glob::matches(glob, &key)) {
                keys.push(Reply::Value(key));
            }
        }
        Reply::List(vec![Reply::text(page.next.to_string()), Reply::List(keys)])
    }
}
