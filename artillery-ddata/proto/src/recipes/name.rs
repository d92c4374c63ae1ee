//! The keys of locks, elections and registries.

use bytes::Bytes;

use crate::Version;

/// The kind of a recipe, with which its keys begin.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    Lock,
    Election,
    Registry,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Election => "election",
            Self::Registry => "registry",
        }
    }
}

/// The prefix of the keys of a recipe: `lock/{NAME}/`. The braces put all keys of a name into one chain, also with
/// other keys that have `{NAME}`.
///
/// Every name has a prefix of its own: a percent sign and the braces are escaped as in URLs, and an empty name becomes
/// `%`.
pub fn prefix(kind: Kind, name: &str) -> Bytes {
    let mut escaped = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter {
            '%' => escaped.push_str("%25"),
            '{' => escaped.push_str("%7B"),
            '}' => escaped.push_str("%7D"),
            other => escaped.push(other),
        }
    }
    if escaped.is_empty() {
        escaped.push('%');
    }
    format!("{}/{{{escaped}}}/", kind.word()).into()
}

/// The version in a sequential key below `prefix`. `None`: another kind of key.
pub fn version_of(prefix: &[u8], key: &[u8]) -> Option<Version> {
    let suffix = key.strip_prefix(prefix)?;
    let text = std::str::from_utf8(suffix).ok()?;
    let (epoch, sequence) = text.split_once('.')?;
    let is_plain =
        |part: &str| part.len() == 16 && part.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    if !is_plain(epoch) || !is_plain(sequence) {
        return None;
    }
    let number = |part: &str| u64::from_str_radix(part, 16).ok();
    Some(Version::new(number(epoch)?, number(sequence)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{api::sequential_key, control::chain_of_prefix};

    #[test]
    fn every_name_has_its_own_prefix_and_one_chain() {
        let names = ["", "%", "%25", "{", "}", "{}", "a", "a/", "a/b", "{a}", "ä"];
        let mut prefixes: Vec<_> = names.iter().map(|name| prefix(Kind::Lock, name)).collect();
        assert!(prefixes.iter().all(|prefix| chain_of_prefix(prefix, 64).is_some()));
        prefixes.sort();
        prefixes.dedup();
        assert_eq!(prefixes.len(), names.len());
        for (one, other) in prefixes.iter().flat_map(|one| prefixes.iter().map(move |other| (one, other))) {
            assert!(one == other || !one.starts_with(other), "{one:?} {other:?}");
        }
        assert_eq!(prefix(Kind::Lock, "jobs"), "lock/{jobs}/");
    }

    proptest! {
        #[test]
        fn versions_are_found_in_sequential_keys_only(epoch: u64, sequence: u64, name in ".{0,8}", junk in ".{0,40}") {
            let prefix = prefix(Kind::Election, &name);
            let version = Version::new(epoch, sequence);
            prop_assert_eq!(version_of(&prefix, &sequential_key(&prefix, version)), Some(version));
            let other = [&prefix[..], junk.as_bytes()].concat();
            if let Some(version) = version_of(&prefix, &other) {
                prop_assert_eq!(&sequential_key(&prefix, version)[..], &other[..]);
            }
        }
    }
}
