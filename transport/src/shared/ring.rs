//! A ring of bytes from one rank to another, without locks.
//!
//! The sender writes bytes and then advances `written`; the receiver reads bytes and then advances
//! `read`. Both numbers count bytes since the start and never wrap; byte n is at n modulo the
//! capacity. Bytes between `read` and `written` belong to the receiver, the others to the sender.
//! The release store of a position after the bytes, and the acquire load of it before them, order
//! the accesses. This is the queue of Lamport (*Proving the correctness of multiprocess programs*,
//! 1977) with one producer and one consumer.

use super::segment::Segment;
use crate::error::{Error, Kind, Result};
use std::sync::atomic::Ordering;

/// The end of a ring at which one rank writes.
pub(super) struct Writer<'a> {
    segment: &'a Segment,
    from: usize,
    to: usize,
}

/// The end of a ring at which one rank reads.
pub(super) struct Reader<'a> {
    segment: &'a Segment,
    from: usize,
    to: usize,
}

impl<'a> Writer<'a> {
    /// The writing end.
    ///
    /// # Safety
    ///
    /// The caller acts for rank `from`, and no other writing end of this ring is used meanwhile.
    pub unsafe fn new(segment: &'a Segment, from: usize, to: usize) -> Writer<'a> {
        Writer { segment, from, to }
    }

    /// Free bytes.
    pub fn free(&self) -> Result<usize> {
        let (cell, _) = self.segment.ring(self.from, self.to);
        let written = cell.written.0.load(Ordering::Relaxed);
        let read = cell.read.0.load(Ordering::Acquire);
        let used = used(self.segment, self.from, self.to, written, read)?;
        Ok(self.segment.capacity() - used)
    }

    /// Writes as many of the bytes as there is room for, and returns their number.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let count = self.free()?.min(bytes.len());
        let (cell, base) = self.segment.ring(self.from, self.to);
        let written = cell.written.0.load(Ordering::Relaxed);
        let start = written as usize & (self.segment.capacity() - 1);
        let first = count.min(self.segment.capacity() - start);
        // SAFETY: `start + first` and `count - first` are at most the capacity, so the bytes are
        // in the ring. They are free, hence the receiver does not access them, and this is the
        // only writing end.
        unsafe {
            base.add(start).copy_from_nonoverlapping(from(&bytes[..first]), first);
            base.copy_from_nonoverlapping(from(&bytes[first..count]), count - first);
        }
        cell.written.0.store(written + count as u64, Ordering::Release);
        Ok(count)
    }
}

/// The address of bytes, as copies take it.
fn from(bytes: &[u8]) -> std::ptr::NonNull<u8> {
    std::ptr::NonNull::from(bytes).cast()
}

impl<'a> Reader<'a> {
    /// The reading end.
    ///
    /// # Safety
    ///
    /// The caller acts for rank `to`, and no other reading end of this ring is used meanwhile.
    pub unsafe fn new(segment: &'a Segment, from: usize, to: usize) -> Reader<'a> {
        Reader { segment, from, to }
    }

    /// Bytes that can be read.
    pub fn available(&self) -> Result<usize> {
        let (cell, _) = self.segment.ring(self.from, self.to);
        let read = cell.read.0.load(Ordering::Relaxed);
        let written = cell.written.0.load(Ordering::Acquire);
        used(self.segment, self.from, self.to, written, read)
    }

    /// Reads as many bytes as are available and fit, and returns their number.
    pub fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        let count = self.available()?.min(bytes.len());
        let (cell, base) = self.segment.ring(self.from, self.to);
        let read = cell.read.0.load(Ordering::Relaxed);
        let start = read as usize & (self.segment.capacity() - 1);
        let first = count.min(self.segment.capacity() - start);
        // SAFETY: as for `write`: the bytes are in the ring and in the buffer. They were written,
        // so the sender does not access them before `read` advances, and this is the only reading
        // end.
        unsafe {
            let into = std::ptr::NonNull::from(&mut *bytes).cast::<u8>();
            base.add(start).copy_to_nonoverlapping(into, first);
            base.copy_to_nonoverlapping(into.add(first), count - first);
        }
        cell.read.0.store(read + count as u64, Ordering::Release);
        Ok(count)
    }
}

/// Bytes between two positions. Error: no writer of this crate makes such positions.
fn used(segment: &Segment, from: usize, to: usize, written: u64, read: u64) -> Result<usize> {
    match written.checked_sub(read) {
        Some(used) if used <= segment.capacity() as u64 => Ok(used as usize),
        _ => Err(Error::new(
            Kind::System,
            format!("the shared memory of messages from rank {from} to rank {to} is corrupt"),
        )
        .help("another program, or a memory fault of one of the ranks, has written to it")
        .about([from, to])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::thread;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn bytes_arrive_in_order_whatever_the_pieces(
            writes in prop::collection::vec(1..40_000usize, 1..12),
            reads in prop::collection::vec(1..40_000usize, 1..12),
        ) {
            // 256 ranks: the smallest ring, so that it wraps.
            let segment = Segment::create(256, [0, 0]).expect("memory");
            let total: usize = 3 * writes.iter().sum::<usize>();
            let byte = |n: usize| (n * 7 + n / 251) as u8;
            thread::scope(|scope| {
                scope.spawn(|| {
                    // SAFETY: the only writer of this ring.
                    let mut end = unsafe { Writer::new(&segment, 3, 5) };
                    let (mut at, mut sizes) = (0, writes.iter().cycle());
                    while at < total {
                        let size = (*sizes.next().expect("a cycle")).min(total - at);
                        let bytes: Vec<u8> = (at..at + size).map(byte).collect();
                        let count = end.write(&bytes).expect("sound");
                        at += count;
                        if count == 0 {
                            thread::yield_now();
                        }
                    }
                });
                // SAFETY: the only reader of this ring.
                let mut end = unsafe { Reader::new(&segment, 3, 5) };
                let (mut at, mut sizes) = (0, reads.iter().cycle());
                while at < total {
                    let mut bytes = vec![0; *sizes.next().expect("a cycle")];
                    let count = end.read(&mut bytes).expect("sound");
                    assert!(bytes[..count].iter().enumerate().all(|(i, b)| *b == byte(at + i)));
                    at += count;
                    if count == 0 {
                        thread::yield_now();
                    }
                }
                assert_eq!(end.available().expect("sound"), 0);
            });
        }
    }

    #[test]
    fn impossible_positions_are_an_error() {
        let segment = Segment::create(2, [0, 0]).expect("memory");
        // SAFETY: there is one thread.
        let (writer, mut reader) =
            unsafe { (Writer::new(&segment, 0, 1), Reader::new(&segment, 0, 1)) };
        segment.ring(0, 1).0.read.0.store(1, Ordering::Release);
        assert!(writer.free().is_err());
        segment.ring(0, 1).0.written.0.store(2 + segment.capacity() as u64, Ordering::Release);
        let error = reader.read(&mut [0; 9]).expect_err("too many bytes");
        assert!(error.to_string().contains("from rank 0 to rank 1 is corrupt"), "{error}");
    }
}
