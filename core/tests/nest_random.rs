//! Random nests.
//!
//! *Valid* nests are written with the builder. They must verify, print and parse back, and run.
//! *Wild* nests consist of arbitrary accesses. The verifier refuses most of them; those that it
//! accepts must run without a fault. This tests the verifier's proofs, since the interpreter checks
//! every access independently.

use proptest::prelude::*;
use wengert_core::nest::bounds::Ranges;
use wengert_core::nest::{
    Access, Affine, Axis, AxisId, Buffer, BufferId, BufferRole, Combine, Guard, Instr, Nest,
    NestBuilder, Phase, Reg, ScalarOp, Term, Tree, interpret, parse_nests, verify,
};
use wengert_core::{DType, IdVec, Literal, Scalar};
use wengert_testing::Random;

/// Choices from a list of numbers; zeros after its end.
struct Choices<'a> {
    numbers: std::slice::Iter<'a, u32>,
}

impl Choices<'_> {
    /// A number below `n`.
    fn below(&mut self, n: usize) -> usize {
        self.numbers.next().map_or(0, |x| *x as usize % n)
    }

    fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == one_in - 1
    }
}

fn literal(choices: &mut Choices<'_>, dtype: DType, shape: &[usize]) -> Literal {
    let count = shape.iter().product();
    let values: Vec<Scalar> =
        (0..count).map(|_| Scalar::from_i64(dtype, choices.below(9) as i64 - 2)).collect();
    Literal::from_scalars(dtype, shape, &values).expect("as many values as the shape has elements")
}

fn inputs(choices: &mut Choices<'_>, nest: &Nest) -> Vec<Literal> {
    let read = nest.parameters().filter(|(_, b)| b.role != BufferRole::Out);
    read.map(|(_, b)| literal(choices, b.dtype, &b.shape)).collect()
}

fn round_trip(nest: &Nest) {
    let text = nest.to_string();
    let again = parse_nests("printed", &text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].0, *nest, "{text}");
    assert_eq!(nest.renumber(), *nest, "{text}");
}

/// A nest such as lowering emits: an elementwise or row program with reshapes, pads, gathers,
/// reductions and scans.
struct Valid<'a, 'c> {
    choices: &'a mut Choices<'c>,
    b: NestBuilder,
    /// Registers of the row.
    row: Vec<Reg>,
}

impl Valid<'_, '_> {
    fn dtype(&mut self) -> DType {
        self.choices.of(&[
            DType::F32,
            DType::I32,
            DType::F16,
            DType::F64,
            DType::U8,
            DType::Bool,
            DType::BF16,
        ])
    }

    /// A value of any dtype at the point `axes`, loaded with one of several access patterns.
    fn load(&mut self, axes: &[AxisId]) -> Reg {
        let dtype = self.dtype();
        let extents: Vec<usize> = axes.iter().map(|a| self.b.extent(*a)).collect();
        let point: Vec<Affine> = axes.iter().map(|a| Affine::axis(*a)).collect();
        let last = axes.len().checked_sub(1);
        match (self.choices.below(6), last) {
            (0, _) => {
                let x = self.b.input("x", dtype, &extents);
                self.b.load(x, &point)
            }
            (1, Some(last)) => {
                // Reversed, with a stride.
                let mut shape = extents.clone();
                shape[last] = 3 * extents[last] + 1;
                let mut index = point;
                index[last] = index[last].scale(-3).offset(3 * extents[last] as i64);
                let x = self.b.input("x", dtype, &shape);
                self.b.load(x, &index)
            }
            (2, Some(_)) => {
                // Reshaped to two dimensions.
                let count: usize = extents.iter().product();
                let width =
                    (1..=count).rev().find(|w| count.is_multiple_of(*w) && *w <= 4).unwrap_or(1);
                let flat = point
                    .iter()
                    .zip(&extents)
                    .fold(Affine::constant(0), |n, (i, e)| n.scale(*e as i64).add(i));
                let x = self.b.input("x", dtype, &[count / width, width]);
                self.b.load(x, &[flat.floor_div(width as i64), flat.modulo(width as i64)])
            }
            (3, Some(last)) => {
                // Padded, perhaps with interior padding.
                let step = 1 + self.choices.below(3) as i64;
                let shifted = point[last].offset(-(self.choices.below(3) as i64));
                let mut shape = extents.clone();
                shape[last] = self.choices.below(4);
                let mut index = point;
                index[last] = shifted.floor_div(step);
                let guards = [
                    Guard { index: index[last].clone(), low: 0, high: shape[last] as i64 },
                    Guard { index: shifted.modulo(step), low: 0, high: 1 },
                ];
                let fill = self.b.constant(Scalar::one(dtype));
                let x = self.b.input("x", dtype, &shape);
                self.b.load_guarded(x, &index, &guards, fill)
            }
            (4, Some(last)) => {
                // Gathered.
                let at = self.b.input("at", DType::I32, &[extents[last]]);
                let k = self.b.load(at, &[point[last].clone()]);
                let x = self.b.input("x", dtype, &[3]);
                self.b.load_clamped(x, &[Affine::reg(k).offset(-1)])
            }
            _ => {
                let x = self.b.input("x", dtype, &[]);
                self.b.load(x, &[])
            }
        }
    }

