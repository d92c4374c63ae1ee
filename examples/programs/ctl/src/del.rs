//! `ctl del`.

use artillery_ddata::Kv;
use artillery_programs::exit::{self, Failure};

use super::output::{Output, done_with};

pub(super) async fn run(kv: &Kv, key: &str, output: Output) -> Result<u8, Failure> {
    let done = kv.delete(key).await?;
    if output.json {
        output.object(&done_with(key, &done));
    }
    Ok(exit::DONE)
}
