//! Random inputs and initial parameters, equal to those of `bench/src/data.rs`.

const SEED: u64 = 0x5eed;

/// A SplitMix64 stream of 64-bit words. Its state is made from the common seed and a name.
struct Words {
    state: u64,
}

impl Words {
    fn of(name: &str) -> Words {
        let number = name.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let mut begin = Words { state: SEED };
        Words { state: begin.next() ^ mix(number) }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Uniform numbers from `low` to `high`.
pub fn uniform(name: &str, count: usize, low: f64, high: f64) -> Vec<f32> {
    let mut words = Words::of(name);
    let mut draw =
        || (low + (high - low) * ((words.next() >> 40) as f64 / f64::from(1 << 24))) as f32;
    (0..count).map(|_| draw()).collect()
}

/// Uniform integers in `0..bound`.
pub fn labels(name: &str, count: usize, bound: usize) -> Vec<u32> {
    let (mut words, bound) = (Words::of(name), bound as u64);
    // Words below 2^64 mod bound are rejected, because they would bias the integers.
    let uneven = bound.wrapping_neg() % bound;
    let mut draw = || loop {
        let word = words.next();
        if word >= uneven {
            return (word % bound) as u32;
        }
    };
    (0..count).map(|_| draw()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values are those of `drawing.py` for the same names.
    #[test]
    fn everybody_draws_the_same() {
        assert_eq!(uniform("model.wte.weight", 3, -1.0, 1.0), UNIFORM);
        assert_eq!(labels("x", 6, 50257), LABELS);
    }

    const UNIFORM: [f32; 3] = [-0.527_926_8, 0.603_234_05, -0.155_588_51];
    const LABELS: [u32; 6] = [11683, 28576, 48657, 49304, 43444, 31564];
}