    fn value(&mut self, axes: &[AxisId]) -> Reg {
        let mut values = vec![self.load(axes)];
        for _ in 0..1 + self.choices.below(4) {
            if self.choices.chance(3) {
                values.push(self.load(axes));
            }
            if self.choices.chance(4) && !axes.is_empty() {
                let index = axes
                    .iter()
                    .fold(Affine::constant(-1), |n, a| n.scale(2).add(&Affine::axis(*a)));
                values.push(self.b.index(&index, DType::I64));
            }
            let candidates = [&values[..], &self.row].concat();
            let x = self.choices.of(&candidates);
            let y = self.choices.of(&candidates);
            let dtype = self.b.dtype(x);
            let y = self.b.convert(y, dtype);
            use ScalarOp::*;
            let op = self.choices.of(&[Add, Sub, Mul, Max, Min, Lt, Eq, Neg, Div, And, Xor, Floor]);
            let operands = &[x, y][..op.arity()];
            let wide = if dtype.is_half() { DType::F32 } else { dtype };
            if op.class().contains(wide) {
                values.push(self.b.scalar_widened(op, operands));
            }
        }
        *values.last().expect("begins with one")
    }

    fn tree(&mut self) -> Tree {
        let lanes = 1 << self.choices.below(4);
        Tree { lanes, block: lanes * self.choices.below(3) as u32 }
    }

