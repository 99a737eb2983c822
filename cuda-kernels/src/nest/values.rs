//! Scalar instructions, constants and combine programs.

use super::emit::{Copy, Emit, Key, NestReg};
use super::share;
use crate::ptx::Reg;
use crate::scalar::{self, value_type};
use wengert_core::math;
use wengert_core::nest::{BufferId, Combine, Instr, ScalarOp, Total};
use wengert_core::{DType, Id, Result, Scalar};

impl Emit<'_> {
    /// A scalar instruction of all copies.
    pub fn scalars(
        &mut self,
        result: NestReg,
        op: ScalarOp,
        operands: &[NestReg],
        copies: usize,
    ) -> Result<()> {
        let dtypes: Vec<DType> = operands.iter().map(|r| self.nest.registers[*r]).collect();
        let dtype = self.nest.registers[result];
        match op {
            ScalarOp::Convert if copies > 1 && dtypes[0] == DType::F32 && dtype.is_half() => {
                return self.convert_pairs(result, operands[0], copies);
            }
            _ if math::moderate(op, dtype).is_some() => {
                return self.moderate(op, result, operands[0], copies);
            }
            _ => {}
        }
        let is_share = op == ScalarOp::Div && share::is_share(self.nest, operands[0], operands[1]);
        for copy in 0..copies {
            let given: Vec<Reg> = operands.iter().map(|r| self.value(copy, *r)).collect();
            let value = if is_share {
                let [x, y] = [given[0], given[1]];
                let key = Key::Scalar(op, dtype, dtype, given);
                self.once(key, |emit| share::divide(&mut emit.code, x, y))
            } else {
                self.scalar(op, &dtypes, dtype, given)?
            };
            self.define(copy, result, value);
        }
        Ok(())
    }

    /// Conversions of f32 to halves, two of them in one instruction.
    fn convert_pairs(&mut self, result: NestReg, operand: NestReg, copies: usize) -> Result<()> {
        let dtype = self.nest.registers[result];
        let key = |x: Reg| Key::Scalar(ScalarOp::Convert, DType::F32, dtype, vec![x]);
        let mut copy = 0;
        while copy < copies {
            let x = self.value(copy, operand);
            let y = (copy + 1 < copies).then(|| self.value(copy + 1, operand));
            match y {
                Some(y)
                    if x != y
                        && self.recall(&key(x)).is_none()
                        && self.recall(&key(y)).is_none() =>
                {
                    let (low, high) = scalar::convert_pair(&mut self.code, dtype, x, y);
                    for (n, (from, to)) in [(x, low), (y, high)].into_iter().enumerate() {
                        self.remember(key(from), to);
                        self.define(copy + n, result, to);
                    }
                    copy += 2;
                }
                _ => {
                    let value = self.scalar(ScalarOp::Convert, &[DType::F32], dtype, vec![x])?;
                    self.define(copy, result, value);
                    copy += 1;
                }
            }
        }
        Ok(())
    }

    /// A function with a shorter program for moderate operands, of all copies at once.
    fn moderate(
        &mut self,
        op: ScalarOp,
        result: NestReg,
        operand: NestReg,
        copies: usize,
    ) -> Result<()> {
        let dtype = self.nest.registers[result];
        let key = |x: Reg| Key::Scalar(op, dtype, dtype, vec![x]);
        let mut new: Vec<Reg> = (0..copies).map(|copy| self.value(copy, operand)).collect();
        new.sort_unstable();
        new.dedup();
        new.retain(|x| self.recall(&key(*x)).is_none());
        if !new.is_empty() {
            let values = scalar::moderate(&mut self.code, &mut self.functions, op, dtype, &new)
                .map_err(|d| d.context(format!("nest @{}", self.nest.name)))?
                .expect("the caller has asked for a function with such a program");
            new.into_iter().zip(values).for_each(|(x, value)| self.remember(key(x), value));
        }
        for copy in 0..copies {
            let x = self.value(copy, operand);
            let value = self.recall(&key(x)).expect("it was computed just now");
            self.define(copy, result, value);
        }
        Ok(())
    }

    /// A scalar instruction, if it is not known.
    pub fn scalar(
        &mut self,
        op: ScalarOp,
        dtypes: &[DType],
        result: DType,
        operands: Vec<Reg>,
    ) -> Result<Reg> {
        let last = dtypes.last().copied().unwrap_or(result);
        let key = Key::Scalar(op, last, result, operands.clone());
        if let Some(known) = self.recall(&key) {
            return Ok(known);
        }
        let value = self.emit(op, dtypes, result, &operands)?;
        self.remember(key, value);
        Ok(value)
    }

    fn emit(
        &mut self,
        op: ScalarOp,
        dtypes: &[DType],
        result: DType,
        operands: &[Reg],
    ) -> Result<Reg> {
        scalar::emit(&mut self.code, &mut self.functions, op, dtypes, result, operands)
            .map_err(|d| d.context(format!("nest @{}", self.nest.name)))
    }

    /// A constant, if it is not known.
    pub fn constant(&mut self, value: Scalar) -> Reg {
        self.once(Key::Constant(value), |emit| scalar::constant(&mut emit.code, value))
    }

    /// `combine(left, right)`, in new registers or those of the operands. Its values are not
    /// recorded, since accumulators change.
    pub fn combine(&mut self, combine: &Combine, left: &[Reg], right: &[Reg]) -> Result<Vec<Reg>> {
        let mut registers: Vec<Option<Reg>> = left.iter().chain(right).map(|r| Some(*r)).collect();
        registers.resize(combine.registers.len(), None);
        let of = |registers: &[Option<Reg>], r: &NestReg| {
            registers[r.index()].expect("a combine program is straight-line")
        };
        for instr in &combine.body {
            match instr {
                Instr::Scalar { result, op, operands } => {
                    let given: Vec<Reg> = operands.iter().map(|r| of(&registers, r)).collect();
                    let dtypes: Vec<DType> =
                        operands.iter().map(|r| combine.registers[*r]).collect();
                    let dtype = combine.registers[*result];
                    registers[result.index()] = Some(self.emit(*op, &dtypes, dtype, &given)?);
                }
                Instr::Const { result, value } => {
                    registers[result.index()] = Some(self.constant(*value));
                }
                _ => unreachable!("the verifier lets only these into a combine program"),
            }
        }
        Ok(combine.results.iter().map(|r| of(&registers, r)).collect())
    }

    /// New variables, initialised to the identity.
    pub fn identity(&mut self, combine: &Combine) -> Vec<Reg> {
        combine.identity.iter().map(|value| scalar::constant(&mut self.code, *value)).collect()
    }

    /// Adds the values of the copies to the accumulators of a total.
    pub fn add_to(
        &mut self,
        total: &Total,
        of: BufferId,
        values: Vec<Reg>,
        copies: &[Copy],
    ) -> Result<()> {
        let access = self.accumulators[&of].clone();
        let mut sums = self.load(&access, None, copies);
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum = self.combine(&total.combine, &[*sum], &[value])?[0];
        }
        self.store(&access, sums, copies);
        Ok(())
    }

    /// Copies registers of these dtypes into others.
    pub fn assign(&mut self, dtypes: &[DType], to: &[Reg], from: &[Reg]) {
        // A result may be another element's old value, so all are read before one is written.
        let moved = to.len() > 1 && from.iter().any(|r| to.contains(r));
        let from: Vec<Reg> = if moved {
            dtypes.iter().zip(from).map(|(d, r)| self.code.mov(value_type(*d), *r)).collect()
        } else {
            from.to_vec()
        };
        for ((dtype, to), from) in dtypes.iter().zip(to).zip(from) {
            if *to != from {
                self.code.assign(value_type(*dtype), *to, from);
            }
        }
    }
}
