//! Runs of additions, subtractions and multiplications of f32 become
//! [chains](crate::kernels::chain).
//!
//! An instruction absorbs the one that defines an operand, if that operand has no other use and
//! both run for the same blocks. The absorbed instruction then runs later, which is correct since
//! it has no effects.

use super::analyse::Analysis;
use super::lower::{FlatNest, Op};
use super::schedule::Schedule;
use crate::kernels::chain::{LONGEST, Link};
use wengert_core::nest::{Reg, ScalarOp};
use wengert_core::{DType, Id};

/// The nest with chains fused.
pub(super) fn chains<'n>(nest: &FlatNest<'n>, schedule: &Schedule) -> FlatNest<'n> {
    let analysis = Analysis::new(nest, schedule);
    let mut fused = nest.clone();
    for (p, phase) in fused.phases.iter_mut().enumerate() {
        let innermost = analysis.innermost(p);
        let fits = |reg: Reg| {
            let register = &analysis.registers[reg.index()];
            !register.uniform
                && register.defined.0 == p
                && register.level == innermost
                && analysis.dtype(reg) == DType::F32
        };
        let mut body: Vec<Op<'n>> = Vec::with_capacity(phase.body.len());
        for op in phase.body.drain(..) {
            let Op::Scalar { result, op: scalar, operands } = &op else {
                body.push(op);
                continue;
            };
            let Some(link) = link(*scalar).filter(|_| fits(*result)) else {
                body.push(op);
                continue;
            };
            // The longest chain that ends in an operand, if there is one.
            let found = [0, 1]
                .into_iter()
                .filter_map(|side| {
                    let reg = operands[side];
                    let once =
                        analysis.registers[reg.index()].uses == 1 && operands[1 - side] != reg;
                    let at = body
                        .iter()
                        .rposition(|op| op.results() == [reg])
                        .filter(|_| once && fits(reg))?;
                    let Op::Chain { links, .. } = &body[at] else { return None };
                    (links.len() < LONGEST).then_some((links.len(), at, side))
                })
                .max();
            let chain = match found {
                Some((_, at, side)) => {
                    let Op::Chain { mut links, operands: mut all, .. } = body.remove(at) else {
                        unreachable!("found as a chain")
                    };
                    links.push(if link == Link::Sub && side == 1 { Link::SubFrom } else { link });
                    all.push(operands[1 - side]);
                    Op::Chain { result: *result, links, operands: all }
                }
                None => {
                    Op::Chain { result: *result, links: vec![link], operands: operands.to_vec() }
                }
            };
            body.push(chain);
        }
        phase.body = body;
    }
    fused
}

fn link(op: ScalarOp) -> Option<Link> {
    match op {
        ScalarOp::Add => Some(Link::Add),
        ScalarOp::Mul => Some(Link::Mul),
        ScalarOp::Sub => Some(Link::Sub),
        _ => None,
    }
}