    fn phase(&mut self, parallel: &[AxisId]) {
        let inner: Vec<(&str, usize)> = ["j", "k"][..self.choices.below(3)]
            .iter()
            .map(|n| (*n, self.choices.of(&[3, 1, 4, 2, 0, 7])))
            .collect();
        let inner = self.b.phase_over(&inner);
        let axes = [parallel, &inner].concat();
        let extents: Vec<usize> = axes.iter().map(|a| self.b.extent(*a)).collect();
        let point: Vec<Affine> = axes.iter().map(|a| Affine::axis(*a)).collect();
        let mut value = self.value(&axes);
        if self.choices.chance(3) && !inner.is_empty() {
            let wide = self.b.convert(value, DType::F32);
            let reverse = self.choices.chance(2);
            value = self.b.prefix(&[wide], Combine::sum(DType::F32), reverse)[0];
            if reverse {
                let y = self.b.output("y", DType::F32, &extents);
                return self.b.store(y, &point, value);
            }
        }
        match self.choices.below(4) {
            0 => {
                let y = self.b.output("y", self.b.dtype(value), &extents);
                self.b.store(y, &point, value);
            }
            1 => {
                // As one dimension.
                let flat = point
                    .iter()
                    .zip(&extents)
                    .fold(Affine::constant(0), |n, (i, e)| n.scale(*e as i64).add(i));
                let y = self.b.output("y", self.b.dtype(value), &[extents.iter().product()]);
                self.b.store(y, &[flat], value);
            }
            2 if !inner.is_empty() => {
                // Stored to a row buffer, which the next phase reads in reverse.
                let kept: Vec<usize> = inner.iter().map(|a| self.b.extent(*a)).collect();
                let t = self.b.row("t", self.b.dtype(value), &kept);
                self.b.store(t, &point[parallel.len()..], value);
                let again: Vec<(&str, usize)> =
                    ["m", "n"].iter().copied().zip(kept.iter().copied()).collect();
                let again = self.b.phase_over(&again);
                let back: Vec<Affine> = again
                    .iter()
                    .map(|a| Affine::axis(*a).scale(-1).offset(self.b.extent(*a) as i64 - 1))
                    .collect();
                let value = self.b.load(t, &back);
                let y = self.b.output("y", self.b.dtype(value), &extents);
                let point: Vec<Affine> =
                    parallel.iter().chain(&again).map(|a| Affine::axis(*a)).collect();
                self.b.store(y, &point, value);
            }
            _ => {
                let wide = self.b.convert(value, DType::F32);
                let tree = self.tree();
                let results = match self.choices.below(3) {
                    0 => self.b.reduce(&[wide], Combine::sum(DType::F32), tree),
                    1 if !axes.is_empty() => {
                        let n = self.b.index(&Affine::axis(axes[axes.len() - 1]), DType::I32);
                        self.b.reduce(&[wide, n], Combine::argmax(DType::F32, DType::I32), tree)
                    }
                    _ => {
                        let (one, zero) =
                            (self.b.constant(1f32.into()), self.b.constant(0f32.into()));
                        self.b.reduce(&[one, wide, zero], Combine::welford(DType::F32), tree)
                    }
                };
                self.b.phase([]);
                let extents: Vec<usize> = parallel.iter().map(|a| self.b.extent(*a)).collect();
                let point: Vec<Affine> = parallel.iter().map(|a| Affine::axis(*a)).collect();
                for result in &results {
                    let y = self.b.output("y", self.b.dtype(*result), &extents);
                    self.b.store(y, &point, *result);
                }
                self.row.extend(results);
            }
        }
    }
}

fn valid(choices: &mut Choices<'_>) -> Nest {
    let b = NestBuilder::new("valid");
    let mut this = Valid { choices, b, row: Vec::new() };
    let parallel: Vec<AxisId> = ["i", "h"][..this.choices.below(3)]
        .iter()
        .map(|n| {
            let extent = this.choices.of(&[2, 1, 3, 0]);
            this.b.parallel(n, extent)
        })
        .collect();
    for _ in 0..1 + this.choices.below(3) {
        this.phase(&parallel);
    }
    this.b.finish().unwrap_or_else(|e| panic!("the builder wrote what the verifier refuses: {e}"))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn valid_nests_round_trip_and_run(numbers in prop::collection::vec(any::<u32>(), 300)) {
        let mut choices = Choices { numbers: numbers.iter() };
        let nest = valid(&mut choices);
        round_trip(&nest);
        let inputs = inputs(&mut choices, &nest);
        let outputs = interpret(&nest, &inputs).unwrap_or_else(|e| panic!("{e}\n{nest}"));
        prop_assert_eq!(interpret(&nest, &inputs).unwrap(), outputs);
    }
}

/// A nest of arbitrary accesses on i32. Its shapes are chosen so that many accesses are in bounds.
struct Wild<'a, 'c> {
    choices: &'a mut Choices<'c>,
    nest: Nest,
}

