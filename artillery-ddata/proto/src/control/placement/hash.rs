//! XXH64 with seed 0, as published with xxHash: fast on short keys, and available in many languages.

const P1: u64 = 0x9E37_79B1_85EB_CA87;
const P2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const P3: u64 = 0x1656_67B1_9E37_79F9;
const P4: u64 = 0x85EB_CA77_C2B2_AE63;
const P5: u64 = 0x27D4_EB2F_1656_67C5;

pub(super) fn xxh64(bytes: &[u8]) -> u64 {
    let stripes = bytes.chunks_exact(32);
    let tail = stripes.remainder();
    let hash = if bytes.len() >= 32 { long(stripes) } else { P5 };
    avalanche(finish(hash.wrapping_add(bytes.len() as u64), tail))
}

fn long(stripes: std::slice::ChunksExact<'_, u8>) -> u64 {
    let mut lanes = [P1.wrapping_add(P2), P2, 0, 0u64.wrapping_sub(P1)];
    for stripe in stripes {
        for (lane, word) in lanes.iter_mut().zip(stripe.chunks_exact(8)) {
            *lane = round(*lane, word64(word));
        }
    }
    let mixed = [1, 7, 12, 18].iter().zip(lanes).fold(0u64, |sum, (&by, lane)| sum.wrapping_add(lane.rotate_left(by)));
    lanes.iter().fold(mixed, |hash, &lane| (hash ^ round(0, lane)).wrapping_mul(P1).wrapping_add(P4))
}

fn finish(mut hash: u64, tail: &[u8]) -> u64 {
    let words = tail.chunks_exact(8);
    let mut rest = words.remainder();
    for word in words {
        hash = (hash ^ round(0, word64(word))).rotate_left(27).wrapping_mul(P1).wrapping_add(P4);
    }
    if let Some((word, left)) = rest.split_first_chunk::<4>() {
        let word = u64::from(u32::from_le_bytes(*word));
        hash = (hash ^ word.wrapping_mul(P1)).rotate_left(23).wrapping_mul(P2).wrapping_add(P3);
        rest = left;
    }
    for &byte in rest {
        hash = (hash ^ u64::from(byte).wrapping_mul(P5)).rotate_left(11).wrapping_mul(P1);
    }
    hash
}

fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(P2)).rotate_left(31).wrapping_mul(P1)
}

fn avalanche(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 33).wrapping_mul(P2);
    hash = (hash ^ hash >> 29).wrapping_mul(P3);
    hash ^ hash >> 32
}

fn word64(bytes: &[u8]) -> u64 {
    bytes.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::xxh64;

    #[test]
    fn published_values() {
        assert_eq!(xxh64(b""), 0xEF46_DB37_51D8_E999);
        assert_eq!(xxh64(b"a"), 0xD24E_C4F1_A98C_6E5B);
        assert_eq!(xxh64(b"abc"), 0x44BC_2CF5_AD77_0999);
        assert_eq!(xxh64(b"Nobody inspects the spammish repetition"), 0xFBCE_A83C_8A37_8BF1);
    }

    #[test]
    fn every_length_differs() {
        let zeros = [0; 100];
        let hashes: std::collections::BTreeSet<_> = (0..=100).map(|len| xxh64(&zeros[..len])).collect();
        assert_eq!(hashes.len(), 101);
    }
}
