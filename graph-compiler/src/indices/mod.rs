//! Indices from data: which inputs are indices ([`bounds`]), and checks of them as outputs
//! ([`watch`]).
//!
//! An index out of range is defined ([`Lookup`]), so a plain run does not detect it. A *checked
//! run* does: each lookup gets a **report**, an i64 tensor of type `[2, components]`. Row 0 is
//! the position of the first index vector that is out of range, in row-major order, or `i64::MAX`
//! if there is none; row 1 is the index. Reports become further outputs. So a checked function is
//! compiled, planned and run like any other, on every device, and its other results keep their
//! bits.
//!
//! A report leaves control flow with the results of the construct:
//! - a branch returns the reports of all its regions; reports of regions that are not taken are
//!   empty;
//! - a loop carries its reports; the first step with an index out of range wins;
//! - the condition of a `while` has one result. So its lookups are repeated once in the step and
//!   once after the loop.
//!
//! Called functions and user-defined rules are inlined if they contain lookups.

mod bounds;

pub use bounds::{Bound, bounds};

use crate::autodiff::unpoisoned;
use crate::calls;
use wengert_core::build::Scope;
use wengert_core::graph::{Body, Equation, Function, Output, OutputRole, Region, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::{Control, Lookup, Reduce, ReduceKind, Scan};
use wengert_core::{
    DType, Diagnostic, Dim, Literal, Location, LocationTable, Op, Result, Tensor, TensorType,
};

/// The position that stands for "every index is in range".
const NONE: i64 = i64::MAX;

/// A lookup whose report is an output of a checked function.
#[derive(Clone, PartialEq, Debug)]
pub struct Watched {
    /// The op.
    op: &'static str,
    /// Its source location.
    location: Location,
    /// The number of valid indices, for each component of an index vector.
    counts: Vec<i64>,
    /// The shape of the indices without the axis of the index vector.
    shape: Vec<usize>,
}

impl Watched {
    /// The error that a report shows for a run; `None` if all indices are in range.
    ///
    /// # Panics
    ///
    /// If the report is not one of this lookup.
    pub fn fault(&self, report: &Literal) -> Option<Diagnostic> {
        let cells = report.as_slice::<i64>().expect("a report is of i64");
        let (positions, indices) = cells.split_at(self.counts.len());
        let component = (0..self.counts.len())
            .filter(|k| positions[*k] != NONE)
            .min_by_key(|k| positions[*k])?;
        let (count, index) = (self.counts[component], indices[component]);
        let at = match self.shape.is_empty() {
            true => String::new(),
            false => {
                format!(" at {:?} of its indices", coordinates(&self.shape, positions[component]))
            }
        };
        let range = match count {
            ..=0 => "there is nothing to look up".into(),
            1 => "only index 0 is in range".into(),
            _ => format!("indices from 0 to {} are in range", count - 1),
        };
        let axis =
            if self.counts.len() > 1 { format!(", component {component}") } else { String::new() };
        let message = format!("{}: index {index}{at}{axis} is out of range: {range}", self.op);
        Some(Diagnostic::new(message).at(self.location.clone(), "looked up here"))
    }
}

/// The index of a flat position in row-major order.
fn coordinates(shape: &[usize], mut flat: i64) -> Vec<i64> {
    let mut index: Vec<i64> = shape
        .iter()
        .rev()
        .map(|extent| {
            // The extent fits in i64, since it is that of an allocation. With an extent of 0
            // there is no position.
            let extent = *extent as i64;
            let i = flat % extent;
            flat /= extent;
            i
        })
        .collect();
    index.reverse();
    index
}

/// Adds one output per lookup to a bound function, after all others. Returns the lookups that
/// these outputs report on.
pub fn watch(mut function: Function) -> Result<(Function, Vec<Watched>)> {
    let hides = |e: &Equation| e.op.control().is_none() && e.regions.iter().any(|r| looks_up(r));
    while let Some(inlined) = calls::inline_regions(&function, hides)? {
        function = inlined;
    }
    if !looks_up(&function.body) {
        return Ok((function, vec![]));
    }
    let scope = Scope::new(function.locations.clone());
    let mut watching = Watching { locations: &function.locations, watched: vec![] };
    let count = function.body.outputs.len();
    let body = watching.body(&function.body, &scope, Watching::outputs)?;
    let watched = watching.watched;
    let mut outputs = function.outputs.clone();
    for number in 0..body.outputs.len() - count {
        let taken = |name: &str| outputs.iter().any(|output: &Output| output.name == name);
        let name = (number..).map(|n| format!("index.{n}")).find(|name| !taken(name));
        let name = name.expect("some number is free");
        outputs.push(Output { name, role: OutputRole::Output });
    }
    let checked = Function { body, outputs, locations: scope.locations(), ..function };
    Ok((checked.renumber(), watched))
}

/// The lookup of an equation, if its op makes one.
fn lookup_of(body: &Body, equation: &Equation) -> Option<Lookup> {
    // Copying the operands' types is avoided for most equations: a lookup has at least two
    // operands.
    if equation.operands.len() < 2 {
        return None;
    }
    equation.op.lookup(&body.types(&equation.operands)).filter(|lookup| !lookup.counts.is_empty())
}

fn looks_up(body: &Body) -> bool {
    body.equations
        .iter()
        .any(|e| lookup_of(body, e).is_some() || e.regions.iter().any(|r| looks_up(r)))
}

/// Rebuilds bodies with reports.
struct Watching<'a> {
    locations: &'a LocationTable,
    /// In the order of the reports.
    watched: Vec<Watched>,
}

