//! `ctl digest`: compares the data of all members.

use artillery_ddata::{
    Client, Error, Kv, Refusal,
    kv::{HashKey, MemberDigest, Sums},
};
use artillery_programs::exit::{self, Failure};
use serde_json::json;

use super::output::{Output, plain_table};

/// A digest fails while many bytes are written. It is repeated this many times at most.
const ATTEMPTS: usize = 5;

/// Prints the digest of each member. Exit code 1 if members differ or one gave none.
pub(super) async fn run(
    client: &Client,
    kv: &Kv,
    prefix: &str,
    key: Option<HashKey>,
    output: Output,
) -> Result<u8, Failure> {
    let mut attempt = 1;
    let digests = loop {
        let digest = kv.digest(prefix);
        let digest = key.map_or(digest.clone(), |key| digest.hash_key(key));
        let key = digest.key();
        let digests = digest.of_members().await?;
        if attempt == ATTEMPTS || !digests.iter().any(is_overtaken) {
            break Digests { key, of_members: digests };
        }
        eprintln!("too many bytes were written during attempt {attempt} of {ATTEMPTS}");
        attempt += 1;
    };
    digests.print(client, output);
    digests.verdict(output)
}

fn is_overtaken(digest: &MemberDigest) -> bool {
    matches!(digest.sums, Err(Error::Refused { reason: Refusal::SnapshotGone, .. }))
}

struct Digests {
    key: HashKey,
    of_members: Vec<MemberDigest>,
}

impl Digests {
    fn print(&self, client: &Client, output: Output) {
        let routing = client.routing();
        let name = |digest: &MemberDigest| {
            routing.nodes.get(&digest.node).map_or_else(|| digest.node.to_string(), |node| node.name.clone())
        };
        if output.json {
            for digest in &self.of_members {
                let mut object = json!({
                    "chain": digest.chain.0,
                    "node": name(digest),
                    "role": digest.place.to_string(),
                    "hash_key": self.key.to_string(),
                    "sequence": digest.as_of.map(|at| at.0),
                });
                match &digest.sums {
                    Ok(Sums { records, bytes, contents, versions }) => {
                        object["records"] = (*records).into();
                        object["bytes"] = (*bytes).into();
                        object["contents"] = format!("{contents:032x}").into();
                        object["versions"] = format!("{versions:032x}").into();
                    }
                    Err(error) => object["error"] = error.to_string().into(),
                }
                output.object(&object);
            }
            return;
        }
        let mut table = plain_table(&["chain", "node", "role", "sequence", "records", "bytes", "contents", "versions"]);
        for digest in &self.of_members {
            let at = digest.as_of.map_or_else(|| "-".to_owned(), |at| at.0.to_string());
            let mut row = vec![digest.chain.0.to_string(), name(digest), digest.place.to_string(), at];
            match &digest.sums {
                Ok(Sums { records, bytes, contents, versions }) => row.extend([
                    records.to_string(),
                    bytes.to_string(),
                    format!("{contents:032x}"),
                    format!("{versions:032x}"),
                ]),
                Err(error) => row.push(error.to_string()),
            }
            table.add_row(row);
        }
        output.bytes(table.trim_fmt().as_bytes());
        output.bytes(format!("hash key {}", self.key).as_bytes());
    }

    /// Whether all members of each chain have the same data.
    fn verdict(&self, output: Output) -> Result<u8, Failure> {
        let fails = |problem: &str| {
            if output.json {
                eprintln!("{problem}");
                Ok(exit::FAILED)
            } else {
                Err(Failure::failed(problem))
            }
        };
        let sums = |digest: &MemberDigest| digest.sums.as_ref().ok().copied();
        let differs = self.of_members.chunk_by(|a, b| a.chain == b.chain).any(|members| {
            let mut found = members.iter().filter_map(sums);
            let first = found.next();
            found.any(|other| Some(other) != first)
        });
        if differs {
            return fails("members hold different data");
        }
        match self.of_members.iter().any(|digest| digest.sums.is_err()) {
            true => fails("a member gave no digest"),
            false => Ok(exit::DONE),
        }
    }
}
