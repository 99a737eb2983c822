//! The function of a rank whose variables are divided.
//!
//! A divided value that a reader needs whole is gathered before that reader. The last
//! [`GATHERED`] gathered values are kept for further readers. A later reader, such as the backward
//! pass, gathers again: a transfer more, and the memory of a parameter is free between its readers.
//! Such gathers are equal equations, which common subexpression elimination leaves apart.

use super::analysis::{Analysis, Way, kept};
use crate::autodiff::function::Maker;
use crate::autodiff::{current_scope, unpoisoned};
use crate::ranks::axes::Typed;
use crate::ranks::rewrite::{part_of, part_of_rank};
use std::collections::{BTreeMap, VecDeque};
use wengert_core::build::Scope;
use wengert_core::graph::{Equation, Function, ValueId};
use wengert_core::location::LocationId;
use wengert_core::mesh::Varying;
use wengert_core::{Mesh, Op, Result, Tensor};

/// The rule of locations of equations that the pass adds.
const RULE: &str = "shards";

/// The number of gathered values that are kept: those of a layer and of the next one.
const GATHERED: usize = 2;

/// The function that is being made.
pub(super) struct Rewrite<'a> {
    pub function: &'a Function,
    pub mesh: &'a Mesh,
    /// The axes of the mesh along which variables are divided.
    pub over: &'a [String],
    /// The number of ranks along these.
    pub ranks: usize,
    pub analysis: &'a Analysis,
    /// The axes along which inputs are divided.
    pub inputs: &'a [Option<usize>],
    /// The same of outputs.
    pub outputs: &'a [Option<usize>],
}

/// A value, as far as it exists.
#[derive(Default)]
struct Made {
    whole: Option<Tensor>,
    /// The rank's part, and the axis.
    part: Option<(Tensor, usize)>,
}

impl Rewrite<'_> {
    /// The function of a rank.
    pub fn run(&self) -> Result<Function> {
        let body = &self.function.body;
        let mut types = body.types(&body.inputs);
        for (ty, axis) in types.iter_mut().zip(self.inputs) {
            if let Some(axis) = axis {
                let varying = ty.varying.union(&Varying::over(self.over));
                *ty = part_of(ty, *axis, self.ranks).with_varying(varying);
            }
        }
        let maker = Maker::with_types(self.function, &types);
        maker.scope.set_mesh(self.mesh.clone());
        let outputs = maker.scope.clone().enter(|| self.equations(&maker.primals))?;
        let names = self.function.outputs.clone();
        maker.finish(self.function.name.clone(), names, &outputs)
    }

    fn equations(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let body = &self.function.body;
        let scope = current_scope()?;
        let mut values = Values {
            rewrite: self,
            scope: &scope,
            made: BTreeMap::new(),
            gathered: VecDeque::new(),
            varied: BTreeMap::new(),
        };
        for ((value, tensor), axis) in body.inputs.iter().zip(inputs).zip(self.inputs) {
            let made = match axis {
                Some(axis) => Made { part: Some((tensor.clone(), *axis)), whole: None },
                None => Made { whole: Some(tensor.clone()), part: None },
            };
            values.made.insert(*value, made);
        }
        for (equation, way) in body.equations.iter().zip(&self.analysis.ways) {
            values.equation(equation, way)?;
        }
        let results = body.outputs.iter().zip(self.outputs);
        let results = results.map(|(value, axis)| values.get(*value, *axis, LocationId(0)));
        results.collect()
    }
}

/// The values that exist so far.
struct Values<'a> {
    rewrite: &'a Rewrite<'a>,
    scope: &'a Scope,
    made: BTreeMap<ValueId, Made>,
    /// Divided values whose whole value has been gathered, the latest last.
    gathered: VecDeque<ValueId>,
    /// Results of `pvary` of divided values: the equation is emitted for each gathered operand.
    varied: BTreeMap<ValueId, &'a Equation>,
}