/// Tensors of a body: its outputs, and the reports of its lookups.
struct Made {
    outputs: Vec<Tensor>,
    reports: Vec<Tensor>,
}

impl Watching<'_> {
    /// Rebuilds a body in a scope. `finish` orders outputs and reports.
    fn body(
        &mut self,
        body: &Body,
        scope: &Scope,
        finish: impl FnOnce(&Self, Made) -> Vec<Tensor>,
    ) -> Result<Body> {
        let inputs = inputs(body, &body.inputs, scope);
        let outputs = scope.enter(|| {
            let made = self.equations(body, scope, &inputs)?;
            Ok::<_, Diagnostic>(finish(self, made))
        })?;
        close(scope, &outputs)
    }

    /// The outputs, then the reports.
    fn outputs(&self, made: Made) -> Vec<Tensor> {
        made.outputs.into_iter().chain(made.reports).collect()
    }

    fn equations(&mut self, body: &Body, scope: &Scope, inputs: &[Tensor]) -> Result<Made> {
        let mut tensors: IdVec<ValueId, Option<Tensor>> = body.values.ids().map(|_| None).collect();
        for (value, tensor) in body.inputs.iter().zip(inputs) {
            tensors[*value] = Some(tensor.clone());
        }
        let mut reports = Vec::new();
        for equation in &body.equations {
            let get = |v: &ValueId| {
                tensors[*v].clone().expect("the verifier found each value defined before its use")
            };
            let operands: Vec<Tensor> = equation.operands.iter().map(get).collect();
            let within =
                equation.op.control().filter(|_| equation.regions.iter().any(|r| looks_up(r)));
            let location = || self.locations.get(equation.location).clone();
            let results = match within {
                None => Scope::emit(
                    equation.op.clone(),
                    &operands,
                    equation.regions.clone(),
                    location(),
                )?,
                Some(control) => {
                    let results = match control {
                        Control::Branch => self.branch(equation, &operands, scope)?,
                        Control::Scan(scan) => self.scan(scan, equation, &operands, scope)?,
                        Control::While(_) => {
                            self.while_loop(equation, &operands, scope, &mut reports)?
                        }
                    };
                    reports.extend(results.reports);
                    results.outputs
                }
            };
            unpoisoned(&results).map_err(|e| e.context(equation.op.name()))?;
            if let Some(lookup) = lookup_of(body, equation) {
                let indices = &operands[lookup.operand];
                let (watched, counts) = self.describe(equation, &lookup, indices.ty())?;
                self.watched.push(watched);
                let rule = format!("check({})", equation.op.name());
                reports.push(
                    scope.derived(equation.location, rule, || report(indices, &lookup, &counts)),
                );
            }
            for (value, tensor) in equation.results.iter().zip(results) {
                tensors[*value] = Some(tensor);
            }
        }
        let get =
            |v: &ValueId| tensors[*v].clone().expect("the verifier found each output defined");
        Ok(Made { outputs: body.outputs.iter().map(get).collect(), reports })
    }

    fn describe(
        &self,
        equation: &Equation,
        lookup: &Lookup,
        indices: &TensorType,
    ) -> Result<(Watched, Literal)> {
        let unbound =
            || Diagnostic::new("indices are checked in functions without dimension variables only");
        let counts: Vec<i64> = lookup
            .counts
            .iter()
            .map(Dim::as_constant)
            .collect::<Option<_>>()
            .ok_or_else(unbound)?;
        let mut shape = indices.extents().ok_or_else(unbound)?;
        if lookup.vectors {
            shape.pop();
        }
        let literal = Literal::from_vec(&[counts.len()], counts.clone())
            .expect("as many numbers as the shape has");
        let location = self.locations.origin(equation.location).clone();
        Ok((Watched { op: equation.op.name(), location, counts, shape }, literal))
    }

    /// The empty report of watched lookup number `number`.
    fn empty(&self, number: usize) -> Tensor {
        empty(self.watched[number].counts.len())
    }

    fn branch(&mut self, equation: &Equation, operands: &[Tensor], scope: &Scope) -> Result<Made> {
        // The number of reports is known only after the last region, so regions are closed when
        // all are made.
        let first = self.watched.len();
        let mut ways = Vec::new();
        for region in &equation.regions {
            let within = scope.region();
            let inputs = inputs(region, &region.inputs, &within);
            let before = self.watched.len();
            let made = within.enter(|| self.equations(region, &within, &inputs))?;
            ways.push((within, made, before - first));
        }
        let total = self.watched.len() - first;
        let mut regions: Vec<Region> = Vec::new();
        for (within, made, before) in ways {
            let own = before..before + made.reports.len();
            let outputs: Vec<Tensor> = within.enter(|| {
                let mut reports = made.reports.into_iter();
                let report = |n: usize| match own.contains(&n) {
                    true => reports.next().expect("there is one for each lookup of this way"),
                    false => self.empty(first + n),
                };
                made.outputs.into_iter().chain((0..total).map(report)).collect()
            });
            regions.push(close(&within, &outputs)?.into());
        }
        self.emit(equation, equation.op.clone(), operands, regions, |results| results.len() - total)
    }

    fn scan(
        &mut self,
        scan: &Scan,
        equation: &Equation,
        operands: &[Tensor],
        scope: &Scope,
    ) -> Result<Made> {
        let first = self.watched.len();
        let [region] = equation.regions.as_slice() else { unreachable!("a scan has one region") };
        let step = self.carrying(region, scan.carries, scope, |watching, within, inputs| {
            watching.equations(region, within, inputs)
        })?;
        let total = self.watched.len() - first;
        let at = usize::from(scan.counted) + scan.carries;
        let mut operands = operands.to_vec();
        operands.splice(at..at, (0..total).map(|n| self.empty(first + n)));
        let op = Scan { carries: scan.carries + total, ..scan.clone() };
        let carries = scan.carries;
        let mut made =
            self.emit(equation, op.into(), &operands, vec![step.into()], |results| results.len())?;
        made.reports = made.outputs.drain(carries..carries + total).collect();
        Ok(made)
    }

    fn while_loop(
        &mut self,
        equation: &Equation,
        operands: &[Tensor],
        scope: &Scope,
        behind: &mut Vec<Tensor>,
    ) -> Result<Made> {
        let Op::While(op) = &equation.op else { unreachable!("the construct is a while") };
        let [condition, step] = equation.regions.as_slice() else {
            unreachable!("a while has two regions")
        };
        let carries = operands.len() - op.captures;
        let first = self.watched.len();
        let step = self.carrying(step, carries, scope, |watching, within, inputs| {
            // Lookups of the condition, before the step.
            let before = watching.equations(condition, within, inputs)?.reports;
            let made = watching.equations(step, within, inputs)?;
            Ok(Made { outputs: made.outputs, reports: [before, made.reports].concat() })
        })?;
        let total = self.watched.len() - first;
        // The condition takes the reports as inputs without reading them.
        let mut condition_body = condition.to_body();
        for n in (0..total).rev() {
            let ty = report_type(self.watched[first + n].counts.len());
            let value = condition_body.values.push(ty);
            condition_body.inputs.insert(carries, value);
        }
        let regions = vec![condition_body.renumber().into(), step.into()];
        let mut with_reports = operands.to_vec();
        with_reports.splice(carries..carries, (0..total).map(|n| self.empty(first + n)));
        let mut made =
            self.emit(equation, equation.op.clone(), &with_reports, regions, |results| {
                results.len()
            })?;
        made.reports = made.outputs.drain(carries..carries + total).collect();
        if looks_up(condition) {
            // Lookups of the condition's last evaluation, after the loop.
            let last: Vec<Tensor> =
                made.outputs[..carries].iter().chain(&operands[carries..]).cloned().collect();
            let reports = std::mem::take(&mut made.reports);
            behind.extend(reports);
            behind.extend(self.equations(condition, scope, &last)?.reports);
        }
        Ok(made)
    }

    /// The step of a loop, with the reports of `make` as further carries after the first
    /// `carries`.
    fn carrying(
        &mut self,
        region: &Body,
        carries: usize,
        scope: &Scope,
        make: impl FnOnce(&mut Self, &Scope, &[Tensor]) -> Result<Made>,
    ) -> Result<Body> {
        let within = scope.region();
        let first = self.watched.len();
        let taken = inputs(region, &region.inputs, &within);
        let made = within.enter(|| make(self, &within, &taken))?;
        // Inputs are numbered in the order of their creation; the reports' inputs are moved to
        // behind the carries.
        let reports: Vec<Tensor> = (first..self.watched.len())
            .map(|n| within.input_at(report_type(self.watched[n].counts.len()), Location::Unknown))
            .collect();
        let outputs: Vec<Tensor> = within.enter(|| {
            let found = reports.iter().zip(&made.reports).map(|(before, now)| earlier(before, now));
            let (carried, stacks) = made.outputs.split_at(carries);
            carried.iter().cloned().chain(found).chain(stacks.iter().cloned()).collect()
        });
        let mut body = close(&within, &outputs)?;
        let added = body.inputs.split_off(taken.len());
        body.inputs.splice(carries..carries, added);
        Ok(body.renumber())
    }

    /// The construct with reports, whose numbers begin at `from`.
    fn emit(
        &self,
        equation: &Equation,
        op: Op,
        operands: &[Tensor],
        regions: Vec<Region>,
        from: impl FnOnce(&[Tensor]) -> usize,
    ) -> Result<Made> {
        let location = self.locations.get(equation.location).clone();
        let mut outputs = Scope::emit(op, operands, regions, location)?;
        let reports = outputs.split_off(from(&outputs));
        Ok(Made { outputs, reports })
    }
}

