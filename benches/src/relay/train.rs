//! Datagrams of equal length that travel together, as the system receives and sends them.

use quinn::udp::EcnCodepoint;

/// Maximum number of datagrams, and of bytes, that the system sends at once.
const MAX_DATAGRAMS: usize = 64;
const MAX_BYTES: usize = 65_000;

/// One or several datagrams of equal length. The last one may be shorter.
#[derive(Debug, Clone)]
pub struct Train {
    bytes: Vec<u8>,
    stride: usize,
    /// The congestion mark of all datagrams.
    pub ecn: Option<EcnCodepoint>,
}

impl Train {
    /// A train whose datagrams have `stride` bytes.
    pub fn new(bytes: Vec<u8>, stride: usize, ecn: Option<EcnCodepoint>) -> Self {
        let stride = if stride == 0 { bytes.len().max(1) } else { stride };
        Self { bytes, stride, ecn }
    }

    /// The bytes of all datagrams.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The length of each datagram except the last.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The number of datagrams. An empty train is one empty datagram.
    pub fn datagrams(&self) -> usize {
        self.bytes.len().div_ceil(self.stride).max(1)
    }

    /// Appends another train, if the system can send both together.
    ///
    /// # Errors
    /// Returns the other train, if it can't.
    pub fn append(&mut self, other: Self) -> Result<(), Self> {
        let (own, others) = (self.bytes.len(), other.bytes.len());
        let is_whole = own > 0 && own % self.stride == 0;
        let is_alike = match other.datagrams() {
            1 => (1..=self.stride).contains(&others),
            _ => other.stride == self.stride,
        };
        let fits = self.datagrams() + other.datagrams() <= MAX_DATAGRAMS && own + others <= MAX_BYTES;
        if !is_whole || !is_alike || !fits || self.ecn != other.ecn {
            return Err(other);
        }
        self.bytes.extend_from_slice(&other.bytes);
        Ok(())
    }

    /// Removes the datagrams for which `keep`, which is called with the length of each, returns false. The rest is
    /// still a train of equal lengths. `None`: no datagram is left.
    pub fn retain(mut self, mut keep: impl FnMut(usize) -> bool) -> Option<Self> {
        let lengths = || self.bytes.chunks(self.stride).map(<[u8]>::len);
        let kept: Vec<_> = if self.bytes.is_empty() { vec![keep(0)] } else { lengths().map(&mut keep).collect() };
        if kept.iter().all(|kept| *kept) {
            return Some(self);
        }
        if !kept.contains(&true) {
            return None;
        }
        let pairs = self.bytes.chunks(self.stride).zip(&kept);
        self.bytes = pairs.filter(|(_, kept)| **kept).flat_map(|(datagram, _)| datagram.iter().copied()).collect();
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trains_are_joined_while_lengths_stay_equal() {
        let train = |len: usize, stride| Train::new(vec![7; len], stride, None);
        let mut all = train(20, 10);
        all.append(train(10, 10)).unwrap();
        all.append(train(25, 10)).unwrap();
        assert_eq!((all.bytes().len(), all.datagrams()), (55, 6));
        assert!(all.append(train(10, 10)).is_err(), "the last one is shorter already");
        let mut all = train(10, 10);
        for other in [train(11, 11), train(18, 9), train(0, 0), train(640, 10)] {
            assert!(all.append(other).is_err());
        }
        all.append(train(4, 4)).unwrap();
        assert_eq!((all.stride(), all.datagrams()), (10, 2));
        let marked = Train::new(vec![7; 10], 10, Some(EcnCodepoint::Ce));
        assert!(train(10, 10).append(marked).is_err());
    }

    #[test]
    fn single_datagrams_can_be_taken_out() {
        let train = Train::new((0..10).collect(), 4, None);
        assert_eq!(train.datagrams(), 3);
        let mut lengths = Vec::new();
        let left = train.clone().retain(|len| {
            lengths.push(len);
            lengths.len() != 2
        });
        assert_eq!(lengths, [4, 4, 2]);
        let left = left.unwrap();
        assert_eq!((left.bytes(), left.datagrams()), (&[0, 1, 2, 3, 8, 9][..], 2));
        assert!(train.retain(|_| false).is_none());
        assert_eq!(Train::new(Vec::new(), 0, None).datagrams(), 1);
    }
}
