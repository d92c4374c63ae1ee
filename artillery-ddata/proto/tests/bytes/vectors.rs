//! The vectors in `wire-1/` and `wire-2/`, by the version of the protocol that added them: each file holds one frame in hexadecimal.

use std::{fmt::Debug, fs, path::PathBuf};

use artillery_core::{Frame, internal::frame::FrameDecoder};

/// The directory of the vectors with names like this one.
fn directory(name: &str) -> PathBuf {
    let version =
        if name.starts_with("digest-") || name.starts_with("copy-") { "tests/wire-2" } else { "tests/wire-1" };
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(version)
}

fn hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(32).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n");
    lines.collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).expect("hex") as u8).collect();
    assert!(digits.len().is_multiple_of(2), "half a byte");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Checks that the message encodes to the frame in the vector, and that the vector decodes to the message.
pub(crate) fn check<M: PartialEq + Debug, E: Debug>(
    name: &str,
    message: &M,
    sent: &Frame,
    decode: fn(&Frame) -> Result<M, E>,
) {
    let sent = sent.to_bytes();
    let path = directory(name).join(name).with_extension("hex");
    let text = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; it would hold:\n{}", path.display(), hex(&sent)));
    assert_eq!(hex(&sent), text, "{name} no longer encodes to the bytes of its vector");

    let mut decoder = FrameDecoder::new(1 << 20);
    decoder.push(&unhex(&text));
    let frame = decoder.next_frame().expect("a frame").expect("a whole frame");
    assert_eq!(decoder.finish(), Ok(()), "one frame");
    assert_eq!(&decode(&frame).expect("a message"), message, "{name} no longer decodes to the message of its vector");
}

pub(crate) fn check_listed(prefixes: &[&str], listed: &[&str]) {
    for entry in fs::read_dir(directory(prefixes[0])).expect("the directory of the vectors") {
        let path = entry.expect("a directory entry").path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let ours = prefixes.iter().any(|prefix| name.starts_with(prefix));
        assert!(!ours || listed.contains(&name), "{} is not tested", path.display());
    }
}
