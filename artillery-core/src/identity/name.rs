//! Node names, and their encoding in certificates.

use std::fmt::Write;

use super::MAX_NAME;
use crate::error::IdentityError;

/// Suffix of DNS names in certificates derived from a secret. Names under `internal` belong to no internet host.
const SUFFIX: &str = ".node.artillery.internal";

/// Hexadecimal digits per DNS label, an even number. With its marker, a label has at most 63 characters.
const HEX_PER_LABEL: usize = 60;

pub(super) fn check(name: &str) -> Result<(), IdentityError> {
    let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'.' | b'-' | b'_');
    if (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(allowed) {
        Ok(())
    } else {
        Err(IdentityError::BadName { name: name.chars().take(2 * MAX_NAME).collect() })
    }
}

/// Encodes `name` as a DNS name, in hexadecimal, since not every node name is a DNS name: `7`, `a..b`, `-x`.
pub(super) fn to_dns(name: &str) -> String {
    let hex = name.bytes().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    let mut dns = String::new();
    let mut rest = hex.as_str();
    while !rest.is_empty() {
        let (label, more) = rest.split_at(rest.len().min(HEX_PER_LABEL));
        dns.push_str(if dns.is_empty() { "n" } else { ".n" });
        dns.push_str(label);
        rest = more;
    }
    dns + SUFFIX
}

/// Decodes the node name from a certificate's DNS name, which is either encoded by [`to_dns`] or plain.
pub(super) fn from_dns(dns: &str) -> Result<String, IdentityError> {
    let dns = dns.to_ascii_lowercase();
    let name = match dns.strip_suffix(SUFFIX) {
        Some(labels) => decode(labels).ok_or(IdentityError::BadName { name: dns })?,
        None => dns,
    };
    check(&name)?;
    Ok(name)
}

fn decode(labels: &str) -> Option<String> {
    let mut bytes = Vec::new();
    for label in labels.split('.') {
        let hex = label.strip_prefix('n')?.as_bytes();
        for pair in hex.chunks(2) {
            let [high, low] = *pair else { return None };
            let digit = |c: u8| char::from(c).to_digit(16);
            bytes.push((digit(high)? * 16 + digit(low)?) as u8);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bad_names_are_refused() {
        for name in ["", "A", "a b", "ä", "a/b", "*.x", &"a".repeat(64)] {
            assert!(matches!(check(name), Err(IdentityError::BadName { .. })), "{name}");
        }
        for name in ["a", "7", "db-1.example.com", "_", &"a".repeat(63)] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn plain_dns_names_stand_for_themselves() {
        assert_eq!(from_dns("DB1.example.com").unwrap(), "db1.example.com");
        assert!(from_dns("*.example.com").is_err());
    }

    #[test]
    fn broken_encodings_are_refused() {
        for dns in ["n6.node.artillery.internal", "nzz.node.artillery.internal", "61.node.artillery.internal"] {
            assert!(from_dns(dns).is_err(), "{dns}");
        }
        // "A" is not a valid node name in either form.
        assert!(from_dns("n41.node.artillery.internal").is_err());
    }

    proptest! {
        #[test]
        fn every_name_survives(name in "[a-z0-9._-]{1,63}") {
            let dns = to_dns(&name);
            prop_assert!(dns.len() <= 253 && dns.split('.').all(|label| (1..=63).contains(&label.len())));
            prop_assert_eq!(from_dns(&dns).unwrap(), name);
        }

        #[test]
        fn anything_else_never_panics(dns: String) {
            let _ = from_dns(&dns);
            let _ = from_dns(&format!("{dns}{SUFFIX}"));
        }
    }
}
