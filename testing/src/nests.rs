//! Random nests for tests: shapes, accesses, guards, trees and programs of every kind that the
//! verifier accepts.

use crate::Random;
use wengert_core::nest::{
    Affine, AxisId, BufferId, BufferRole, Combine, Guard, Nest, NestBuilder, Reg, ScalarOp, Tree,
};
use wengert_core::{DType, Literal, Scalar};

struct Writer<'r> {
    b: NestBuilder,
    random: &'r mut Random,
    parallel: Vec<AxisId>,
    inner: Vec<AxisId>,
    /// Registers that are visible, of any dtype.
    visible: Vec<Reg>,
    inputs: Vec<(BufferId, Vec<usize>, DType)>,
    /// Row storages that are written, and their extents.
    rows: Vec<(BufferId, Vec<usize>)>,
}

/// A nest, or `None` if the verifier refuses it.
pub fn nest(random: &mut Random) -> Option<Nest> {
    let mut writer = Writer {
        b: NestBuilder::new("random"),
        random,
        parallel: vec![],
        inner: vec![],
        visible: vec![],
        inputs: vec![],
        rows: vec![],
    };
    let mut budget = 3000;
    for name in ["i", "j", "k"].into_iter().take(writer.random.below(4)) {
        let extent = writer.extent(&mut budget);
        let axis = writer.b.parallel(name, extent);
        writer.parallel.push(axis);
    }
    for _ in 0..1 + writer.random.below(3) {
        writer.phase(budget);
    }
    // Uses every register that would be dead otherwise.
    writer.last_phase();
    writer.pitches();
    writer.b.finish().ok()
}

