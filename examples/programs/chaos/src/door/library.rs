//! A door that uses the library's own client.

use std::time::Duration;

use artillery_ddata::{Client, Error, Kv};

use super::{ANSWER_TIMEOUT, Ask, Door, Reply, number, text};

/// The library times out this much earlier than its caller, so that its own error, which states the outcome, is
/// returned.
const AHEAD: Duration = Duration::from_millis(200);

pub(crate) struct Library {
    kv: Kv,
}

impl Library {
    pub(crate) fn new(client: &Client) -> Self {
        Self { kv: client.kv().with_timeout(ANSWER_TIMEOUT.saturating_sub(AHEAD)) }
    }

    async fn done(&self, key: &str, ask: Ask) -> Result<Reply, Error> {
        let kv = &self.kv;
        Ok(match ask {
            Ask::Set(value) => kv.put(key, text(value)).await.map(|_| Reply::Written(None))?,
            Ask::Put(value) => Reply::Written(Some(kv.put(key, text(value)).await?.version)),
            Ask::Swap(expected, value) => match kv.compare_and_swap(key, expected, text(value)).await {
                Ok(done) => Reply::Written(Some(done.version)),
                Err(error) => Reply::Conflict(error.into_conflict()?.version()),
            },
            Ask::Delete => Reply::Written(Some(kv.delete(key).await?.version)),
            Ask::Get => Reply::Found(kv.get(key).await?.value().map(|value| (None, number(value)))),
            Ask::Look => {
                let read = kv.get(key).await?;
                Reply::Found(read.value().map(|value| (Some(read.version()), number(value))))
            }
            Ask::Add => counted(kv.increment(key, 1).await?.result),
            Ask::Count => match kv.get(key).await?.value() {
                None => Reply::Counted(0),
                Some(value) => match str::from_utf8(value).ok().and_then(|text| text.parse().ok()) {
                    Some(count) => Reply::Counted(count),
                    None => Reply::Odd(format!("{key} is no counter: {value:?}")),
                },
            },
        })
    }
}

impl Door for Library {
    const PUTS: bool = true;

    async fn ask(&mut self, key: &str, ask: Ask) -> Reply {
        match tokio::time::timeout(ANSWER_TIMEOUT, self.done(key, ask)).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) if error.is_not_applied() => Reply::Refused(error.to_string()),
            Ok(Err(_)) | Err(_) => Reply::Unknown,
        }
    }
}

fn counted(count: i64) -> Reply {
    u64::try_from(count).map_or_else(|_| Reply::Odd(format!("counted {count}")), Reply::Counted)
}
