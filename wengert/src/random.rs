//! Reproducible random numbers outside graphs: for shuffling and random inputs.
//!
//! SplitMix64 (Steele, Lea and Flood 2014), 64 bits of state, the same on every machine and in
//! every version. Graphs draw random numbers with the op `random_bits` instead.

use wengert_core::Literal;

/// A stream of 64-bit words.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        SplitMix64 { state: seed }
    }

    /// The stream of a seed and further numbers (an epoch, the hash of a name). Different numbers
    /// give unrelated streams.
    pub fn of(seed: u64, numbers: &[u64]) -> Self {
        let mut stream = SplitMix64::new(seed);
        for number in numbers {
            stream.state = stream.next_u64() ^ mix(*number);
        }
        stream
    }

    /// The next word.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// Uniform in `0..bound` without bias, for a bound of at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "the bound is at least 1");
        // Words below 2^64 mod bound would make some results more likely than others.
        let uneven = bound.wrapping_neg() % bound;
        loop {
            let word = self.next_u64();
            if word >= uneven {
                return word % bound;
            }
        }
    }

    /// Uniform in `0.0..1.0`, a multiple of 2⁻⁵³.
    pub fn unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A random order of `0..count` (Fisher and Yates).
    pub fn permutation(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            order.swap(last, self.below(last as u64 + 1) as usize);
        }
        order
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A hash of a name (FNV-1a), the same in every version.
pub fn hash_name(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ b as u64).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Key number `number` of a seed: a `u32[2]` for an input of role `key`. Different numbers give
/// unrelated keys.
pub fn key(seed: u64, number: u64) -> Literal {
    let word = SplitMix64::of(seed, &[number]).next_u64();
    Literal::from_vec(&[2], vec![(word >> 32) as u32, word as u32]).expect("two words fill a key")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        // First outputs for seed 1234567 of the reference implementation.
        let mut stream = SplitMix64::new(1234567);
        let words: Vec<u64> = (0..5).map(|_| stream.next_u64()).collect();
        assert_eq!(
            words,
            [
                6457827717110365317,
                3203168211198807973,
                9817491932198370423,
                4593380528125082431,
                16408922859458223821
            ]
        );
    }

    #[test]
    fn permutations_are_permutations_and_uniform() {
        let mut order = SplitMix64::of(7, &[3]).permutation(1000);
        assert_eq!(order, SplitMix64::of(7, &[3]).permutation(1000));
        assert_ne!(order, SplitMix64::of(7, &[4]).permutation(1000));
        order.sort_unstable();
        assert!(order.into_iter().eq(0..1000));
        // Each of the 6 orders of 3 items occurs about 1000 times in 6000.
        let mut stream = SplitMix64::new(1);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..6000 {
            *counts.entry(stream.permutation(3)).or_insert(0) += 1;
        }
        assert!(
            counts.len() == 6 && counts.values().all(|c| (880..1120).contains(c)),
            "{counts:?}"
        );
    }

    #[test]
    fn small_ranges_and_units() {
        let mut stream = SplitMix64::new(2);
        assert!((0..1000).all(|_| stream.below(3) < 3));
        assert!((0..1000).map(|_| stream.unit_f64()).all(|u| (0.0..1.0).contains(&u)));
        assert_eq!(stream.below(1), 0);
    }
}
