//! `ctl put`.

use artillery_ddata::Kv;

use super::output::{Output, done_with};
use crate::exit::{self, Failure};

pub(super) async fn run(kv: &Kv, key: &str, value: &str, output: Output) -> Result<u8, Failure> {
    let done = kv.put(key, value.to_owned()).await?;
    if output.json {
        output.object(&done_with(key, &done));
    }
    Ok(exit::DONE)
}
