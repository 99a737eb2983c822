//! `cp.async.bulk`, `cp.async.bulk.tensor`, `cp.reduce.async.bulk`.

use super::{Copy, Direction, Hopper, Needs, Place};
use crate::decode::arithmetic::float_format;
use crate::decode::modifiers::Modifiers;
use crate::decode::program::{AtomicOperation, Op, Operand};
use crate::decode::{Builder, Class, Frame, Result};
use crate::parse::syntax::{self, Type};
use crate::semantics::float::{Float, Operation};

const B32: Type = Type::Bits(32);
const NOWHERE: Place = Place { offset: 0, generic: false, cluster: false };
const RANKS: [(&str, usize); 5] = [("1d", 1), ("2d", 2), ("3d", 3), ("4d", 4), ("5d", 5)];

impl<'a> Builder<'a> {
    /// `cp.async.bulk…` and `cp.reduce.async.bulk…`, whose `async` has been consumed.
    pub(in crate::decode) fn bulk(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        m.take("bulk");
        self.needs(i, "cp.async.bulk", Needs::AtLeast(90))?;
        if m.take("commit_group") {
            self.exactly(i, 0)?;
            self.emit(frame, i, Op::Hopper(Box::new(Hopper::Commit)), vec![], vec![]);
            return Ok(true);
        }
        if m.take("wait_group") {
            let read = m.take("read");
            let syntax::Operand::Integer(groups) = *self.operand(i, 0)? else {
                return self.error(i, "the number of groups is a constant");
            };
            self.exactly(i, 1)?;
            let wait = Hopper::WaitGroup(groups.min(u32::MAX.into()) as u32, read);
            self.emit(frame, i, Op::Hopper(Box::new(wait)), vec![], vec![]);
            return Ok(true);
        }
        if m.take("prefetch") {
            // The caches have no state here.
            m.take_all(|_| true);
            self.emit(frame, i, Op::Nothing, vec![], vec![]);
            return Ok(true);
        }
        let reduces = m.take("reduce");
        let tensor = m.take("tensor");
        let rank = if tensor {
            match RANKS.iter().find(|(name, _)| m.take(name)) {
                Some(&(_, rank)) => rank,
                None => return self.error(i, "the tensor's rank is .1d to .5d"),
            }
        } else {
            0
        };
        if tensor {
            m.take("tile");
        }
        // The destination's space stands before the source's.
        let at = |word: &str| i.modifiers.iter().position(|m| m == word);
        let (cta, cluster, global) = (at("shared::cta"), at("shared::cluster"), at("global"));
        let direction = match (cta, cluster, global) {
            (None, Some(to), Some(from)) if to < from => Direction::Load,
            (Some(to), None, Some(from)) if to < from => Direction::Load,
            (Some(from), None, Some(to)) if to < from => Direction::Store,
            (Some(from), Some(to), None) if to < from && !tensor => Direction::Share,
            _ => return self.error(i, "a bulk copy does not go this way"),
        };
        for space in ["shared::cta", "shared::cluster", "global"] {
            m.take(space);
        }
        let grouped = direction == Direction::Store;
        let completion = if grouped { "bulk_group" } else { "mbarrier::complete_tx::bytes" };
        if !m.take(completion) {
            return self.error(i, format!("the completion of this copy is .{completion}"));
        }
        let multicast = m.take("multicast::cluster");
        if multicast && direction != Direction::Load {
            return self.error(i, "only a load is .multicast");
        }
        let hinted = m.take("L2::cache_hint");
        let reduce = if reduces { Some(self.reduction(i, m, tensor, direction)?) } else { None };
        let count = match (direction, tensor) {
            (Direction::Store, true) => 2,
            (_, true) | (Direction::Store, false) => 3,
            _ => 4,
        };
        self.exactly(i, count + usize::from(multicast) + usize::from(hinted))?;
        let (mut to, mut from, mut barrier) = (NOWHERE, NOWHERE, NOWHERE);
        let mut inputs = Vec::new();
        let shared = |cluster: bool| Some(if cluster { "shared::cluster" } else { "shared" });
        let operands = &i.operands;
        if direction == Direction::Store {
            if tensor {
                self.tensor(frame, i, &operands[0], rank, &mut inputs)?;
            } else {
                let (_, base, offset) = self.address(frame, i, &operands[0])?;
                to = Place { offset, ..NOWHERE };
                inputs.push(base);
            }
            let (place, base) = self.shared_place(frame, i, &operands[1], shared(false))?;
            from = place;
            inputs.push(base);
        } else {
            let (place, base) =
                self.shared_place(frame, i, &operands[0], shared(cluster.is_some()))?;
            to = place;
            inputs.push(base);
            if tensor {
                self.tensor(frame, i, &operands[1], rank, &mut inputs)?;
            } else if direction == Direction::Share {
                let (place, base) = self.shared_place(frame, i, &operands[1], shared(false))?;
                from = place;
                inputs.push(base);
            } else {
                let (_, base, offset) = self.address(frame, i, &operands[1])?;
                from = Place { offset, ..NOWHERE };
                inputs.push(base);
            }
        }
        if !tensor {
            let size = self.source(frame, i, &operands[2], B32)?;
            self.expect(i, size, Class::Word)?;
            inputs.push(size);
        }
        if !grouped {
            let operand = &operands[if tensor { 2 } else { 3 }];
            let (place, base) = self.shared_place(frame, i, operand, shared(cluster.is_some()))?;
            barrier = place;
            inputs.push(base);
        }
        if multicast {
            let mask = self.source(frame, i, &operands[count], Type::Bits(16))?;
            self.expect(i, mask, Class::Word)?;
            inputs.push(mask);
        }
        let copy = Copy { direction, rank, to, from, barrier, multicast, reduce };
        self.emit(frame, i, Op::Hopper(Box::new(Hopper::Copy(copy))), vec![], inputs);
        Ok(true)
    }

