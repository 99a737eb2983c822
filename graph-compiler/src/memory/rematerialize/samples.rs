//! Computations for tests.

use super::computation::{ALWAYS, Computation, NEVER, Step, Value};
use super::tests::varied::Link;

impl Computation {
    /// Adds a value and returns its number.
    pub fn value(&mut self, bytes: u64) -> usize {
        self.values.push(Value { bytes, output: false });
        self.values.len() - 1
    }

    /// Adds a step that may be repeated anywhere and returns its number.
    pub fn step(&mut self, cost: u64, reads: &[usize], writes: &[usize]) -> usize {
        let (reads, writes) = (reads.to_vec(), writes.to_vec());
        self.steps.push(Step { cost, workspace: 0, reads, writes, barrier: ALWAYS });
        self.steps.len() - 1
    }

    /// Total cost of all steps, each executed once.
    pub fn total(&self) -> u64 {
        self.steps.iter().map(|step| step.cost).sum()
    }
}

/// A pseudo-random generator: each call returns a number below its argument.
pub(super) fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |n| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) % n.max(1)
    }
}

/// Adds a step with one result of `bytes` bytes, and returns the result.
fn push(p: &mut Computation, cost: u64, reads: &[usize], bytes: u64) -> usize {
    let result = p.value(bytes);
    p.step(cost, reads, &[result]);
    result
}

/// A chain of links as a computation: the forward step of each link but the last, then the
/// backward step of each link in reverse order.
pub(super) fn chain(links: &[Link]) -> Computation {
    let mut p = Computation::default();
    let input = p.value(0);
    let mut states = vec![input];
    for pair in links.windows(2) {
        let state = *states.last().expect("the input is there");
        states.push(push(&mut p, pair[0].cost, &[state], pair[1].state));
    }
    let mut cotangent = None;
    for (link, state) in links.iter().zip(&states).rev() {
        let reads: Vec<usize> = [*state].into_iter().chain(cotangent).collect();
        cotangent = Some(push(&mut p, 2 * link.cost, &reads, link.cotangent));
        p.steps.last_mut().expect("just pushed").workspace = link.tape;
    }
    p
}

/// Links with random costs and sizes.
pub(super) fn links(seed: u64, length: usize) -> Vec<Link> {
    let mut random = numbers(seed);
    let link = |_| Link {
        cost: 1 + random(30),
        state: 4 + random(60),
        cotangent: random(20),
        tape: random(40),
    };
    (0..length).map(link).collect()
}

/// A training step of a transformer. A layer has ten forward and twelve backward kernels.
/// Gradients are live until all weights are updated at the end. `unit` is the size of an
/// activation. Costs are about those of a model of width 768.
pub(super) fn transformer(layers: usize, unit: u64) -> Computation {
    let mut p = Computation::default();
    let weights = p.value(0);
    let mut x = push(&mut p, 1, &[weights], unit);
    let mut kept = Vec::new();
    for _ in 0..layers {
        let statistics = push(&mut p, 10, &[x], unit / 384);
        let normed = push(&mut p, 20, &[x, statistics], unit);
        let qkv = push(&mut p, 240, &[normed, weights], 3 * unit);
        let (attended, log) = (p.value(unit), p.value(unit / 64));
        p.step(120, &[qkv], &[attended, log]);
        let middle = push(&mut p, 90, &[attended, x, weights], unit);
        let statistics2 = push(&mut p, 10, &[middle], unit / 384);
        let normed2 = push(&mut p, 20, &[middle, statistics2], unit);
        let up = push(&mut p, 320, &[normed2, weights], 4 * unit);
        let active = push(&mut p, 40, &[up], 4 * unit);
        let down = push(&mut p, 330, &[active, middle, weights], unit);
        kept.push([
            x,
            statistics,
            normed,
            qkv,
            attended,
            log,
            middle,
            statistics2,
            normed2,
            up,
            active,
        ]);
        x = down;
    }
    let mut d = push(&mut p, 600, &[x, weights], unit);
    let mut gradients = Vec::new();
    for [x, statistics, normed, qkv, attended, log, middle, statistics2, normed2, up, active] in
        kept.into_iter().rev()
    {
        let d_active = push(&mut p, 320, &[d, weights], 4 * unit);
        gradients.push(push(&mut p, 320, &[d, active], unit / 3));
        let d_up = push(&mut p, 60, &[d_active, up], 4 * unit);
        let d_normed2 = push(&mut p, 320, &[d_up, weights], unit);
        gradients.push(push(&mut p, 320, &[d_up, normed2], unit / 3));
        let d_middle = push(&mut p, 30, &[d_normed2, middle, statistics2, d], unit);
        let d_attended = push(&mut p, 80, &[d_middle, weights], unit);
        gradients.push(push(&mut p, 80, &[d_middle, attended], unit / 12));
        let d_qkv = push(&mut p, 300, &[d_attended, qkv, attended, log], 3 * unit);
        let d_normed = push(&mut p, 240, &[d_qkv, weights], unit);
        gradients.push(push(&mut p, 240, &[d_qkv, normed], unit / 4));
        d = push(&mut p, 30, &[d_normed, x, statistics, d_middle], unit);
    }
    update(&mut p, weights, &gradients);
    p
}

/// Adds the update of the weights: a step for each gradient, which overwrites weights. From the
/// first of these steps on, no reader of the weights may be repeated.
fn update(p: &mut Computation, weights: usize, gradients: &[usize]) {
    let first = p.steps.len();
    for step in p.steps.iter_mut().filter(|s| s.reads.contains(&weights)) {
        step.barrier = first;
    }
    for gradient in gradients {
        push(p, 5, &[*gradient, weights], 0);
        p.steps.last_mut().expect("just pushed").barrier = NEVER;
    }
}

