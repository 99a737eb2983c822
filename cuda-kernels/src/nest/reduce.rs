//! Reductions by one thread, element after element.
//!
//! A tree of one lane is an accumulator in registers. More lanes are an array in the thread's
//! local memory. This path takes any tree: it serves nests that no team fits, and is the
//! reference for those that do. Where the tree has blocks, a block is closed at the first element
//! of the next block.

use super::emit::Emit;
use super::vector::{from_memory, to_memory};
use crate::ptx::{Binary, Compare, Operand, Reg, SharedArray, Space, Ternary, Type};
use crate::scalar::{self, memory_type};
use wengert_core::nest::{Combine, Reduction};
use wengert_core::{DType, Id, Result, Scalar};

/// A reduction in progress, for each copy.
pub(super) struct Reducer<'r> {
    reduction: &'r Reduction,
    dtypes: Vec<DType>,
    lanes: Vec<Lanes>,
    /// Results of the blocks so far, and whether there are any; for trees of several blocks.
    totals: Option<(Vec<Vec<Reg>>, Reg)>,
    /// Number of elements in the block, where it is needed.
    filled: Option<Reg>,
}

enum Lanes {
    /// The accumulator.
    One(Vec<Reg>),
    /// Addresses of arrays in local memory, one for each element of the tuple.
    Many(Vec<Reg>),
}

impl<'r> Reducer<'r> {
    /// An empty reduction of `count` elements.
    pub fn new(emit: &mut Emit<'_>, reduction: &'r Reduction, copies: usize, count: usize) -> Self {
        let dtypes = reduction.combine.dtypes();
        let tree = reduction.tree;
        let blocks = tree.block > 0 && count > tree.block as usize;
        let many = tree.lanes > 1;
        let lanes = (0..copies)
            .map(|_| {
                if !many {
                    return Lanes::One(emit.identity(&reduction.combine));
                }
                let arrays =
                    dtypes.iter().map(|d| emit.local_array("lanes", *d, tree.lanes as usize));
                Lanes::Many(arrays.collect())
            })
            .collect();
        let totals = blocks.then(|| {
            let totals = (0..copies).map(|_| emit.identity(&reduction.combine)).collect();
            (totals, scalar::constant(&mut emit.code, Scalar::of(false)))
        });
        let filled = (blocks || many).then(|| emit.code.mov(Type::B32, 0));
        let this = Reducer { reduction, dtypes, lanes, totals, filled };
        this.reset(emit);
        this
    }

    /// Sets all lanes of an array to the identity.
    fn reset(&self, emit: &mut Emit<'_>) {
        for lanes in &self.lanes {
            match lanes {
                Lanes::One(accumulator) => {
                    for (register, value) in
                        accumulator.iter().zip(&self.reduction.combine.identity)
                    {
                        scalar::assign_constant(&mut emit.code, *register, *value);
                    }
                }
                Lanes::Many(arrays) => {
                    for (array, value) in arrays.iter().zip(&self.reduction.combine.identity) {
                        let register = scalar::constant(&mut emit.code, *value);
                        let dtype = value.dtype();
                        let lanes = i64::from(self.reduction.tree.lanes);
                        let (base, size) = (*array, dtype.size() as i64);
                        let stored = to_memory(&mut emit.code, dtype, register);
                        emit.code.count(0, lanes, 1, |code, lane| {
                            let at = code.ternary(Ternary::MadWide, Type::U32, lane, size, base);
                            code.store(Space::Local, memory_type(dtype), at, 0, stored);
                        });
                    }
                }
            }
        }
    }

    /// Adds the values of this iteration.
    pub fn push(&self, emit: &mut Emit<'_>) -> Result<()> {
        if let (Some(filled), Some(_)) = (self.filled, &self.totals) {
            let full = emit.code.compare(
                Compare::Eq,
                Type::S32,
                filled,
                i64::from(self.reduction.tree.block),
            );
            emit.when(full, |emit| {
                self.close(emit)?;
                self.reset(emit);
                emit.code.assign(Type::B32, filled, 0);
                Ok(())
            })?;
        }
        for (copy, lanes) in self.lanes.iter().enumerate() {
            let values: Vec<Reg> =
                self.reduction.values.iter().map(|r| emit.value(copy, *r)).collect();
            match lanes {
                Lanes::One(accumulator) => {
                    let next = emit.combine(&self.reduction.combine, accumulator, &values)?;
                    emit.assign(&self.dtypes, accumulator, &next);
                }
                Lanes::Many(arrays) => {
                    let filled = self.filled.expect("arrays of lanes have a counter");
                    let mask = i64::from(self.reduction.tree.lanes) - 1;
                    let lane = emit.code.binary(Binary::And, Type::B32, filled, mask);
                    let old = emit.lane(&self.dtypes, arrays, lane);
                    let next = emit.combine(&self.reduction.combine, &old, &values)?;
                    emit.set_lane(&self.dtypes, arrays, lane, &next);
                }
            }
        }
        if let Some(filled) = self.filled {
            emit.code.binary_into(filled, Binary::Add, Type::S32, filled, 1);
        }
        Ok(())
    }