fn inputs(body: &Body, values: &[ValueId], scope: &Scope) -> Vec<Tensor> {
    values.iter().map(|v| scope.input_at(body.ty(*v).clone(), Location::Unknown)).collect()
}

fn close(scope: &Scope, outputs: &[Tensor]) -> Result<Body> {
    unpoisoned(outputs)?;
    let closure = scope.close(outputs)?;
    assert!(closure.captures.is_empty(), "a region is closed, and so is what takes its place");
    Ok(closure.body)
}

fn report_type(components: usize) -> TensorType {
    TensorType::new(DType::I64, [2, components])
}

fn empty(components: usize) -> Tensor {
    Tensor::constant(Literal::full(&[2, components], NONE.into()))
}

/// The report on indices of a type without dimension variables.
fn report(indices: &Tensor, lookup: &Lookup, counts: &Literal) -> Tensor {
    let wide = match indices.dtype() {
        // Clamping keeps an index beyond i64 out of range.
        DType::U64 => indices.min(i64::MAX).convert(DType::I64),
        _ => indices.convert(DType::I64),
    };
    let components = lookup.counts.len();
    let positions = wide.ty().elements().map_or(0, |n| n / components.max(1));
    let wide = wide.reshape([positions, components]);
    let counts = Tensor::constant(counts.clone()).broadcast_in_dim(wide.shape().to_vec(), &[1]);
    let none = || {
        Tensor::constant(Literal::full(&[], NONE.into()))
            .broadcast_in_dim(wide.shape().to_vec(), &[])
    };
    let least = |t: &Tensor| Tensor::apply(Reduce::new(ReduceKind::Min, [0]), &[t]);
    let wrong = wide.lt(0).or(wide.ge(&counts));
    let number = Tensor::iota(DType::I64, [positions, components], 0);
    let first = least(&wrong.select(&number, &none()));
    let is_first = number.eq(first.broadcast_in_dim(wide.shape().to_vec(), &[1]));
    let index = least(&is_first.select(&wide, &none()));
    let row = |t: &Tensor| t.reshape([1, components]);
    Tensor::concatenate(&[&row(&first), &row(&index)], 0)
}

/// The report of an earlier step if it is not empty, else this step's.
fn earlier(before: &Tensor, now: &Tensor) -> Tensor {
    let found = before.slice_axis(0, 0, 1).lt(NONE);
    let shape = before.shape().to_vec();
    let found = found.reshape([shape[1].clone()]).broadcast_in_dim(shape, &[1]);
    found.select(before, now)
}
