//! Ordinary differential equations with a learnt right-hand side, solved in adaptive steps.
//!
//! [`solve`] is the method of Dormand and Prince (1980). A step computes six new slopes. One
//! weighted sum of them gives a solution of order 5, another the error of a solution of order 4. A
//! step whose error is too large is repeated with a smaller size. A PI controller (Hairer and
//! Wanner) chooses the size of the next step. The number of steps depends on the equation, the
//! tolerance and the point. So the loop is a `while` in the graph, within a `scan` over the times
//! at which the solution is wanted. Both are differentiated like all other ops. There is no adjoint
//! equation: the gradient is that of the computation, step sizes included.
//!
//! Reverse mode needs the states of all steps. [`Memory`] says how it gets them: from a tape of a
//! fixed number of steps, or from a few states, from which it recomputes the others.
//!
//! The equations are those of Lotka and Volterra, of prey and predators, in the logarithms of their
//! numbers, so that no number can become negative:
//!
//! ```text
//! d ln x / dt =  α − β·y        prey multiply and are eaten
//! d ln y / dt = −γ + δ·x        predators starve and eat
//! ```
//!
//! [`LotkaVolterra`] has this form and learns the four rates. [`Network`] learns the slopes without
//! knowing the form.

use wengert::prelude::*;
use wengert::random::SplitMix64;

/// How reverse mode remembers the steps between two times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// All, up to so many; the loop ends there.
    Tape(usize),
    /// So many, from which the others are computed again.
    Checkpoints(usize),
}

/// The right-hand side of u′ = slope(u).
pub trait Field: Differentiable {
    /// The slopes at states `[…, n]`, of the same shape.
    fn slope(&self, u: &Tensor) -> Tensor;
}

/// Where a solution is.
#[derive(Clone, Differentiable)]
struct Point {
    /// Time since the last time that was asked for.
    time: Tensor,
    u: Tensor,
    /// The slope there: the last of a step is the first of the next.
    slope: Tensor,
    /// The size of the next step, if nothing is in the way.
    step: Tensor,
    /// The error of the step before, relative to what is tolerated.
    error: Tensor,
    /// Steps that were tried, `i32[]`.
    tried: Tensor,
}

/// Row i has the weights of slopes 0 to i for the state of slope i + 1. The last row gives the
/// solution, whose slope is slope 6.
const STAGES: [&[f64]; 6] = [
    &[1.0 / 5.0],
    &[3.0 / 40.0, 9.0 / 40.0],
    &[44.0 / 45.0, -56.0 / 15.0, 32.0 / 9.0],
    &[19372.0 / 6561.0, -25360.0 / 2187.0, 64448.0 / 6561.0, -212.0 / 729.0],
    &[9017.0 / 3168.0, -355.0 / 33.0, 46732.0 / 5247.0, 49.0 / 176.0, -5103.0 / 18656.0],
    &[35.0 / 384.0, 0.0, 500.0 / 1113.0, 125.0 / 192.0, -2187.0 / 6784.0, 11.0 / 84.0],
];
/// The weights of the solution less those of the embedded one.
const ERROR: [f64; 7] = [
    71.0 / 57600.0,
    0.0,
    -71.0 / 16695.0,
    71.0 / 1920.0,
    -17253.0 / 339_200.0,
    22.0 / 525.0,
    -1.0 / 40.0,
];

fn weighted(weights: &[f64], slopes: &[Tensor]) -> Tensor {
    let terms = weights.iter().zip(slopes).filter(|(w, _)| **w != 0.0).map(|(w, slope)| slope * *w);
    terms.reduce(|sum, term| sum + term).expect("every row has weights")
}