impl<'a> Values<'a> {
    fn equation(&mut self, equation: &'a Equation, way: &Way) -> Result<()> {
        if let (Op::PVary(_), [operand], [result]) =
            (&equation.op, &equation.operands[..], &equation.results[..])
            && self.made.get(operand).is_some_and(|made| made.part.is_some())
        {
            self.varied.insert(*result, equation);
            return Ok(());
        }
        let ranks = self.rewrite.ranks;
        let at = equation.location;
        let operands = equation.operands.iter().enumerate().map(|(i, value)| {
            let axis = match way {
                Way::Part(along) => along.operands[i],
                Way::Whole | Way::Scatter(_) => None,
            };
            self.get(*value, axis, at)
        });
        let operands = operands.collect::<Result<Vec<Tensor>>>()?;
        let results = match way {
            Way::Whole => self.emit(equation, equation.op.clone(), &operands)?,
            Way::Part(along) => {
                let op = Typed::of(&self.rewrite.function.body, equation).part(along, ranks);
                self.emit(equation, op, &operands)?
            }
            Way::Scatter(axis) => {
                vec![self.derived(at, || operands[0].psum_scatter_tiled(self.over(), *axis))?]
            }
        };
        for (i, (value, result)) in equation.results.iter().zip(results).enumerate() {
            let axis = match way {
                Way::Whole => None,
                Way::Part(along) => kept(along.results[i]),
                Way::Scatter(axis) => Some(*axis),
            };
            let made = match axis {
                Some(axis) => Made { part: Some((result, axis)), whole: None },
                None => Made { whole: Some(result), part: None },
            };
            self.made.insert(*value, made);
        }
        Ok(())
    }

    /// The rank's part of a value along an axis, or all of it. It is made from the other if need
    /// be, and kept for further readers.
    fn get(&mut self, value: ValueId, axis: Option<usize>, at: LocationId) -> Result<Tensor> {
        if let Some(equation) = self.varied.get(&value).copied() {
            let operand = self.get(equation.operands[0], None, at)?;
            let results = self.emit(equation, equation.op.clone(), &[operand])?;
            return Ok(results[0].clone());
        }
        let made = &self.made[&value];
        match (axis, &made.whole, &made.part) {
            (None, Some(whole), _) => return Ok(whole.clone()),
            (Some(axis), _, Some((part, of))) if *of == axis => return Ok(part.clone()),
            _ => {}
        }
        let whole = match (&made.whole, &made.part) {
            (Some(whole), _) => whole.clone(),
            (None, Some((part, of))) => {
                let (over, of) = (self.over(), *of);
                let whole = self.derived(at, || part.all_gather_invariant(over, of))?;
                self.gathered.push_back(value);
                whole
            }
            (None, None) => unreachable!("an operand is made before its readers"),
        };
        let found = match axis {
            None => whole.clone(),
            Some(axis) => {
                let (over, ranks) = (self.rewrite.over, self.rewrite.ranks);
                let part = self.derived(at, || part_of_rank(&whole, axis, over, ranks))?;
                self.made.entry(value).or_default().part.get_or_insert((part.clone(), axis));
                part
            }
        };
        self.made.entry(value).or_default().whole = Some(whole);
        if self.gathered.len() > GATHERED
            && let Some(old) = self.gathered.pop_front()
        {
            self.made.entry(old).or_default().whole = None;
        }
        Ok(found)
    }

    /// The axes along which variables are divided, for collectives.
    fn over(&self) -> Vec<String> {
        self.rewrite.over.to_vec()
    }

    fn emit(&self, equation: &Equation, op: Op, operands: &[Tensor]) -> Result<Vec<Tensor>> {
        let location = self.scope.location(equation.location);
        Scope::emit(op, operands, equation.regions.clone(), location)
    }

    fn derived(&self, at: LocationId, make: impl FnOnce() -> Tensor) -> Result<Tensor> {
        let tensor = self.scope.derived(at, RULE, make);
        unpoisoned([&tensor])?;
        Ok(tensor)
    }
}
