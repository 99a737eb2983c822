//! Resolution of a nest: all look-ups are done before it runs.

use crate::dtype::DType;
use crate::id::{Id, IdVec};
use crate::nest::evaluate::{Evaluator, evaluator};
use crate::nest::{Access, Affine, AxisId, Combine, Guard, Instr, Nest, Phase, Reg, Term};
use std::cell::RefCell;

/// A resolved nest.
pub(super) struct Program {
    /// Parallel axes with their extents.
    pub parallel: Vec<(usize, i64)>,
    /// The axis of the rows of a band, with the last of them, if there are totals.
    pub band: Option<(usize, i64)>,
    pub phases: Vec<Body>,
}

/// A phase.
pub(super) struct Body {
    /// Inner axes with their extents.
    pub axes: Vec<(usize, i64)>,
    /// Iterations after which prefixes restart.
    pub line: i64,
    /// Whether the last inner axis counts down.
    pub reverse: bool,
    pub steps: Vec<Step>,
    pub prefixes: Vec<Combiner>,
    pub reductions: Vec<ReduceStep>,
}

/// An instruction; registers are indices of slots.
pub(super) enum Step {
    Scalar {
        result: usize,
        function: Evaluator,
        operands: [usize; 3],
    },
    Const {
        result: usize,
        bits: u64,
    },
    Index {
        result: usize,
        value: Flat,
        mask: u64,
    },
    Test {
        result: usize,
        guards: Vec<Check>,
    },
    Load {
        result: usize,
        access: Place,
        fill: Option<usize>,
    },
    Store {
        access: Place,
        value: usize,
    },
    /// Adds the value to the total of a band. It is stored when the row is the last one.
    Total {
        access: Place,
        reduce: ReduceStep,
    },
    Prefix {
        results: Vec<usize>,
        values: Vec<usize>,
        state: usize,
        combiner: Combiner,
    },
}

pub(super) struct ReduceStep {
    pub results: Vec<usize>,
    pub values: Vec<usize>,
    pub lanes: usize,
    pub block: usize,
    pub combiner: Combiner,
}

/// An access.
pub(super) struct Place {
    pub buffer: usize,
    pub indices: Vec<Flat>,
    pub guards: Vec<Check>,
    pub clamp: bool,
}

/// An index expression: axes, and the other terms.
pub(super) struct Flat {
    constant: i64,
    axes: Vec<(usize, i64)>,
    others: Vec<(Other, i64)>,
}

enum Other {
    I32(usize),
    I64(usize),
    FloorDiv(Flat, i64),
    Mod(Flat, i64),
}

/// A guard.
pub(super) struct Check {
    index: Flat,
    low: i64,
    high: i64,
}

/// A combine program.
#[derive(Clone)]
pub(super) struct Combiner {
    pub identity: Vec<u64>,
    body: Vec<(usize, CombineStep)>,
    results: Vec<usize>,
    /// Registers of the program.
    scratch: RefCell<Vec<u64>>,
}

#[derive(Clone)]
enum CombineStep {
    Scalar(Evaluator, [usize; 3]),
    Const(u64),
}

impl Program {
    /// The structure has been verified: registers, axes and buffers exist, dtypes agree.
    pub fn new(nest: &Nest) -> Program {
        let parallel = axes(nest, &nest.parallel);
        let band = parallel.last().map(|(axis, extent)| (*axis, extent - 1));
        Program {
            band: band.filter(|_| nest.band().is_some()),
            parallel,
            phases: nest.phases.iter().map(|p| body(nest, p)).collect(),
        }
    }
}

fn axes(nest: &Nest, ids: &[AxisId]) -> Vec<(usize, i64)> {
    let extent =
        |a: AxisId| i64::try_from(nest.axes[a].extent).expect("the verifier bounds extents");
    ids.iter().map(|a| (a.index(), extent(*a))).collect()
}

fn slots(registers: &[Reg]) -> Vec<usize> {
    registers.iter().map(|r| r.index()).collect()
}

fn body(nest: &Nest, phase: &Phase) -> Body {
    let axes = axes(nest, &phase.axes);
    let mut prefixes = Vec::new();
    let mut reverse = false;
    let steps = phase
        .body
        .iter()
        .map(|instr| match instr {
            Instr::Scalar { result, op, operands } => {
                let (function, operands) = scalar(&nest.registers, *result, *op, operands);
                Step::Scalar { result: result.index(), function, operands }
            }
            Instr::Const { result, value } => {
                Step::Const { result: result.index(), bits: value.bits() }
            }
            Instr::Index { result, value } => {
                let mask = u64::MAX >> (64 - nest.registers[*result].bits());
                Step::Index { result: result.index(), value: flat(nest, value), mask }
            }
            Instr::Test { result, guards } => {
                Step::Test { result: result.index(), guards: checks(nest, guards) }
            }
            Instr::Load { result, access, fill } => Step::Load {
                result: result.index(),
                access: place(nest, access),
                fill: fill.map(|f| f.index()),
            },
            Instr::Store { access, value, total: None } => {
                Step::Store { access: place(nest, access), value: value.index() }
            }
            Instr::Store { access, value, total: Some(total) } => Step::Total {
                access: place(nest, access),
                reduce: ReduceStep {
                    results: vec![],
                    values: vec![value.index()],
                    lanes: total.tree.lanes as usize,
                    block: total.tree.block as usize,
                    combiner: Combiner::new(&total.combine),
                },
            },
            Instr::Prefix(prefix) => {
                let combiner = Combiner::new(&prefix.combine);
                prefixes.push(combiner.clone());
                reverse |= prefix.reverse;
                let (results, values) = (slots(&prefix.results), slots(&prefix.values));
                Step::Prefix { results, values, state: prefixes.len() - 1, combiner }
            }
        })
        .collect();
    let reductions = phase
        .reductions
        .iter()
        .map(|r| ReduceStep {
            results: slots(&r.results),
            values: slots(&r.values),
            lanes: r.tree.lanes as usize,
            block: r.tree.block as usize,
            combiner: Combiner::new(&r.combine),
        })
        .collect();
    Body {
        line: axes.last().map_or(1, |(_, extent)| *extent),
        axes,
        reverse,
        steps,
        prefixes,
        reductions,
    }
}

