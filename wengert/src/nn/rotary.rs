//! Rotary position embedding, with its extensions to longer sequences.
//!
//! Pair i of a head's elements is a point of the plane. At position p it is rotated by the angle
//! p·θᵢ, with θᵢ = base^(−2i/H) for a head of width H. So the inner product of a rotated query and
//! a rotated key depends on the difference of their positions only.
//!
//! A network has seen positions below some L in training, so pairs with a long wavelength 2π/θᵢ
//! have seen part of a turn only. The extensions change θ such that longer sequences stay within
//! the angles seen ([`RotaryScaling`]).

use std::f64::consts::PI;
use wengert_core::{Dim, Literal, Location, Tensor, diagnostic};

/// The elements that form a pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum RotaryPairs {
    /// Elements i and i + H/2: the layout of GPT-NeoX, and of Llama in Hugging Face's files.
    #[default]
    Halves,
    /// Elements 2i and 2i + 1: the layout of the paper and of Meta's files of Llama.
    Neighbours,
}

/// The change of the frequencies θ for sequences that are longer than those of training.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum RotaryScaling {
    /// None.
    #[default]
    None,
    /// Position interpolation: θᵢ/s (Chen and others, *Extending context window of large language
    /// models via positional interpolation*, 2023).
    Linear {
        /// s ≥ 1: the new length divided by that of training.
        factor: f64,
    },
    /// NTK-aware: the base becomes base·s^(H/(H − 2)), so that the slowest pair is interpolated
    /// by s and the fastest is unchanged (bloc97, 2023; Peng and others, *YaRN*, 2023, section
    /// 3.1).
    NtkAware {
        /// s ≥ 1: the new length divided by that of training.
        factor: f64,
    },
    /// YaRN (Peng and others, *YaRN: efficient context window extension of large language models*,
    /// 2023, section 3.4). Pairs of more than `fast` turns in the length of training keep θᵢ,
    /// pairs of fewer than `slow` turns have θᵢ/s, and those between have a mixture. The ramp of
    /// the mixture is linear in i, from the pair of `fast` turns rounded down to the pair of
    /// `slow` turns rounded up, as in the authors' code, with which networks are trained. Results
    /// are multiplied by √(1/t) = 0.1·ln s + 1, so the scores of attention are multiplied by 1/t.
    Yarn {
        /// s ≥ 1: the new length divided by that of training.
        factor: f64,
        /// L: the length of training.
        trained: usize,
        /// β, 32 in the paper.
        fast: f64,
        /// α, 1 in the paper.
        slow: f64,
    },
    /// Llama 3's (Llama team, *The Llama 3 herd of models*, 2024; the formula is in the published
    /// code of version 3.1). Pairs of wavelength below L/`high` keep θᵢ, those above L/`low` have
    /// θᵢ/s, and those between have a mixture that is linear in L/wavelength.
    Llama3 {
        /// s ≥ 1, 8 in version 3.1.
        factor: f64,
        /// L: the length of training, 8192 in version 3.1.
        trained: usize,
        /// Turns in L below which a pair is interpolated, 1 in version 3.1.
        low: f64,
        /// Turns in L above which a pair is kept, 4 in version 3.1.
        high: f64,
    },
}

/// Rotary position embedding of the heads of queries and keys (Su and others, *RoFormer*, 2021).
/// It has no variables.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rotary {
    /// H: the width of a head, even.
    pub width: usize,
    /// The base of the frequencies.
    pub base: f64,
    /// The pairs.
    pub pairs: RotaryPairs,
    /// The change of the frequencies.
    pub scaling: RotaryScaling,
}

impl Rotary {
    /// The embedding of heads of this width, with the base 10,000, pairs in halves, no scaling.
    pub fn new(width: usize) -> Self {
        Rotary {
            width,
            base: 1e4,
            pairs: RotaryPairs::default(),
            scaling: RotaryScaling::default(),
        }
    }

    /// Rotates the heads of `x`, floats `[B, T, N, H]`, as far as their positions say, integers
    /// `[T]` or `[B, T]`. The result has the type of x. Angles are computed in f32, and in f64 for
    /// x of f64.
    ///
    /// # Errors
    ///
    /// x has another number of axes or heads of another width; the positions are not integers of
    /// one of these shapes; the width is odd or 0; the base is not above 1, or a number of the
    /// scaling is not in its range.
    #[track_caller]
    pub fn call(&self, x: &Tensor, positions: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        if let Some(poisoned) = [x, positions].into_iter().find(|t| t.error().is_some()) {
            return poisoned.clone();
        }
        if x.rank() != 4 || x.shape()[3] != Dim::from(self.width) || !x.dtype().is_float() {
            let error = diagnostic!("a rotation of {}", x.ty());
            let help = format!("it takes floats [batch, positions, heads, {}]", self.width);
            return Tensor::fail_of(&[x], error.help(help));
        }
        let rows = &x.shape()[..2];
        let fits = positions.shape() == rows || positions.shape() == &rows[1..];
        if !fits || !positions.dtype().is_integer() {
            let error = diagnostic!("positions {} of {}", positions.ty(), x.ty());
            let help = "positions are integers [positions] or [batch, positions]";
            return Tensor::fail_of(&[x, positions], error.help(help));
        }
        let (frequencies, factor) = match self.frequencies() {
            Ok(frequencies) => frequencies,
            Err(error) => return Tensor::fail_of(&[x], error),
        };
        self.rotate(x, positions, frequencies, factor)
    }