/// A training step of a U-Net: `depth` levels down and up, each level half as wide as the one
/// above it, with long skips.
pub(super) fn unet(depth: usize, unit: u64) -> Computation {
    let mut p = Computation::default();
    let weights = p.value(0);
    let mut x = p.value(0);
    let mut kept = Vec::new();
    let mut skips = Vec::new();
    let block = |p: &mut Computation,
                 kept: &mut Vec<(usize, usize, Option<usize>, u64)>,
                 x: usize,
                 skip: Option<usize>,
                 unit: u64| {
        let reads: Vec<usize> = [x, weights].into_iter().chain(skip).collect();
        let convolved = push(p, 200, &reads, unit);
        let active = push(p, 20, &[convolved], unit);
        kept.push((x, convolved, skip, unit));
        active
    };
    for level in 0..depth {
        x = block(&mut p, &mut kept, x, None, unit >> level);
        x = block(&mut p, &mut kept, x, None, unit >> level);
        skips.push(x);
        x = push(&mut p, 10, &[x], (unit >> level) / 4);
    }
    for level in (0..depth).rev() {
        x = block(&mut p, &mut kept, x, skips.pop(), unit >> level);
        x = block(&mut p, &mut kept, x, None, unit >> level);
    }
    let mut d = push(&mut p, 50, &[x], unit);
    let mut gradients = Vec::new();
    for (x, convolved, skip, unit) in kept.into_iter().rev() {
        let d_convolved = push(&mut p, 30, &[d, convolved], unit);
        let reads: Vec<usize> = [d_convolved, x].into_iter().chain(skip).collect();
        gradients.push(push(&mut p, 200, &reads, 64));
        d = push(&mut p, 200, &[d_convolved, weights], unit);
    }
    update(&mut p, weights, &gradients);
    p
}

/// Random steps with one or two results. Some have a workspace. Some may not be repeated, or only
/// up to a barrier.
pub(super) fn random(seed: u64, steps: usize) -> Computation {
    let mut random = numbers(seed);
    let mut p = Computation::default();
    let input = p.value(0);
    let mut made = vec![input];
    for step in 0..steps {
        // Reads recent results more often than old ones.
        let mut reads = Vec::new();
        for _ in 0..1 + random(3) {
            let back = if random(2) == 0 { random(3) } else { random(made.len() as u64) } as usize;
            reads.push(made[made.len() - 1 - back.min(made.len() - 1)]);
        }
        let writes: Vec<usize> = (0..1 + random(4) / 3).map(|_| p.value(1 + random(16))).collect();
        p.step(1 + random(20), &reads, &writes);
        p.steps[step].workspace = if random(4) == 0 { random(8) } else { 0 };
        p.steps[step].barrier = match random(8) {
            0 => NEVER,
            1 => step + random((steps - step) as u64) as usize,
            _ => ALWAYS,
        };
        made.extend(writes);
    }
    let read: Vec<usize> = p.steps.iter().flat_map(|s| s.reads.clone()).collect();
    for value in 1..p.values.len() {
        p.values[value].output = !read.contains(&value) && random(2) == 0;
    }
    p
}

/// A forward and a backward pass of small steps. A backward step reads the result of the backward
/// step before it, and one or two values of its forward step.
pub(super) fn tape(seed: u64, layers: usize) -> Computation {
    let mut random = numbers(seed);
    let mut p = Computation::default();
    let mut x = p.value(0);
    let mut kept: Vec<(usize, usize)> = Vec::new();
    for _ in 0..layers {
        let skip = kept.len().checked_sub(2).map_or(x, |n| kept[n].1);
        let y = push(&mut p, 1 + random(20), &[x, skip], 1 + random(16));
        kept.push((x, y));
        x = y;
    }
    let mut d = x;
    for (x, y) in kept.into_iter().rev() {
        let reads = [d, x, if random(2) == 0 { y } else { x }];
        d = push(&mut p, 1 + random(40), &reads, 1 + random(8));
    }
    p.values[d].output = true;
    p
}

/// A training step of residual blocks, each a wide product, an activation and a sum. The
/// gradients live until all weights are updated at the end.
pub(super) fn residual(seed: u64, blocks: usize) -> Computation {
    let mut random = numbers(seed);
    let mut p = Computation::default();
    let (weights, mut x) = (p.value(0), p.value(0));
    let width = 4 + random(8);
    let mut kept = Vec::new();
    for _ in 0..blocks {
        let (cost, wide) = (20 + random(60), width * (1 + random(4)));
        let up = push(&mut p, cost, &[x, weights], wide);
        let y = push(&mut p, 2 + random(8), &[up, x], width);
        p.steps.last_mut().expect("just pushed").workspace = random(width);
        kept.push((x, up, cost, wide));
        x = y;
    }
    let mut d = push(&mut p, 1 + random(10), &[x], width);
    let mut gradients = Vec::new();
    for (x, up, cost, wide) in kept.into_iter().rev() {
        // One kernel computes the cotangent of the product and the gradient of the norm's scale.
        let (d_up, scale) = (p.value(wide), p.value(1));
        p.step(2 + random(8), &[d, up], &[d_up, scale]);
        gradients.extend([scale, push(&mut p, cost, &[d_up, x], 1 + random(width))]);
        d = push(&mut p, cost, &[d_up, d, weights], width);
    }
    update(&mut p, weights, &gradients);
    p
}
