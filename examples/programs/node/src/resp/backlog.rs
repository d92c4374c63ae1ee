//! Answers that wait for their client while its next commands are read: many clients write a whole pipeline before they
//! read. The total size is limited, and so is the share of one connection.

use std::{collections::VecDeque, io, sync::Arc};

use bytes::{Buf, Bytes, BytesMut};

use super::room::{Room, Taken};

/// Maximum number of pieces written at a time, so that other connections can run in between.
const TURN: usize = 16;

/// The waiting answers of one connection, each piece with its permits.
#[derive(Debug)]
pub(super) struct Backlog {
    shared: Arc<Room>,
    pieces: VecDeque<(Bytes, Taken)>,
    /// The KiB that the pieces hold.
    held: usize,
}

/// The KiB that one client may hold: the rest is left to others.
fn share(room: &Room) -> usize {
    (room.kib() / 4 * 3).max(1)
}

impl Backlog {
    pub(super) fn new(shared: Arc<Room>) -> Self {
        Self { shared, pieces: VecDeque::new(), held: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.pieces = VecDeque::new();
        self.held = 0;
    }

    /// Moves all of `bytes` into the backlog if it has capacity now. Returns whether it did.
    pub(super) fn take(&mut self, bytes: &mut BytesMut) -> bool {
        let kib = bytes.len().div_ceil(1 << 10);
        if self.held + kib > share(&self.shared) {
            return false;
        }
        let Some(room) = self.shared.try_take(kib) else { return false };
        // A copy has no spare capacity, which no permit would cover. The buffer of the gathered answers is freed.
        let piece = Bytes::copy_from_slice(bytes);
        *bytes = BytesMut::new();
        self.held += kib;
        self.pieces.push_back((piece, room));
        true
    }

    /// Writes as many pieces as `write` accepts at once, up to [`TURN`]. Returns the number of bytes written.
    pub(super) fn write(&mut self, mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<usize> {
        let mut all = 0;
        for _ in 0..TURN {
            let Some((piece, room)) = self.pieces.front_mut() else { break };
            let written = write(piece)?;
            piece.advance(written);
            all += written;
            if piece.is_empty() {
                self.held -= room.num_permits();
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
        assert_eq!(room.taken_bytes(), 5 << 10);
        more = answers(4000);
        assert!(!other.take(&mut more) && more.len() == 4000);
        more.truncate(3072);
        assert!(other.take(&mut more));
        let written = one.write(|piece| Ok(piece.len().min(2000))).unwrap();
        assert_eq!((written, one.is_empty()), (5000, true));
        assert!(one.take(&mut answers(5120)));
        one.clear();
        assert!(other.take(&mut answers(3072)));
        other.clear();
        assert_eq!(room.taken_bytes(), 0);
    }

    #[test]
    fn one_client_does_not_hold_all_of_the_room() {
        let room = Arc::new(Room::new(8 << 10));
        let (mut greedy, mut other) = (Backlog::new(room.clone()), Backlog::new(room));
        assert!(!greedy.take(&mut answers((6 << 10) + 1)));
        while greedy.take(&mut answers(1 << 10)) {}
        assert_eq!(greedy.held, 6);
        assert!(other.take(&mut answers(2 << 10)));
        greedy.write(|piece| Ok(piece.len())).unwrap();
        assert_eq!(greedy.held, 0);
    }

    /// Spare capacity is memory too, and no permit covers it.
    #[test]
    fn answers_wait_without_spare_capacity() {
        let mut backlog = Backlog::new(Arc::new(Room::new(1 << 20)));
        let mut bytes = BytesMut::with_capacity(700 << 10);
        bytes.extend_from_slice(&answers(300 << 10));
        assert!(backlog.take(&mut bytes));
        assert_eq!(bytes.capacity(), 0);
        let piece = backlog.pieces.pop_front().unwrap().0.try_into_mut().unwrap();
        assert_eq!(piece.capacity(), 300 << 10);
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