    /// Combines the lanes in halves, and adds the result to the total, if there is one. Returns
    /// the block's results.
    fn close(&self, emit: &mut Emit<'_>) -> Result<Vec<Vec<Reg>>> {
        let mut results = Vec::new();
        for (copy, lanes) in self.lanes.iter().enumerate() {
            let block = match lanes {
                Lanes::One(accumulator) => accumulator.clone(),
                Lanes::Many(arrays) => {
                    emit.halve(&self.reduction.combine, arrays, self.reduction.tree.lanes)?;
                    let first = emit.code.mov(Type::B32, 0);
                    emit.lane(&self.dtypes, arrays, first)
                }
            };
            let Some((totals, any)) = &self.totals else {
                results.push(block);
                continue;
            };
            let total = &totals[copy];
            let (first, end) = (emit.code.label(), emit.code.label());
            emit.code.branch_unless(*any, first);
            emit.open();
            let sum = emit.combine(&self.reduction.combine, total, &block)?;
            emit.assign(&self.dtypes, total, &sum);
            emit.close();
            emit.code.branch(end);
            emit.code.place(first);
            emit.assign(&self.dtypes, total, &block);
            emit.code.place(end);
            results.push(total.clone());
        }
        if let Some((_, any)) = &self.totals {
            scalar::assign_constant(&mut emit.code, *any, Scalar::of(true));
        }
        Ok(results)
    }

    /// Ends the reduction; the results become registers of the row. `count` elements were pushed.
    pub fn finish(self, emit: &mut Emit<'_>, count: usize) -> Result<()> {
        let results = if count == 0 {
            (0..self.lanes.len()).map(|_| emit.identity(&self.reduction.combine)).collect()
        } else {
            self.close(emit)?
        };
        for (row, values) in emit.row.iter_mut().zip(results) {
            for (result, value) in self.reduction.results.iter().zip(values) {
                row[result.index()] = Some(value);
            }
        }
        Ok(())
    }
}

impl Emit<'_> {
    /// A new array of the thread; its address.
    pub fn local_array(&mut self, name: &str, dtype: DType, elements: usize) -> Reg {
        let name = format!("{name}{}", self.local.len());
        let bytes = (elements * dtype.size()).next_multiple_of(16);
        let bytes =
            u32::try_from(bytes).expect("arrays of the thread are bounded before they are made");
        self.local.push(SharedArray { name: name.clone(), align: 16, bytes });
        self.code.mov(Type::B64, Operand::Symbol(name))
    }

    fn at(&mut self, dtype: DType, array: Reg, lane: Reg) -> Reg {
        self.code.ternary(Ternary::MadWide, Type::U32, lane, dtype.size() as i64, array)
    }

    /// The tuple of a lane.
    fn lane(&mut self, dtypes: &[DType], arrays: &[Reg], lane: Reg) -> Vec<Reg> {
        let load = |(dtype, array): (&DType, &Reg)| {
            let at = self.at(*dtype, *array, lane);
            let value = self.code.load(Space::Local, memory_type(*dtype), at, 0);
            from_memory(&mut self.code, *dtype, value)
        };
        dtypes.iter().zip(arrays).map(load).collect()
    }

    fn set_lane(&mut self, dtypes: &[DType], arrays: &[Reg], lane: Reg, values: &[Reg]) {
        for ((dtype, array), value) in dtypes.iter().zip(arrays).zip(values) {
            let at = self.at(*dtype, *array, lane);
            let value = to_memory(&mut self.code, *dtype, *value);
            self.code.store(Space::Local, memory_type(*dtype), at, 0, value);
        }
    }

    /// `lane[l] = combine(lane[l], lane[l + h])` for h = lanes/2, …, 1.
    fn halve(&mut self, combine: &Combine, arrays: &[Reg], lanes: u32) -> Result<()> {
        let dtypes = combine.dtypes();
        let half = self.code.mov(Type::B32, i64::from(lanes / 2));
        let outer = self.code.label();
        self.code.place(outer);
        self.open();
        let lane = self.code.mov(Type::B32, 0);
        let inner = self.code.label();
        self.code.place(inner);
        let other = self.code.binary(Binary::Add, Type::S32, lane, half);
        let left = self.lane(&dtypes, arrays, lane);
        let right = self.lane(&dtypes, arrays, other);
        let sum = self.combine(combine, &left, &right)?;
        self.set_lane(&dtypes, arrays, lane, &sum);
        self.code.binary_into(lane, Binary::Add, Type::S32, lane, 1);
        let more = self.code.compare(Compare::Lt, Type::S32, lane, half);
        self.code.branch_if(more, inner);
        self.code.binary_into(half, Binary::Shr, Type::U32, half, 1);
        let more = self.code.compare(Compare::Gt, Type::S32, half, 0);
        self.code.branch_if(more, outer);
        self.close();
        Ok(())
    }
}