fn scalar(
    registers: &IdVec<Reg, DType>,
    result: Reg,
    op: crate::nest::ScalarOp,
    operands: &[Reg],
) -> (Evaluator, [usize; 3]) {
    let dtypes: Vec<DType> = operands.iter().map(|r| registers[*r]).collect();
    let function = evaluator(op, &dtypes, registers[result])
        .expect("the verifier checks the dtypes of instructions");
    // Operands beyond the arity are read and ignored.
    let slot = |n: usize| operands.get(n).map_or(0, |r| r.index());
    (function, [slot(0), slot(1), slot(2)])
}

fn place(nest: &Nest, access: &Access) -> Place {
    Place {
        buffer: access.buffer.index(),
        indices: access.indices.iter().map(|i| flat(nest, i)).collect(),
        guards: checks(nest, &access.guards),
        clamp: access.clamp,
    }
}

fn checks(nest: &Nest, guards: &[Guard]) -> Vec<Check> {
    guards.iter().map(|g| Check { index: flat(nest, &g.index), low: g.low, high: g.high }).collect()
}

fn flat(nest: &Nest, expression: &Affine) -> Flat {
    let mut flat_sum = Flat { constant: expression.constant, axes: Vec::new(), others: Vec::new() };
    for (term, factor) in &expression.terms {
        let other = match term {
            Term::Axis(axis) => {
                flat_sum.axes.push((axis.index(), *factor));
                continue;
            }
            Term::Reg(reg) if nest.registers[*reg] == DType::I32 => Other::I32(reg.index()),
            Term::Reg(reg) => Other::I64(reg.index()),
            Term::FloorDiv(inner, divisor) => Other::FloorDiv(flat(nest, inner), *divisor),
            Term::Mod(inner, divisor) => Other::Mod(flat(nest, inner), *divisor),
        };
        flat_sum.others.push((other, *factor));
    }
    flat_sum
}

impl Flat {
    /// The value, wrapped to 64 bits.
    pub fn evaluate(&self, axes: &[i64], registers: &[u64]) -> i64 {
        let mut sum = self.constant;
        for (axis, factor) in &self.axes {
            sum = sum.wrapping_add(axes[*axis].wrapping_mul(*factor));
        }
        for (other, factor) in &self.others {
            let value = match other {
                Other::I32(reg) => i64::from(registers[*reg] as u32 as i32),
                Other::I64(reg) => registers[*reg] as i64,
                Other::FloorDiv(inner, divisor) => {
                    inner.evaluate(axes, registers).div_euclid(*divisor)
                }
                Other::Mod(inner, divisor) => inner.evaluate(axes, registers).rem_euclid(*divisor),
            };
            sum = sum.wrapping_add(value.wrapping_mul(*factor));
        }
        sum
    }
}

impl Check {
    pub fn holds(&self, axes: &[i64], registers: &[u64]) -> bool {
        (self.low..self.high).contains(&self.index.evaluate(axes, registers))
    }
}

impl Combiner {
    fn new(combine: &Combine) -> Combiner {
        let body = combine
            .body
            .iter()
            .map(|instr| match instr {
                Instr::Scalar { result, op, operands } => {
                    let (function, operands) = scalar(&combine.registers, *result, *op, operands);
                    (result.index(), CombineStep::Scalar(function, operands))
                }
                Instr::Const { result, value } => {
                    (result.index(), CombineStep::Const(value.bits()))
                }
                _ => unreachable!("the verifier lets only these into a combine program"),
            })
            .collect();
        Combiner {
            identity: combine.identity.iter().map(|s| s.bits()).collect(),
            body,
            results: slots(&combine.results),
            scratch: RefCell::new(vec![0; combine.registers.len()]),
        }
    }

    /// `left = combine(left, right)`.
    pub fn combine(&self, left: &mut [u64], right: impl Fn(usize) -> u64) {
        let mut r = self.scratch.borrow_mut();
        let n = left.len();
        r[..n].copy_from_slice(left);
        for k in 0..n {
            r[n + k] = right(k);
        }
        for (result, step) in &self.body {
            r[*result] = match step {
                CombineStep::Scalar(function, [x, y, z]) => function([r[*x], r[*y], r[*z]]),
                CombineStep::Const(bits) => *bits,
            };
        }
        for (slot, result) in left.iter_mut().zip(&self.results) {
            *slot = r[*result];
        }
    }
}