impl Writer<'_> {
    fn extent(&mut self, budget: &mut usize) -> usize {
        let sizes = [1, 2, 3, 4, 5, 7, 10, 16, 17, 33, 48, 64, 70, 130, 300, 512, 600];
        let fitting: Vec<usize> = sizes.into_iter().filter(|s| s <= budget).collect();
        let extent = if self.random.chance(2) { 0 } else { *self.random.pick(&fitting) };
        *budget /= extent.max(1);
        extent
    }

    fn axes(&self) -> Vec<AxisId> {
        self.parallel.iter().chain(&self.inner).copied().collect()
    }

    fn phase(&mut self, mut budget: usize) {
        let outer = self.visible.len();
        let extents: Vec<(&str, usize)> = ["m", "n", "o"]
            .into_iter()
            .take(self.random.below(4))
            .map(|name| (name, self.extent(&mut budget)))
            .collect();
        self.inner = self.b.phase_over(&extents);
        for _ in 0..1 + self.random.below(7) {
            self.instruction();
        }
        let has_prefix = !extents.is_empty() && self.random.chance(25);
        let reverse = self.random.chance(40);
        if has_prefix {
            let (values, combine) = self.tuple();
            let results = self.b.prefix(&values, combine, reverse);
            self.visible.extend(results);
        }
        if self.random.chance(40) {
            self.store_output();
        }
        if self.random.chance(25) {
            self.update_in_place();
        }
        if self.random.chance(25) && !extents.is_empty() {
            self.fill_row(&extents);
        }
        let mut results = vec![];
        if !(has_prefix && reverse) {
            for _ in 0..self.random.below(3) {
                let (values, combine) = self.tuple();
                let lanes = 1 << self.random.below(7);
                let block = if self.random.chance(40) {
                    lanes * (1 + self.random.below(4) as u32)
                } else {
                    0
                };
                results.extend(self.b.reduce(&values, combine, Tree { lanes, block }));
            }
        }
        if !extents.is_empty() {
            self.visible.truncate(outer);
        }
        self.visible.extend(results);
    }

    fn last_phase(&mut self) {
        let live: Vec<Reg> = self.visible.clone();
        self.inner = self.b.phase_over(&[]);
        for reg in live.into_iter().rev().take(6) {
            let shape: Vec<usize> = self.parallel.iter().map(|a| self.b.extent(*a)).collect();
            let buffer = self.b.output("row_result", self.b.dtype(reg), &shape);
            let indices: Vec<Affine> = self.parallel.iter().map(|a| Affine::axis(*a)).collect();
            self.b.store(buffer, &indices, reg);
        }
        self.store_output();
    }

    /// Gives some parameters padding between their rows. Parameters of one shape often have one
    /// pitch, as it must be if one overwrites the other.
    fn pitches(&mut self) {
        if !self.random.chance(30) {
            return;
        }
        for id in self.b.buffers() {
            let buffer = self.b.buffer_of(id);
            let [_, .., row] = buffer.shape[..] else { continue };
            if buffer.role != BufferRole::Row && self.random.chance(70) {
                let more = [1, 1, 1, 2, 3, 8, 100][self.random.below(7)];
                self.b.set_pitch(id, Some(row + more));
            }
        }
    }

    /// A register of the dtype.
    fn operand(&mut self, dtype: DType) -> Reg {
        let fitting: Vec<Reg> =
            self.visible.iter().copied().filter(|r| self.b.dtype(*r) == dtype).collect();
        let reg = if !fitting.is_empty() && self.random.chance(90) {
            *self.random.pick(&fitting)
        } else if !self.visible.is_empty() && self.random.chance(50) {
            let from = *self.random.pick(&self.visible.clone());
            self.b.convert(from, dtype)
        } else {
            let value = self.random.below(7) as f64 - 2.5;
            self.b.constant(Scalar::from_f64(dtype, value))
        };
        self.visible.push(reg);
        reg
    }

    /// A combine program, and its operands.
    fn tuple(&mut self) -> (Vec<Reg>, Combine) {
        let number =
            *self.random.pick(&[DType::F32, DType::F32, DType::F64, DType::I32, DType::I64]);
        match self.random.below(8) {
            0 => (vec![self.operand(number)], Combine::prod(number)),
            1 => (vec![self.operand(number)], Combine::max(number)),
            2 => (vec![self.operand(DType::Bool)], Combine::or(DType::Bool)),
            3 => {
                let value = self.operand(number);
                let at = self.index(DType::I32);
                (vec![value, at], Combine::argmax(number, DType::I32))
            }
            4 => {
                let value = self.operand(DType::F32);
                let (mean, square, count) =
                    (value, self.operand(DType::F32), self.b.constant(1.0_f32.into()));
                (vec![mean, square, count], Combine::welford(DType::F32))
            }
            _ => (vec![self.operand(number)], Combine::sum(number)),
        }
    }

    /// An expression over some visible axes, with its minimum and maximum.
    fn affine(&mut self) -> (Affine, i64, i64) {
        let mut axes = self.axes();
        let mut sum = Affine::constant(0);
        let (mut low, mut high) = (0i64, 0i64);
        for _ in 0..*self.random.pick(&[0, 1, 1, 1, 1, 2]) {
            if axes.is_empty() {
                break;
            }
            let axis = axes.swap_remove(self.random.below(axes.len()));
            let factor = *self.random.pick(&[1, 1, 1, 1, 2, 3, -1]);
            let last = self.b.extent(axis) as i64 - 1;
            sum = sum.add(&Affine::axis(axis).scale(factor));
            if factor > 0 {
                high += factor * last.max(0);
            } else {
                low += factor * last.max(0);
            }
        }
        let offset = -low;
        (sum.offset(offset), 0, high - low)
    }

    /// A quasi-affine expression and its maximum; its minimum is 0.
    fn quasi(&mut self) -> (Affine, i64) {
        let (sum, _, high) = self.affine();
        let divisor = *self.random.pick(&[2, 3, 4, 5, 10]);
        match self.random.below(6) {
            0 => (sum.floor_div(divisor), high / divisor),
            1 => (sum.modulo(divisor), high.min(divisor - 1)),
            _ => (sum, high),
        }
    }

    fn index(&mut self, dtype: DType) -> Reg {
        let (sum, _) = self.quasi();
        let reg = self.b.index(&sum.offset(self.random.below(3) as i64 - 1), dtype);
        self.visible.push(reg);
        reg
    }

    fn instruction(&mut self) {
        match self.random.below(12) {
            0..=3 => self.load(),
            4 => {
                let dtype = *self.random.pick(&[DType::I32, DType::I64, DType::U8]);
                self.index(dtype);
            }
            5 => {
                let guards = self.guards(2);
                let test = self.b.test(&guards);
                self.visible.push(test);
            }
            6 => {
                let to = *self.random.pick(&DType::IN_KERNELS);
                if !self.visible.is_empty() {
                    let from = *self.random.pick(&self.visible.clone());
                    let reg = self.b.convert(from, to);
                    self.visible.push(reg);
                }
            }
            _ => self.scalar(),
        }
    }

    /// The product of a derivative: 0 where a number is 0. Sometimes another instruction reads
    /// its parts.
    fn zero_or_product(&mut self) {
        let [test, x, y] = [(); 3].map(|()| self.operand(DType::F32));
        let test = if self.random.chance(70) { y } else { test };
        let zero = self.b.constant(Scalar::from_f64(DType::F32, 0.0));
        let other = if self.random.chance(30) {
            self.b.constant(Scalar::from_f64(DType::F32, *self.random.pick(&[-0.0, 1.0])))
        } else {
            zero
        };
        let condition = self.b.scalar(ScalarOp::Eq, &[test, other]);
        let product = self.b.scalar(ScalarOp::Mul, &[x, y]);
        let reg = self.b.scalar(ScalarOp::Select, &[condition, zero, product]);
        for part in [condition, product] {
            if self.random.chance(15) {
                self.visible.push(part);
            }
        }
        self.visible.push(reg);
    }

    fn scalar(&mut self) {
        if self.random.chance(15) {
            return self.zero_or_product();
        }
        // An approximate instruction has no fixed bits.
        let op = self.random.pick(ScalarOp::ALL).exact();
        if matches!(op, ScalarOp::Convert | ScalarOp::Bitcast) {
            return;
        }
        let dtypes: Vec<DType> =
            DType::IN_KERNELS.into_iter().filter(|d| op.class().contains(*d)).collect();
        let dtype = if op.class().contains(DType::F32) && self.random.chance(60) {
            DType::F32
        } else {
            *self.random.pick(&dtypes)
        };
        let mut operands: Vec<Reg> = (0..op.arity()).map(|_| self.operand(dtype)).collect();
        if op == ScalarOp::Select {
            operands[0] = self.operand(DType::Bool);
        }
        let reg = self.b.scalar(op, &operands);
        self.visible.push(reg);
    }

    fn guards(&mut self, most: usize) -> Vec<Guard> {
        (0..1 + self.random.below(most))
            .map(|_| {
                let (index, high) = self.quasi();
                let low = self.random.below(3) as i64 - 1;
                let high = low + 1 + self.random.below(high as usize + 2) as i64;
                Guard { index, low, high }
            })
            .collect()
    }

    fn load(&mut self) {
        let dtype = *self.random.pick(&[
            DType::F32,
            DType::F32,
            DType::F32,
            DType::F64,
            DType::F16,
            DType::BF16,
            DType::I32,
            DType::I64,
            DType::Bool,
            DType::U8,
        ]);
        if let (Some((buffer, extents)), true) = (self.rows.last().cloned(), self.random.chance(30))
            && self.inner.len() >= extents.len()
        {
            // Indices that fit only by chance: the verifier decides.
            let indices: Vec<Affine> =
                self.inner.iter().take(extents.len()).map(|a| Affine::axis(*a)).collect();
            let fits = self.inner.iter().zip(&extents).all(|(a, e)| self.b.extent(*a) <= *e);
            if fits {
                let reg = self.b.load(buffer, &indices);
                self.visible.push(reg);
                return;
            }
        }
        let rank = self.random.below(4);
        let mut indices: Vec<(Affine, i64)> = (0..rank).map(|_| self.quasi()).collect();
        while indices.iter().map(|(_, high)| high + 2).product::<i64>() > 20_000 {
            indices.pop();
        }
        let reg = match self.random.below(5) {
            0 => {
                let integers: Vec<Reg> = self
                    .visible
                    .iter()
                    .copied()
                    .filter(|r| matches!(self.b.dtype(*r), DType::I32 | DType::I64))
                    .collect();
                let shape: Vec<usize> = indices.iter().map(|_| 1 + self.random.below(9)).collect();
                let mut expressions: Vec<Affine> = indices.into_iter().map(|(e, _)| e).collect();
                if let Some(first) = expressions.first_mut()
                    && !integers.is_empty()
                {
                    *first = Affine::reg(*self.random.pick(&integers));
                }
                let buffer = self.b.input("x", dtype, &shape);
                self.b.load_clamped(buffer, &expressions)
            }
            1 => {
                let shift = self.random.below(5) as i64 - 2;
                let shape: Vec<usize> =
                    indices.iter().map(|(_, high)| *high as usize + 1).collect();
                let moved: Vec<Affine> = indices.iter().map(|(e, _)| e.offset(shift)).collect();
                let mut guards: Vec<Guard> = moved
                    .iter()
                    .zip(&shape)
                    .map(|(index, extent)| Guard {
                        index: index.clone(),
                        low: 0,
                        high: *extent as i64,
                    })
                    .collect();
                if self.random.chance(50) {
                    guards.extend(self.guards(1));
                }
                let fill = self.operand(dtype);
                let buffer = self.b.input("x", dtype, &shape);
                self.b.load_guarded(buffer, &moved, &guards, fill)
            }
            _ => {
                let shape: Vec<usize> = indices
                    .iter()
                    .map(|(_, high)| *high as usize + 1 + self.random.below(2))
                    .collect();
                let known = self.inputs.iter().find(|(_, s, d)| *s == shape && *d == dtype);
                let buffer = match known {
                    Some((buffer, ..)) => *buffer,
                    None => self.b.input("x", dtype, &shape),
                };
                self.inputs.push((buffer, shape, dtype));
                let indices: Vec<Affine> = indices.into_iter().map(|(e, _)| e).collect();
                self.b.load(buffer, &indices)
            }
        };
        self.visible.push(reg);
    }

    /// A buffer with one element for each iteration, in some order of the axes, and the indices.
    fn dense(&mut self) -> (Vec<usize>, Vec<Affine>) {
        let mut axes = self.axes();
        if self.random.chance(30) {
            let (a, b) =
                (self.random.below(axes.len().max(1)), self.random.below(axes.len().max(1)));
            if !axes.is_empty() {
                axes.swap(a, b);
            }
        }
        let shape = axes.iter().map(|a| self.b.extent(*a)).collect();
        let indices = axes.iter().map(|a| {
            let axis = Affine::axis(*a);
            let backwards = self.random.chance(10);
            if backwards { axis.scale(-1).offset(self.b.extent(*a) as i64 - 1) } else { axis }
        });
        (shape, indices.collect())
    }

    fn store_output(&mut self) {
        for _ in 0..1 + self.random.below(2) {
            let dtype = *self.random.pick(&DType::IN_KERNELS);
            let value =
                if self.random.chance(60) { self.operand(DType::F32) } else { self.operand(dtype) };
            let dtype = self.b.dtype(value);
            let (shape, indices) = self.dense();
            let buffer = self.b.output("y", dtype, &shape);
            if self.random.chance(15) {
                // Two halves, each under a guard.
                let (test, high) = self.quasi();
                let split = self.random.below(high as usize + 1) as i64;
                let other = self.operand(dtype);
                let low = Guard { index: test.clone(), low: i64::MIN, high: split };
                let high = Guard { index: test, low: split, high: i64::MAX };
                self.b.store_guarded(buffer, &indices, &[low], value);
                self.b.store_guarded(buffer, &indices, &[high], other);
            } else {
                self.b.store(buffer, &indices, value);
            }
        }
    }

    fn update_in_place(&mut self) {
        let (shape, indices) = self.dense();
        let buffer = self.b.in_place("z", DType::F32, &shape);
        let old = self.b.load(buffer, &indices);
        self.visible.push(old);
        let other = self.operand(DType::F32);
        let new = self.b.scalar(ScalarOp::Sub, &[other, old]);
        let late = self.b.scalar(ScalarOp::Mul, &[new, old]);
        self.b.store(buffer, &indices, new);
        self.visible.extend([new, late]);
    }

    fn fill_row(&mut self, extents: &[(&str, usize)]) {
        let shape: Vec<usize> = extents.iter().map(|(_, e)| *e).collect();
        let value = self.operand(DType::F32);
        let buffer = self.b.buffer(BufferRole::Row, "r", DType::F32, &shape);
        let indices: Vec<Affine> = self.inner.iter().map(|a| Affine::axis(*a)).collect();
        self.b.store(buffer, &indices, value);
        self.rows.push((buffer, shape));
    }
}

/// Random elements, special values among them.
pub fn literal(random: &mut Random, dtype: DType, shape: &[usize]) -> Literal {
    let count: usize = shape.iter().product();
    let values: Vec<Scalar> = (0..count)
        .map(|_| match random.below(40) {
            0 => Scalar::from_f64(
                dtype,
                *random.pick(&[0.0, -0.0, f64::INFINITY, f64::NAN, 1e-41, -3e38]),
            ),
            1..10 => Scalar::from_i64(dtype, random.below(7) as i64 - 2),
            _ => Scalar::from_f64(dtype, random.below(1 << 20) as f64 / f64::from(1 << 17) - 4.0),
        })
        .collect();
    Literal::from_scalars(dtype, shape, &values).expect("as many values as elements")
}