    #[track_caller]
    fn rotate(&self, x: &Tensor, positions: &Tensor, theta: Vec<f64>, factor: f64) -> Tensor {
        let (dtype, half) = (x.dtype().wide(), self.width / 2);
        let theta = Literal::from_vec(&[half], theta).expect("there is a frequency for each pair");
        let theta = Tensor::constant(theta.convert(dtype));
        // [T, H/2] or [B, T, H/2].
        let pairs: Vec<Dim> = positions.shape().iter().cloned().chain([half.into()]).collect();
        let axes: Vec<usize> = (0..positions.rank()).collect();
        let angles = positions.convert(dtype).broadcast_in_dim(pairs, &axes) * theta;
        // All heads are rotated alike, and the two elements of a pair likewise.
        let [batch, length, heads, _] = [0, 1, 2, 3].map(|axis| x.shape()[axis].clone());
        let half = Dim::from(half);
        let halves = self.pairs == RotaryPairs::Halves;
        let elements = if halves { [2.into(), half.clone()] } else { [half.clone(), 2.into()] };
        let (pair, element) = if halves { (4, 3) } else { (3, 4) };
        let shape: Vec<Dim> = [batch, length, heads].into_iter().chain(elements).collect();
        let points = x.convert(dtype).reshape(shape.clone());
        let coordinate = |n: usize| points.slice_axis(element, n, n + 1);
        let (first, second) = (coordinate(0), coordinate(1));
        let axes: Vec<usize> = (2 - positions.rank()..2).chain([pair]).collect();
        let spread = |t: Tensor| (t * factor).broadcast_in_dim(first.shape().to_vec(), &axes);
        let (cosine, sine) = (spread(angles.cos()), spread(angles.sin()));
        let rotated = [&first * &cosine - &second * &sine, &second * &cosine + &first * &sine];
        // Rounded before they are joined: then each part is stored to its place.
        let rotated = rotated.map(|part| part.convert(x.dtype()));
        let rotated = Tensor::concatenate(&[&rotated[0], &rotated[1]], element);
        rotated.reshape(x.shape().to_vec())
    }

    /// θ of each pair, scaled, and the factor of results.
    fn frequencies(&self) -> wengert_core::Result<(Vec<f64>, f64)> {
        let Rotary { width, base, scaling, .. } = *self;
        if width == 0 || width % 2 != 0 {
            return Err(diagnostic!("a rotation of heads of width {width}")
                .help("the elements of a head form pairs, so its width is even"));
        }
        if !(base > 1.0 && base.is_finite()) {
            return Err(
                diagnostic!("a rotation with base {base}").help("it is above 1, and finite")
            );
        }
        scaling.check()?;
        let theta = |base: f64| -> Vec<f64> {
            (0..width / 2).map(|i| base.powf(-2.0 * i as f64 / width as f64)).collect()
        };
        let plain = theta(base);
        // `keep` of each pair is the part of θᵢ in the mixture with θᵢ/s.
        let mixed = |factor: f64, keep: &dyn Fn(usize, f64) -> f64| -> Vec<f64> {
            let mixture = |(i, theta): (usize, &f64)| {
                let keep = keep(i, *theta).clamp(0.0, 1.0);
                theta * keep + theta / factor * (1.0 - keep)
            };
            plain.iter().enumerate().map(mixture).collect()
        };
        Ok(match scaling {
            RotaryScaling::None => (plain, 1.0),
            RotaryScaling::Linear { factor } => (mixed(factor, &|_, _| 0.0), 1.0),
            RotaryScaling::NtkAware { factor } => {
                if width == 2 {
                    return Err(diagnostic!("NTK-aware scaling of heads of width 2")
                        .help("one pair has one frequency: use linear scaling"));
                }
                (theta(base * factor.powf(width as f64 / (width as f64 - 2.0))), 1.0)
            }
            RotaryScaling::Yarn { factor, trained, fast, slow } => {
                // The pair, as a real number, that turns so often in the length of training.
                let pair = |turns: f64| {
                    width as f64 * (trained as f64 / (turns * 2.0 * PI)).ln() / (2.0 * base.ln())
                };
                let first = pair(fast).floor().max(0.0);
                let last = pair(slow).ceil().min(width as f64 - 1.0);
                // Without pairs between, the ramp is a step.
                let length = (last - first).max(1e-3);
                let keep = |i: usize, _| 1.0 - (i as f64 - first) / length;
                (mixed(factor, &keep), 0.1 * factor.ln() + 1.0)
            }
            RotaryScaling::Llama3 { factor, trained, low, high } => {
                let turns = |theta: f64| trained as f64 * theta / (2.0 * PI);
                (mixed(factor, &|_, theta| (turns(theta) - low) / (high - low)), 1.0)
            }
        })
    }
}

impl RotaryScaling {
    /// Checks the ranges of its numbers.
    fn check(self) -> wengert_core::Result<()> {
        let (factor, trained, turns) = match self {
            RotaryScaling::None => return Ok(()),
            RotaryScaling::Linear { factor } | RotaryScaling::NtkAware { factor } => {
                (factor, None, None)
            }
            RotaryScaling::Yarn { factor, trained, fast, slow } => {
                (factor, Some(trained), Some((slow, fast)))
            }
            RotaryScaling::Llama3 { factor, trained, low, high } => {
                (factor, Some(trained), Some((low, high)))
            }
        };
        if !(factor >= 1.0 && factor.is_finite()) {
            return Err(diagnostic!("a rotary scaling with factor {factor}")
                .help("it is the new length divided by that of training: at least 1, and finite"));
        }
        if trained == Some(0) {
            return Err(diagnostic!("a rotary scaling for a length of training of 0")
                .help("give the number of positions that the network was trained with"));
        }
        match turns {
            Some((few, many)) if !(0.0 < few && few < many && many.is_finite()) => {
                Err(diagnostic!("a rotary scaling between {few} and {many} turns")
                    .help("the first number is positive and less than the second"))
            }
            _ => Ok(()),
        }
    }
}