    /// `[map, {x, y}]`: the map's generic address, then the coordinates.
    fn tensor(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        operand: &'a syntax::Operand,
        rank: usize,
        inputs: &mut Vec<Operand>,
    ) -> Result<()> {
        let syntax::Operand::Tensor(map, coordinates) = operand else {
            return self.error(i, "a tensor is a map and coordinates, `[map, {x, y}]`");
        };
        if coordinates.len() != rank {
            let given = coordinates.len();
            return self.error(i, format!("the tensor has {rank} coordinates, not {given}"));
        }
        let map = self.source(frame, i, map, Type::Bits(64))?;
        self.expect(i, map, Class::Double)?;
        inputs.push(map);
        for coordinate in coordinates {
            let coordinate = self.source(frame, i, coordinate, B32)?;
            self.expect(i, coordinate, Class::Word)?;
            inputs.push(coordinate);
        }
        Ok(())
    }

    /// The operation of `cp.reduce.async.bulk`, and the bytes of an element. A tensor's elements
    /// have the type of its map, which is known when the kernel runs: execution takes the addition
    /// of that type, and from here only that there is one.
    fn reduction(
        &mut self,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
        tensor: bool,
        direction: Direction,
    ) -> Result<(AtomicOperation, u32)> {
        if direction != Direction::Store {
            return self.error(i, "`cp.reduce` is supported from shared to global memory");
        }
        if !m.take("add") {
            return self.error(i, "`cp.reduce` is supported with .add");
        }
        m.take("noftz");
        if tensor {
            return Ok((AtomicOperation::Add, 0));
        }
        let ty = self.one_type(i, m)?;
        let operation = match ty {
            Type::Unsigned(32 | 64) | Type::Signed(32) => AtomicOperation::Add,
            Type::Float(16 | 32) | Type::Brain => {
                let (format, _) = float_format(ty).expect("the type is a float");
                AtomicOperation::Float(Float::new(Operation::Add, format))
            }
            _ => return self.error(i, "`cp.reduce.add` is supported for 16 and 32-bit numbers"),
        };
        Ok((operation, ty.bytes()))
    }
}
