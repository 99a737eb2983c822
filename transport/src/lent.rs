//! Memory that an operation sends without a copy.
//!
//! Operations own their buffers, so that no memory in use is freed, whatever becomes of a request.
//! For large exchanges the copy into such a buffer takes as long as the transport. [`Lent`] bytes
//! stay with their owner, who promises to keep them. A request that is given up before its end
//! copies what is not yet sent, so the promise ends with the request.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;

/// Bytes that their owner lends to an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Lent {
    pointer: NonNull<u8>,
    len: usize,
}

// SAFETY: the bytes are only read, and nothing writes them (`Lent::new`).
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl Lent {
    /// Lends bytes.
    ///
    /// # Safety
    ///
    /// The bytes stay where they are, and nothing writes them, until the requests of all operations
    /// that get them have ended or have been dropped. No such request is leaked.
    pub unsafe fn new(bytes: &[u8]) -> Lent {
        Lent { pointer: NonNull::from_ref(bytes).cast(), len: bytes.len() }
    }
}

/// Bytes that nothing ever writes.
impl From<&'static [u8]> for Lent {
    fn from(bytes: &'static [u8]) -> Lent {
        // SAFETY: a shared borrow for ever.
        unsafe { Lent::new(bytes) }
    }
}

impl Deref for Lent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are valid to read, and nothing writes them (`Lent::new`).
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

/// What an operation sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Input {
    Owned(Vec<u8>),
    Lent(Lent),
}

impl Input {
    /// The buffer of owned bytes, to be used again. Lent bytes have none.
    pub fn into_buffer(self) -> Vec<u8> {
        match self {
            Input::Owned(bytes) => bytes,
            Input::Lent(_) => Vec::new(),
        }
    }

    /// Copies lent bytes.
    pub fn own(&mut self) {
        if let Input::Lent(bytes) = self {
            *self = Input::Owned(bytes.to_vec());
        }
    }
}

impl Default for Input {
    fn default() -> Input {
        Input::Owned(Vec::new())
    }
}

impl Deref for Input {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Input::Owned(bytes) => bytes,
            Input::Lent(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Operation;
    use crate::options::Options;
    use crate::shared;

    /// An exchange that is given up copies its bytes, and the other rank still gets them.
    #[cfg(target_os = "linux")]
    #[test]
    fn bytes_of_a_dropped_exchange_arrive_though_their_memory_changes() {
        // Longer than a ring, and so not sent at once.
        let len = 9 << 20;
        let world = shared::threads(2, &Options::default()).expect("memory");
        let [first, second] = world.try_into().unwrap_or_else(|_| unreachable!("two ranks"));
        let mut bytes = vec![7u8; len];
        // SAFETY: the request is dropped before the bytes change.
        let lent = unsafe { Lent::new(&bytes) };
        let exchange = |bytes: Lent, send: [usize; 2], receive: [usize; 2]| Operation::Exchange {
            bytes,
            send: send.map(|len| 0..len).to_vec(),
            receive: receive.to_vec(),
        };
        drop(first.start(exchange(lent, [0, len], [0, 0])).expect("it is right"));
        bytes.fill(9);
        let thread = std::thread::spawn(move || {
            let none: &[u8] = &[];
            second.start(exchange(none.into(), [0, 0], [len, 0])).and_then(|request| request.wait())
        });
        // A test of any request moves the messages of all.
        let receive = Operation::Receive { from: 0, tag: 0, len: 1 };
        let mut other = first.start(receive).expect("it is right");
        while !thread.is_finished() {
            assert!(!other.test().expect("the other rank is there"));
        }
        let received = thread.join().expect("no panic").expect("the other rank is there");
        assert!(received.len() == len && received.iter().all(|byte| *byte == 7));
        assert!(bytes.iter().all(|byte| *byte == 9));
    }

    #[test]
    fn wrong_exchanges_are_named() {
        let bytes: &[u8] = &[1, 2, 3];
        let bytes = Lent::from(bytes);
        let of = |send: Vec<std::ops::Range<usize>>, receive: Vec<usize>| {
            let operation = Operation::Exchange { bytes, send, receive };
            operation.verify(1, 2).map_err(|error| error.to_string())
        };
        assert!(of(vec![0..3, 5..9], vec![2, 0]).is_err_and(|e| e.contains("5..9")));
        assert_eq!(of(vec![0..3, 0..3], vec![2, 0]), Ok(()));
        for (send, receive, text) in [
            (vec![0..4, 0..0], vec![0, 0], "`send` has 0..4, the buffer has 3 bytes"),
            (vec![0..1, 0..0], vec![0, 1], "rank 1 receives 1 bytes from itself"),
            (vec![0..1; 3], vec![0, 0], "`send` has 3 entries for 2 ranks"),
        ] {
            assert!(of(send, receive).is_err_and(|error| error.contains(text)), "{text}");
        }
    }
}
