//! The bytes of a simulated file: as programs read them, and as a power cut may leave them.

use std::collections::BTreeMap;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// The unit of atomic writes to the disk. A sector is torn only if the settings allow it.
pub(super) const SECTOR: usize = 512;

/// The unit of the kernel's cache.
const PAGE: usize = 4096;

/// The maximum number of contents of one sector that are remembered between two syncs. The oldest ones are dropped
/// first.
const MAX_CONTENTS: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutSettings {
    /// Whether a sector that is written during the power cut may mix the beginning of one content with the end of
    /// another, or become garbage, even if both contents are equal.
    pub tears_sectors: bool,
    /// Whether unwritten sectors beyond the old end hold garbage instead of zeros.
    pub leaves_garbage: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct FileContent {
    /// The content that programs read.
    cached: Vec<u8>,
    /// The content that is certainly durable.
    durable: Vec<u8>,
    /// The contents of each changed sector since the last sync, newest last. Any of them may be on the disk.
    unsynced: BTreeMap<usize, Vec<Vec<u8>>>,
    /// The lengths that the file got since the last sync.
    lengths: Vec<usize>,
}

impl FileContent {
    pub(super) fn durable(bytes: Vec<u8>) -> Self {
        Self { cached: bytes.clone(), durable: bytes, ..Self::default() }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.cached
    }

    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        let from = at.min(self.cached.len());
        if self.cached.len() < end {
            // Append in one piece: `resize` writes byte by byte in builds for tests.
            self.cached.append(&mut vec![0; end - self.cached.len()]);
            self.lengths.push(end);
        }
        self.cached[at..end].copy_from_slice(bytes);
        for sector in from / SECTOR..end.div_ceil(SECTOR) {
            let contents = self.unsynced.entry(sector).or_default();
            if contents.len() == MAX_CONTENTS {
                contents.remove(0);
            }
            contents.push(piece(&self.cached, sector).to_vec());
        }
    }

    pub(super) fn sync(&mut self) {
        self.durable.resize(self.durable.len().max(self.lengths.last().copied().unwrap_or(0)), 0);
        for &sector in self.unsynced.keys() {
            put(&mut self.durable, sector, piece(&self.cached, sector));
        }
        self.forget();
    }

    /// The sync fails: a part of the written bytes may be durable, and the rest never will be. Programs still read all
    /// of them.
    pub(super) fn fail_sync(&mut self, rng: &mut ChaCha8Rng, settings: CutSettings) {
        let cached = self.cached.clone();
        if rng.random() {
            self.cut(rng, settings);
        }
        self.cached = cached;
        self.forget();
    }

    /// The kernel discards some pages that it considers written.
    pub(super) fn forget_pages(&mut self, rng: &mut ChaCha8Rng) {
        let sectors = PAGE / SECTOR;
        for page in 0..self.cached.len().div_ceil(PAGE) {
            let is_dirty = self.unsynced.range(page * sectors..(page + 1) * sectors).next().is_some();
            if !is_dirty && rng.random() {
                let end = self.cached.len().min((page + 1) * PAGE);
                for at in page * PAGE..end {
                    self.cached[at] = self.durable.get(at).copied().unwrap_or(0);
                }
            }
        }
    }

    fn forget(&mut self) {
        self.unsynced.clear();
        self.lengths.clear();
    }

    /// Applies a power cut. Returns whether the content changed.
    pub(super) fn cut(&mut self, rng: &mut ChaCha8Rng, settings: CutSettings) -> bool {
        let mut left = std::mem::take(&mut self.durable);
        let old_end = left.len();
        let lengths = std::mem::take(&mut self.lengths);
        let new_end = match rng.random_range(0..=lengths.len()) {
            0 => old_end,
            at => lengths[at - 1].max(old_end),
        };
        left.resize(new_end, 0);
        if settings.leaves_garbage {
            left[old_end..].iter_mut().for_each(|byte| *byte = rng.random());
        }
        for (sector, contents) in std::mem::take(&mut self.unsynced) {
            let Some(at) = rng.random_range(0..=contents.len()).checked_sub(1) else { continue };
            let mut arrived = contents[at].clone();
            match if settings.tears_sectors { rng.random_range(0..8) } else { 8 } {
                0 => rng.fill(&mut arrived[..]),
                1 => {
                    let old = if at == 0 { piece(&left, sector) } else { &contents[at - 1][..] };
                    let end = old.len().min(arrived.len());
                    let torn_at = rng.random_range(0..=end);
                    arrived[torn_at..end].copy_from_slice(&old[torn_at..end]);
                }
                _ => {}
            }
            put(&mut left, sector, &arrived);
        }
        let is_different = left != self.cached;
        *self = Self::durable(left);
        is_different
    }

    pub(super) fn flip(&mut self, bit: usize) {
        for bytes in [&mut self.cached, &mut self.durable] {
            if let Some(byte) = bytes.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }
}

fn piece(bytes: &[u8], sector: usize) -> &[u8] {
    let from = (sector * SECTOR).min(bytes.len());
    &bytes[from..(from + SECTOR).min(bytes.len())]
}

/// Overwrites the bytes of a sector, up to the end of the file.
fn put(bytes: &mut [u8], sector: usize, content: &[u8]) {
    let from = (sector * SECTOR).min(bytes.len());
    let len = content.len().min(bytes.len() - from);
    bytes[from..from + len].copy_from_slice(&content[..len]);
}