impl Wild<'_, '_> {
    fn affine(&mut self, axes: &[AxisId], regs: &[Reg], depth: usize) -> Affine {
        let mut sum = Affine::constant(self.choices.of(&[0, 0, 0, 1, -1, 2, 3]));
        for _ in 0..self.choices.of(&[1, 1, 2, 2, 3, 0]) {
            let factor = self.choices.of(&[1, 1, 1, 1, 2, 3, 4, -1, -2]);
            let term = match self.choices.below(8) {
                0..5 if !axes.is_empty() => Affine::axis(self.choices.of(axes)),
                5 if !regs.is_empty() => Affine::reg(self.choices.of(regs)),
                6 if depth < 2 => {
                    self.affine(axes, regs, depth + 1).floor_div(self.choices.of(&[2, 3, 4, 1]))
                }
                7 if depth < 2 => {
                    self.affine(axes, regs, depth + 1).modulo(self.choices.of(&[2, 3, 4, 6]))
                }
                _ => continue,
            };
            sum = sum.add(&term.scale(factor));
        }
        sum
    }

    fn guard(&mut self, index: Affine) -> Guard {
        let low = self.choices.of(&[0, 0, -1, 1]);
        Guard { index, low, high: low + self.choices.of(&[2, 3, 4, 1, 0]) }
    }

    fn access(
        &mut self,
        buffer: BufferId,
        axes: &[AxisId],
        regs: &[Reg],
        earlier: &[Access],
    ) -> Access {
        // Half of the accesses copy the indices of an earlier one, since in-place updates need
        // equal indices.
        let visible = |term: &Term| match term {
            Term::Axis(axis) => axes.contains(axis),
            Term::Reg(reg) => regs.contains(reg),
            _ => true,
        };
        let fits = |a: &&Access| {
            let mut all = a.buffer == buffer;
            a.expressions().for_each(|e| e.visit_terms(&mut |t| all &= visible(t)));
            all
        };
        let same: Vec<&Access> = earlier.iter().filter(fits).collect();
        if !same.is_empty() && self.choices.chance(2) {
            return self.choices.of(&same).clone();
        }
        let rank = self.nest.buffers[buffer].shape.len();
        let mut indices: Vec<Affine> = match self.choices.below(3) {
            // The point itself, so that the verifier accepts enough nests.
            0 => (0..rank)
                .map(|n| axes.get(n).map_or(Affine::constant(0), |a| Affine::axis(*a)))
                .collect(),
            _ => (0..rank).map(|_| self.affine(axes, regs, 0)).collect(),
        };
        let mut guards = Vec::new();
        if self.choices.chance(3) {
            let index = if self.choices.chance(2) || rank == 0 {
                self.affine(axes, regs, 0)
            } else {
                let n = self.choices.below(rank);
                indices[n].clone()
            };
            guards.push(self.guard(index));
        }
        for index in &mut indices {
            let range = Ranges::new(&self.nest, &guards).of(index);
            if range.width() > 1 << 20 {
                guards.push(Guard { index: index.clone(), low: 0, high: 3 });
            } else if range.low < 0 && !self.choices.chance(30) {
                *index = index.offset(-range.low as i64);
            }
        }
        for (n, index) in indices.iter().enumerate() {
            let range = Ranges::new(&self.nest, &guards).of(index);
            if range.high < 40 && !self.choices.chance(30) {
                let extent = &mut self.nest.buffers[buffer].shape[n];
                *extent = (*extent).max(range.high.max(0) as usize + 1);
            }
        }
        Access { buffer, indices, guards, clamp: false }
    }

    fn define(&mut self) -> Reg {
        self.nest.registers.push(DType::I32)
    }