/// Tries a step that does not go beyond `until`.
fn advance<F: Field>(field: &F, from: &Point, until: &Tensor, tolerance: f64) -> Point {
    let rest = until - &from.time;
    let last = rest.le(&from.step);
    let step = last.select(&rest, &from.step);
    let (mut u, mut slopes) = (from.u.clone(), vec![from.slope.clone()]);
    for stage in STAGES {
        u = &from.u + &step * weighted(stage, &slopes);
        slopes.push(field.slope(&u));
    }
    let slope = slopes[6].clone();
    // The root of the mean square of the errors, each relative to what is tolerated there.
    let tolerated = (from.u.abs().max(u.abs()) + 1.0) * tolerance;
    let error = (&step * weighted(&ERROR, &slopes) / tolerated).square().mean().sqrt().max(1e-10);
    let accepted = error.le(1.0);
    // Where the last two errors come from decides how bold the next step is.
    let factor = (error.log() * -0.14 + from.error.log() * 0.08).exp() * 0.9;
    let keep = |new: &Tensor, old: &Tensor| accepted.select(new, old);
    Point {
        // To be there is not a matter of rounding.
        time: keep(&last.select(until, &(&from.time + &step)), &from.time),
        u: keep(&u, &from.u),
        slope: keep(&slope, &from.slope),
        // A step that was cut off says nothing about the next.
        step: last.and(&accepted).select(&from.step, &(&step * factor.clamp(0.2, 5.0))),
        error: last.and(&accepted).select(&from.error, &error),
        tried: &from.tried + 1,
    }
}

/// The solution from `u` after each of the consecutive `gaps`, `f64[K]`, as `[K, …]`, and the
/// number of steps that were tried, `i32[]`.
pub fn solve<F: Field>(
    field: &F,
    u: &Tensor,
    gaps: &Tensor,
    tolerance: f64,
    memory: Memory,
) -> (Tensor, Tensor) {
    let begin = Point {
        time: Tensor::constant(0.0),
        u: u.clone(),
        slope: field.slope(u),
        step: Tensor::constant(0.01),
        error: Tensor::constant(1.0),
        tried: Tensor::constant(0),
    };
    let (end, series) = control::scan(&begin, gaps, |point, gap| {
        let begin = Point { time: gap.zeros_like(), ..point.clone() };
        let on_the_way = |point: &Point| point.time.lt(gap);
        let step = |point: &Point| advance(field, point, gap, tolerance);
        let end = match memory {
            Memory::Tape(steps) => control::while_at_most(steps, &begin, on_the_way, step),
            Memory::Checkpoints(count) => {
                control::while_checkpointed(count, &begin, on_the_way, step)
            }
        };
        (end.clone(), end.u)
    });
    (series, end.tried)
}

/// The equations with rates to be found, by their logarithms.
#[derive(Clone, Differentiable)]
pub struct LotkaVolterra {
    /// ln α, ln γ.
    pub alone: Tensor,
    /// ln β, ln δ.
    pub together: Tensor,
}

impl Field for LotkaVolterra {
    fn slope(&self, u: &Tensor) -> Tensor {
        let signs = Tensor::constant(
            Literal::from_vec(&[2], vec![1.0, -1.0]).expect("two numbers fill [2]"),
        );
        let other = u.reverse(&[u.rank() - 1]).exp();
        signs * (self.alone.exp() - self.together.exp() * other)
    }
}

impl Default for LotkaVolterra {
    /// All rates are 1 before anything is known.
    fn default() -> Self {
        let zeros = || Tensor::variable(TensorType::new(DType::F64, [2usize]), Initializer::Zeros);
        LotkaVolterra { alone: zeros(), together: zeros() }
    }
}

/// Slopes from a network with one hidden layer: a neural ordinary differential equation (Chen,
/// Rubanova, Bettencourt and Duvenaud 2018).
#[derive(Clone, Differentiable)]
pub struct Network {
    hidden: Linear,
    out: Linear,
}

impl Network {
    /// With random weights.
    pub fn new(states: usize, width: usize) -> Self {
        let network =
            Network { hidden: Linear::new(states, width), out: Linear::new(width, states) };
        nn::with_dtype(&network, DType::F64)
    }
}

impl Field for Network {
    fn slope(&self, u: &Tensor) -> Tensor {
        self.out.call(&self.hidden.call(u).tanh())
    }
}

