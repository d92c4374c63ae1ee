//! Answers that a client hasn't taken yet while its next commands are read: many clients write a whole pipeline before
//! they read. All connections together keep no more than there is room for.

use std::{collections::VecDeque, io, sync::Arc};

use bytes::{Buf, Bytes, BytesMut};

use super::room::{Room, Taken};

/// Up to this length answers are copied, since their buffer may be twice as large as they are.
const COPIED: usize = 256 << 10;
/// Pieces that are written at a time: other connections have their turn then.
const TURN: usize = 16;

/// The answers of one connection that wait, each piece with its room.
#[derive(Debug)]
pub(super) struct Backlog {
    shared: Arc<Room>,
    pieces: VecDeque<(Bytes, Taken)>,
}

impl Backlog {
    pub(super) fn new(shared: Arc<Room>) -> Self {
        Self { shared, pieces: VecDeque::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.pieces = VecDeque::new();
    }

    /// Takes all of `bytes` if there is room for them now. Returns whether there is.
    pub(super) fn take(&mut self, bytes: &mut BytesMut) -> bool {
        let Some(room) = self.shared.try_take_whole(bytes.len().div_ceil(1 << 10)) else { return false };
        let piece = if bytes.len() <= COPIED {
            let piece = Bytes::copy_from_slice(bytes);
            bytes.clear();
            piece
        } else {
            std::mem::take(bytes).freeze()
        };
        self.pieces.push_back((piece, room));
        true
    }

    /// Writes what `write` takes at once, up to a bound. Returns how many bytes that were.
    pub(super) fn write(&mut self, mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<usize> {
        let mut all = 0;
        for _ in 0..TURN {
            let Some((piece, _)) = self.pieces.front_mut() else { break };
            let written = write(piece)?;
            piece.advance(written);
            all += written;
            if piece.is_empty() {
                self.pieces.pop_front();
            } else if written == 0 {
                break;
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(len: usize) -> BytesMut {
        BytesMut::from(&vec![b'x'; len][..])
    }

    #[test]
    fn answers_wait_while_there_is_room_and_give_it_back() {
        let room = Arc::new(Room::new(8 << 10));
        let (mut one, mut other) = (Backlog::new(room.clone()), Backlog::new(room.clone()));
        let mut more = answers(5000);
        assert!(one.take(&mut more) && more.is_empty());
        // Five KiB are taken.
        more = answers(4000);
        assert!(!other.take(&mut more) && more.len() == 4000);
        more.truncate(3072);
        assert!(other.take(&mut more));
        let written = one.write(|piece| Ok(piece.len().min(2000))).unwrap();
        assert_eq!((written, one.is_empty()), (5000, true));
        assert!(one.take(&mut answers(5120)));
        one.clear();
        assert!(other.take(&mut answers(5120)));
    }

    #[test]
    fn answers_larger_than_all_room_do_not_wait_here() {
        let mut backlog = Backlog::new(Arc::new(Room::new(8 << 10)));
        assert!(!backlog.take(&mut answers((8 << 10) + 1)));
        assert!(backlog.take(&mut answers(8 << 10)));
    }

    #[test]
    fn the_order_of_answers_is_kept() {
        let mut backlog = Backlog::new(Arc::new(Room::new(1 << 20)));
        let (mut taken, mut turns) = (Vec::<u8>::new(), 0);
        let all: Vec<u8> = (0..200_u8).flat_map(|n| vec![n; 1000]).collect();
        for part in all.chunks(3000) {
            assert!(backlog.take(&mut BytesMut::from(part)));
        }
        while !backlog.is_empty() {
            let write = |piece: &[u8]| {
                let len = piece.len().min(777);
                taken.extend(&piece[..len]);
                Ok(len)
            };
            backlog.write(write).unwrap();
            turns += 1;
        }
        assert_eq!(taken, all);
        assert!(turns > 1);
        backlog.take(&mut answers(1));
        assert!(backlog.write(|_| Err(io::ErrorKind::WouldBlock.into())).is_err() && !backlog.is_empty());
    }
}