    fn build(mut self) -> Nest {
        let mut row_regs: Vec<Reg> = Vec::new();
        let (x, y, z, t) = (BufferId(0), BufferId(1), BufferId(2), BufferId(3));
        let parallel = self.nest.parallel.clone();
        let mut accesses: Vec<Access> = Vec::new();
        for _ in 0..self.choices.of(&[1, 2, 2, 3]) {
            let inner: Vec<AxisId> = ["j", "k"][..self.choices.below(3)]
                .iter()
                .map(|n| {
                    let extent = self.choices.of(&[2, 3, 4, 1]);
                    self.nest.axes.push(Axis { name: (*n).into(), extent })
                })
                .collect();
            let axes = [&parallel[..], &inner].concat();
            let mut regs = row_regs.clone();
            let mut body = Vec::new();
            for _ in 0..self.choices.of(&[2, 2, 3, 4]) {
                let store = self.choices.chance(2) && !regs.is_empty();
                let buffer = if store {
                    self.choices.of(&[z, t, y])
                } else {
                    self.choices.of(&[z, t, x, x])
                };
                let mut access = self.access(buffer, &axes, &regs, &accesses);
                accesses.push(access.clone());
                if store {
                    if buffer == y && access.guards.is_empty() {
                        // A guard that always holds. Without it the verifier would also check that
                        // all of `y` is written, which another test covers.
                        access.guards.push(Guard { index: Affine::constant(0), low: 0, high: 1 });
                    }
                    let value = self.choices.of(&regs);
                    body.push(Instr::Store { access, value, total: None });
                    continue;
                }
                let fill = if access.guards.is_empty() {
                    None
                } else {
                    let result = self.define();
                    body.push(Instr::Const { result, value: Scalar::from_i64(DType::I32, 1) });
                    Some(result)
                };
                access.clamp = buffer != z && self.choices.chance(6);
                let result = self.define();
                body.push(Instr::Load { result, access, fill });
                regs.push(result);
            }
            if inner.is_empty() {
                row_regs = regs;
            }
            self.nest.phases.push(Phase { axes: inner, body, reductions: Vec::new() });
        }
        if !accesses.iter().any(|a| a.buffer == y) {
            self.nest.buffers[y].shape.fill(0);
        }
        self.nest
    }
}

fn wild(choices: &mut Choices<'_>) -> Nest {
    let names = [
        ("x", BufferRole::In),
        ("y", BufferRole::Out),
        ("z", BufferRole::InOut),
        ("t", BufferRole::Row),
    ];
    let buffers: IdVec<BufferId, Buffer> = names
        .iter()
        .map(|(name, role)| Buffer {
            name: (*name).into(),
            dtype: DType::I32,
            shape: vec![1; choices.of(&[1, 2, 3])],
            pitch: if choices.chance(20) { Some(choices.of(&[2, 9, 1])) } else { None },
            role: *role,
        })
        .collect();
    let mut axes = IdVec::new();
    let parallel = ["i", "h"][..choices.below(3)]
        .iter()
        .map(|n| axes.push(Axis { name: (*n).into(), extent: choices.of(&[2, 3, 4, 1]) }))
        .collect();
    let nest = Nest {
        name: "wild".into(),
        buffers,
        axes,
        parallel,
        phases: Vec::new(),
        registers: IdVec::new(),
    };
    // A copied access may name an axis of another phase. The verifier refuses such a nest.
    Wild { choices, nest }.build().renumber()
}

/// A refused nest may run without a fault, since the verifier is conservative. The test prints how
/// many do.
#[test]
fn what_the_verifier_accepts_runs_without_a_fault() {
    let mut random = Random(1);
    let (mut accepted, mut careful, mut refused) = (0, 0, 0);
    for _ in 0..60_000 {
        let numbers: Vec<u32> = (0..400).map(|_| random.bits() as u32).collect();
        let mut choices = Choices { numbers: numbers.iter() };
        let nest = wild(&mut choices);
        let verdict = verify(&nest);
        // Nests that are refused for their structure do not run.
        let run = |choices: &mut Choices<'_>| interpret(&nest, &inputs(choices, &nest));
        match verdict {
            Ok(()) => {
                accepted += 1;
                round_trip(&nest);
                for _ in 0..2 {
                    match run(&mut choices) {
                        Ok(_) => {}
                        Err(e) if e.message.contains("never written") => {}
                        Err(e) => panic!("{e}\n{nest}"),
                    }
                }
            }
            Err(_) => match run(&mut choices) {
                Ok(_) => careful += 1,
                Err(_) => refused += 1,
            },
        }
    }
    println!("{accepted} accepted, {refused} refused with reason, {careful} out of caution");
    assert!(accepted > 5_000 && refused > 5_000, "{accepted} {refused} {careful}");
}
