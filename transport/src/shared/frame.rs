//! Frames: what rings carry.
//!
//! A frame is a header of 32 bytes, and for some kinds the bytes of a message after it. A short
//! message is one frame. A long one is announced; its bytes follow when the receiver has a place
//! for them, so that a rank that is late takes no memory for what others send it.

/// Bytes of a header.
pub(super) const HEADER: usize = 32;

/// Messages up to this length are sent at once.
pub(super) const SHORT: usize = 8 << 10;

/// The communicator and tag of a message. With the sender, they decide which receive gets it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Envelope {
    pub context: u32,
    pub tag: u32,
}

/// A header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Frame {
    /// A short message, whose bytes follow.
    Short { envelope: Envelope, len: u64 },
    /// A long message of the sender's number `send`. The receiver answers with `Clear`.
    Announce { envelope: Envelope, len: u64, send: u64 },
    /// The receiver of message `send` has a place for it, by its number `receive`.
    Clear { send: u64, receive: u64 },
    /// The bytes of a long message, which follow, for the receiver's place.
    Data { receive: u64, len: u64 },
}

impl Frame {
    /// As four words.
    pub fn to_bytes(self) -> [u8; HEADER] {
        let words = match self {
            Frame::Short { envelope, len } => [0, envelope.word(), len, 0],
            Frame::Announce { envelope, len, send } => [1, envelope.word(), len, send],
            Frame::Clear { send, receive } => [2, 0, receive, send],
            Frame::Data { receive, len } => [3, 0, len, receive],
        };
        let mut bytes = [0; HEADER];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// From four words. None if no rank writes them.
    pub fn from_bytes(bytes: [u8; HEADER]) -> Option<Frame> {
        let word = |i: usize| {
            let bytes = bytes[8 * i..8 * i + 8].try_into();
            u64::from_le_bytes(bytes.expect("a word has eight bytes"))
        };
        let (kind, envelope, third, fourth) = (word(0), Envelope::of(word(1)), word(2), word(3));
        match kind {
            0 if third <= SHORT as u64 => Some(Frame::Short { envelope, len: third }),
            1 => Some(Frame::Announce { envelope, len: third, send: fourth }),
            2 => Some(Frame::Clear { send: fourth, receive: third }),
            3 => Some(Frame::Data { receive: fourth, len: third }),
            _ => None,
        }
    }
}

impl Envelope {
    fn word(self) -> u64 {
        u64::from(self.context) << 32 | u64::from(self.tag)
    }

    fn of(word: u64) -> Envelope {
        Envelope { context: (word >> 32) as u32, tag: word as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_pass_through_bytes(
            kind in 0..5u64,
            (context, tag, a, b) in any::<(u32, u32, u64, u64)>(),
        ) {
            let envelope = Envelope { context, tag };
            let frame = match kind {
                0 => Frame::Short { envelope, len: a % (SHORT as u64 + 1) },
                1 => Frame::Announce { envelope, len: a, send: b },
                2 => Frame::Clear { send: a, receive: b },
                _ => Frame::Data { receive: a, len: b },
            };
            prop_assert_eq!(Frame::from_bytes(frame.to_bytes()), Some(frame));
            let mut wrong = frame.to_bytes();
            wrong[0] = 9;
            prop_assert_eq!(Frame::from_bytes(wrong), None);
        }
    }
}
