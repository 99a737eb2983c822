//! Buffers of exchanges that have ended, for those that follow.
//!
//! A step repeats the exchanges of the step before, so it finds buffers of the right lengths here.
//! New ones would cost more than the copies into them: the system clears each page of new memory,
//! and hands pages out one by one.

/// Buffers that are not in use.
#[derive(Default)]
pub(super) struct Spare {
    /// For what is sent, chosen by their capacity: they are filled from the start.
    inputs: Vec<Vec<u8>>,
    /// For what is received, chosen by their length: their bytes stay as they are until they are
    /// overwritten.
    results: Vec<Vec<u8>>,
}

impl Spare {
    /// An empty buffer for `len` bytes.
    pub fn input(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = choose(&mut self.inputs, len, Vec::capacity);
        buffer.clear();
        buffer.reserve_exact(len);
        buffer
    }

    /// A buffer for a result of `len` bytes, which may be longer, or shorter if there is none of
    /// this length.
    pub fn result(&mut self, len: usize) -> Vec<u8> {
        choose(&mut self.results, len, Vec::len)
    }

    pub fn give_input(&mut self, buffer: Vec<u8>) {
        give(&mut self.inputs, buffer);
    }

    pub fn give_result(&mut self, buffer: Vec<u8>) {
        give(&mut self.results, buffer);
    }
}

/// Keeps a buffer, unless it has no memory: that of a lent operand.
fn give(list: &mut Vec<Vec<u8>>, buffer: Vec<u8>) {
    if buffer.capacity() > 0 {
        list.push(buffer);
    }
}

/// The smallest buffer of at least this size, or else the largest one, or else a new one.
fn choose(list: &mut Vec<Vec<u8>>, len: usize, size: fn(&Vec<u8>) -> usize) -> Vec<u8> {
    let sizes = || list.iter().map(size).enumerate();
    let fits = sizes().filter(|(_, size)| *size >= len).min_by_key(|(_, size)| *size);
    let chosen = fits.or_else(|| sizes().max_by_key(|(_, size)| *size));
    chosen.map_or_else(Vec::new, |(at, _)| list.swap_remove(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise the list would grow with each step.
    #[test]
    fn buffers_without_memory_are_not_kept() {
        let mut spare = Spare::default();
        spare.give_input(Vec::new());
        spare.give_result(Vec::new());
        assert!(spare.inputs.is_empty() && spare.results.is_empty());
    }

    #[test]
    fn the_smallest_buffer_that_fits_is_chosen() {
        let mut spare = Spare::default();
        for len in [30, 10, 20] {
            spare.give_result(vec![1; len]);
            spare.give_input(vec![1; len]);
        }
        let lens = [15, 15, 15, 15].map(|len| spare.result(len).len());
        // The last but one is too short, and the operation lengthens it.
        assert_eq!(lens, [20, 30, 10, 0]);
        let inputs = [15, 15, 15, 15].map(|len| spare.input(len));
        assert!(inputs.iter().all(|input| input.is_empty() && input.capacity() >= 15));
        assert_eq!(inputs[0].capacity(), 20);
    }
}