/// Mean square of the difference between solutions and what was seen.
pub fn loss<F: Field>(
    field: &F,
    start: &Tensor,
    gaps: &Tensor,
    seen: &Tensor,
    memory: Memory,
) -> Tensor {
    let (series, _) = solve(field, start, gaps, 1e-6, memory);
    (series - seen).square().mean()
}

/// `train_step` on `W` windows of a series: from `start`, `f64[W,2]`, to the observations `seen`,
/// `f64[K,W,2]`, after each of the `gaps`. And `series`, which gives the solution.
pub fn program<F: Field + Clone>(field: F, rate: optim::Rate, memory: Memory) -> Result<Program> {
    let mut program = Program::new();
    program.function("train_step", |f| {
        let start = f.input("start", f64("W,2"));
        let gaps = f.input("gaps", f64("K"));
        let seen = f.input("seen", f64("K,W,2"));
        let field = f.state("field", field.clone());
        let (loss, gradient) =
            value_and_grad(&field, |field| loss(field, &start, &gaps, &seen, memory));
        Adam::new(rate.clone()).step(f, &field, &gradient);
        f.output("loss", loss);
    })?;
    program.function("series", |f| {
        let start = f.input("start", f64("W,2"));
        let gaps = f.input("gaps", f64("K"));
        let field = f.param("field", field.clone());
        let (series, tried) = solve(&field, &start, &gaps, 1e-8, memory);
        f.output("series", series);
        f.output("steps", tried);
    })?;
    Ok(program)
}

/// α, β, γ, δ of the world in which the series was seen.
pub const RATES: [f64; 4] = [1.5, 1.0, 3.0, 1.0];
/// Time between two observations.
pub const GAP: f64 = 0.25;

/// ln x and ln y at times 0, 0.25, 0.5, …, solved in plain Rust by the classical method of Runge
/// and Kutta, with 1000 steps between two times.
pub fn series(count: usize) -> Vec<[f64; 2]> {
    let [alpha, beta, gamma, delta] = RATES;
    let slope = |[x, y]: [f64; 2]| [alpha - beta * y.exp(), delta * x.exp() - gamma];
    let along = |u: [f64; 2], k: [f64; 2], h: f64| [u[0] + h * k[0], u[1] + h * k[1]];
    let steps = 1000;
    let h = GAP / f64::from(steps);
    let mut u = [0.0, 0.0];
    let mut series = vec![u];
    while series.len() < count {
        for _ in 0..steps {
            let first = slope(u);
            let second = slope(along(u, first, h / 2.0));
            let third = slope(along(u, second, h / 2.0));
            let fourth = slope(along(u, third, h));
            let mean = [0, 1].map(|i| (first[i] + 2.0 * (second[i] + third[i]) + fourth[i]) / 6.0);
            u = along(u, mean, h);
        }
        series.push(u);
    }
    series
}

/// Normally distributed noise on a series: numbers that are counted a little wrongly.
pub fn observed(series: &[[f64; 2]], deviation: f64, seed: u64) -> Vec<[f64; 2]> {
    let mut random = SplitMix64::new(seed);
    // Box and Muller's two numbers, one for each species.
    series
        .iter()
        .map(|[x, y]| {
            let radius = deviation * (-2.0 * (1.0 - random.unit_f64()).ln()).sqrt();
            let (sin, cos) = (std::f64::consts::TAU * random.unit_f64()).sin_cos();
            [x + radius * cos, y + radius * sin]
        })
        .collect()
}

/// All windows of `length` further observations: `start`, `gaps` and `seen` of [`program`].
pub fn windows(series: &[[f64; 2]], length: usize) -> Result<[(&'static str, Literal); 3]> {
    let count = series.len() - length;
    let at = |range: std::ops::Range<usize>| series[range].iter().flatten().copied();
    let start = Literal::from_vec(&[count, 2], at(0..count).collect())?;
    let gaps = Literal::from_vec(&[length], vec![GAP; length])?;
    let seen = (1..=length).flat_map(|k| at(k..k + count)).collect();
    Ok([("start", start), ("gaps", gaps), ("seen", Literal::from_vec(&[length, count, 2], seen)?)])
}
