//! P1 to P9 except the windows of P8, P16 and P17: the invariants that need no replay.

use super::{Failure, MAX_DEPTH, MAX_RANK, Part, Places, failure, verify_nest};
use crate::diagnostic::{bail, ensure};
use crate::dtype::DType;
use crate::id::IdVec;
use crate::nest::BufferRole;
use crate::pitch::{PaddedRows, memory_extents};
use crate::plan::print::ValueText;
use crate::plan::{
    Address, Argument, Loop, LoopId, Merge, Plan, Slice, Space, Stack, Step, Transfer, Trip, Value,
    ValueId,
};
use crate::ty::TensorType;
use std::collections::BTreeSet;

type Result<T = ()> = std::result::Result<T, Failure>;

/// The definition of a value.
#[derive(Clone, Copy)]
enum Definition<'a> {
    /// An input, a constant, an old value, or a value of a loop or a merge.
    Once,
    /// A result of a nest or call, by position among its arguments.
    Made(&'a Step, usize),
}

pub(super) fn check(plan: &Plan, places: &Places) -> Result {
    plan.target.verify().map_err(|diagnostic| {
        let message = diagnostic.message.clone();
        Failure {
            part: Part::Target,
            diagnostic: crate::Diagnostic { message: message + " (P1)", ..diagnostic },
        }
    })?;
    plan.mesh.verify().map_err(|d| failure(Part::Plan, 17, d.message))?;
    let joins = plan.mesh.is_empty() || plan.target.calls.contains(&"collective");
    ensure!(joins, Part::Plan, 17, "target {} joins no ranks", plan.target.name);
    values(plan)?;
    let mut names = BTreeSet::new();
    for (id, nest) in plan.nests.iter() {
        verify_nest(plan, places, id)?;
        ensure!(
            names.insert(nest.name.as_str()),
            Part::Nest(id),
            1,
            "a second nest is named `@{}`",
            nest.name
        );
        if nest.buffers.iter().any(|(_, b)| b.role == BufferRole::InOut) {
            bail!(Part::Nest(id), 6, "has an `inout` parameter";
                help "in a plan, in place is an `in` and an `out` at one address");
        }
    }
    let mut checker = Checker {
        plan,
        definitions: plan.values.ids().map(|_| None).collect(),
        loops: Vec::new(),
        next_loop: 0,
        next_transfer: 0,
        next_step: 0,
    };
    checker.signature()?;
    checker.block(&plan.steps, 0)?;
    match checker.definitions.iter().find(|(_, d)| d.is_none()) {
        Some((id, _)) => Err(failure(Part::Value(id), 4, "nothing defines it")),
        None => Ok(()),
    }
}

/// P2.
fn values(plan: &Plan) -> Result {
    let too_large = |bytes: u64| i64::try_from(bytes).is_err();
    for (id, value) in plan.values.iter() {
        let bytes = memory_extents(&value.shape, value.pitch)
            .filter(|e| *e > 0)
            .try_fold(value.dtype.size() as u64, |n, e| n.checked_mul(e as u64));
        if value.shape.len() > MAX_RANK || bytes.is_none_or(too_large) {
            bail!(Part::Value(id), 2, "is larger than any memory");
        }
        if let Some(pitch) = value.pitch {
            let rows = matches!(value.shape.as_slice(), [_, .., row] if pitch > *row);
            ensure!(
                rows,
                Part::Value(id),
                16,
                "a pitch is greater than the last of at least two extents"
            );
        }
    }
    if too_large(plan.arena) || too_large(plan.lower_bound) {
        bail!(Part::Arena, 2, "is larger than any memory");
    }
    Ok(())
}

struct Checker<'a> {
    plan: &'a Plan,
    definitions: IdVec<ValueId, Option<Definition<'a>>>,
    /// The enclosing loops, outermost first.
    loops: Vec<LoopId>,
    next_loop: u32,
    next_transfer: u32,
    next_step: usize,
}

impl<'a> Checker<'a> {
    fn signature(&mut self) -> Result {
        let plan = self.plan;
        let mut names = BTreeSet::new();
        let mut fresh = |part: Part, kind: u8, name: &'a str| {
            let new = !name.is_empty() && names.insert((kind, name));
            if new { Ok(()) } else { Err(failure(part, 1, "its name is empty or taken")) }
        };
        for (n, input) in plan.inputs.iter().enumerate() {
            fresh(Part::Input(n), 0, &input.name)?;
            self.define(Part::Input(n), input.value, Definition::Once)?;
            use crate::graph::InputRole::{Input, Key};
            if !matches!(input.role, Input | Key) {
                bail!(Part::Input(n), 3, "parameters and state are variables");
            }
        }
        for (n, variable) in plan.variables.iter().enumerate() {
            let part = Part::Variable(n);
            fresh(part, 1, &variable.name)?;
            if let Some(before) = variable.before {
                self.define(part, before, Definition::Once)?;
            }
            for value in variable.before.into_iter().chain([variable.after]) {
                self.dense(part, value)?;
                let value = self.value(part, value)?;
                let elements = elements(&variable.shape);
                if value.dtype != variable.dtype || elements != Some(value.elements()) {
                    bail!(part, 5, "its values are of another type");
                }
            }
        }
        for (n, output) in plan.outputs.iter().enumerate() {
            let part = Part::Output(n);
            fresh(part, 2, &output.name)?;
            self.dense(part, output.value)?;
            if elements(&output.shape) != Some(self.value(part, output.value)?.elements()) {
                bail!(part, 5, "its value has another number of elements");
            }
        }
        for (n, constant) in plan.constants.iter().enumerate() {
            let part = Part::Constant(n);
            self.define(part, constant.value, Definition::Once)?;
            let value = &plan.values[constant.value];
            if constant.literal.dtype() != value.dtype || constant.literal.shape() != value.shape {
                bail!(part, 5, "its literal is of another type");
            }
        }
        Ok(())
    }

    fn value(&self, part: Part, id: ValueId) -> Result<&'a Value> {
        self.plan.values.get(id).ok_or_else(|| failure(part, 3, format!("there is no value {id}")))
    }

    /// P4.
    fn define(&mut self, part: Part, id: ValueId, definition: Definition<'a>) -> Result {
        match definition {
            Definition::Once => self.dense(part, id)?,
            Definition::Made(..) => drop(self.value(part, id)?),
        }
        let again = |first: Definition<'a>| match (first, definition) {
            (Definition::Made(a, n), Definition::Made(b, m)) => {
                n == m && recomputes(self.plan, a, b)
            }
            _ => false,
        };
        match self.definitions[id] {
            None => self.definitions[id] = Some(definition),
            Some(first) if again(first) => {}
            Some(_) => {
                let what = ValueText(self.plan, id);
                return Err(failure(part, 4, format!("defines {what} a second time")).help(
                    "a value is defined again only by the same nest or call on the same values",
                ));
            }
        }
        Ok(())
    }

    fn block(&mut self, steps: &'a [Step], depth: usize) -> Result {
        for step in steps {
            let part = Part::Step(self.next_step);
            ensure!(depth < MAX_DEPTH as usize, part, 3, "steps nest deeper than {MAX_DEPTH}");
            self.step(step, depth)?;
        }
        Ok(())
    }

    fn step(&mut self, step: &'a Step, depth: usize) -> Result {
        let number = self.next_step;
        self.next_step += 1;
        let part = Part::Step(number);
        match step {
            Step::Nest { nest, arguments } => {
                let Some(nest) = self.plan.nests.get(*nest) else {
                    bail!(part, 3, "there is no nest {nest}");
                };
                ensure!(
                    arguments.len() == nest.parameters().count(),
                    part,
                    5,
                    "has more or fewer arguments than the nest has parameters"
                );
                for (n, (argument, (_, buffer))) in
                    arguments.iter().zip(nest.parameters()).enumerate()
                {
                    let bytes = buffer.bytes() as u64;
                    self.argument(part, argument, buffer.dtype, |b| b == bytes)?;
                    if self.plan.values[argument.value].padded_rows() != buffer.padded_rows() {
                        let parameter = format!("parameter `%{}`", buffer.name);
                        return Err(self.other_rows(part, argument.value, &parameter));
                    }
                    if buffer.role == BufferRole::Out {
                        self.written(part, &argument.at)?;
                        self.define(part, argument.value, Definition::Made(step, n))?;
                    }
                }
            }
            Step::Call { call, arguments, workspace } => {
                self.call(part, step, call, arguments, workspace)?
            }
            Step::Start { transfer, call } => {
                let Transfer { id, operand, result } = transfer;
                ensure!(
                    id.0 == self.next_transfer,
                    part,
                    18,
                    "transfers are numbered in order: this is t{}",
                    self.next_transfer
                );
                self.next_transfer += 1;
                let (target, kind) = (&self.plan.target, call.kind);
                ensure!(kind.exchanges(), part, 18, "`{}` exchanges nothing", kind.name());
                ensure!(
                    target.overlaps_collectives,
                    part,
                    18,
                    "target {} starts no collectives: it calls them",
                    target.name
                );
                let arguments = [operand.clone(), result.clone()];
                self.call(part, step, &call.clone().into(), &arguments, &None)?;
            }
            // The replay compares it with its start.
            Step::Wait(transfer) => ensure!(
                transfer.id.0 < self.next_transfer,
                part,
                18,
                "nothing has started {}",
                transfer.id
            ),
            Step::Copy { value, from, to } => {
                self.place(part, *value, from)?;
                self.place(part, *value, to)?;
                self.written(part, to)?;
            }
            Step::Loop(l) => self.looping(number, l, depth)?,
            Step::If { predicate, then, otherwise, merges } => {
                self.scalar(part, predicate, &[DType::Bool])?;
                self.block(then, depth + 1)?;
                self.block(otherwise, depth + 1)?;
                self.merges(number, merges, 2)?;
            }
            Step::Switch { index, arms, merges } => {
                self.scalar(part, index, &[DType::I32])?;
                ensure!(!arms.is_empty(), part, 3, "a switch has at least one case");
                arms.iter().try_for_each(|arm| self.block(arm, depth + 1))?;
                self.merges(number, merges, arms.len())?;
            }
        }
        Ok(())
    }

    fn call(
        &mut self,
        part: Part,
        step: &'a Step,
        call: &crate::Call,
        arguments: &[Argument],
        workspace: &Option<(Address, u64)>,
    ) -> Result {
        call.verify().map_err(|d| failure(part, 6, d.message))?;
        if !self.plan.target.claims(call) {
            let name = &self.plan.target.name;
            bail!(part, 6, "target {name} has no `{}`", call.name());
        }
        if let Some(collective) = call.collective() {
            let checked = collective.check_mesh(&self.plan.mesh);
            checked.map_err(|d| failure(part, 17, d.message))?;
        }
        let types: Vec<TensorType> = call.operands().into_iter().chain(call.results()).collect();
        ensure!(
            arguments.len() == types.len(),
            part,
            5,
            "`{}` has {} arguments",
            call.name(),
            types.len()
        );
        let operands = call.operands().len();
        for (n, (argument, ty)) in arguments.iter().zip(&types).enumerate() {
            // The extents were verified, and larger operands have more bytes.
            let bytes = ty.bytes().map_or(u64::MAX, |b| b as u64);
            let larger = n < operands && call.may_be_larger(n);
            let rows = self.value(part, argument.value)?.padded_rows();
            if n < operands {
                let fits = |b| b == bytes || (larger && b > bytes);
                self.argument(part, argument, ty.dtype, fits)?;
                if rows.is_some_and(|rows| !call.stays_in_rows(n, rows)) {
                    let shown = ValueText(self.plan, argument.value);
                    bail!(part, 16, "reads the padding between the rows of {shown}");
                }
                continue;
            }
            // The type was verified with the pitch, so the product fits.
            let extents = ty.extents().unwrap_or_default();
            let wanted = PaddedRows::of(&extents, call.pitch());
            let bytes = memory_extents(&extents, call.pitch()).product::<usize>();
            let bytes = (bytes * ty.dtype.size()) as u64;
            self.argument(part, argument, ty.dtype, |b| b == bytes)?;
            if rows != wanted {
                return Err(self.other_rows(part, argument.value, "the call's result"));
            }
        }
        for (n, argument) in arguments.iter().enumerate().skip(operands) {
            self.written(part, &argument.at)?;
            self.define(part, argument.value, Definition::Made(step, n))?;
        }
        if let Some((at, bytes)) = workspace {
            if at.space != Space::Arena || !at.strides.is_empty() {
                bail!(part, 9, "workspace lies in the arena, and without strides");
            }
            self.address(part, at, *bytes, self.plan.target.alignment)?;
        }
        Ok(())
    }

    fn argument(
        &self,
        part: Part,
        argument: &Argument,
        dtype: DType,
        fits: impl Fn(u64) -> bool,
    ) -> Result {
        let value = self.value(part, argument.value)?;
        if value.dtype.stored() != dtype || !fits(value.bytes()) {
            let shown = ValueText(self.plan, argument.value);
            bail!(part, 5, "{shown} is of another type than the parameter");
        }
        self.place(part, argument.value, &argument.at)
    }

    /// P16, of an argument.
    fn other_rows(&self, part: Part, value: ValueId, parameter: &str) -> Failure {
        let shown = ValueText(self.plan, value);
        let wrong = format!("{shown} has other rows in memory than {parameter}");
        failure(part, 16, wrong).help("a value and its parameters have one pitch and one row")
    }

    /// P16: inputs, outputs, constants, variables and the values of loops and branches have no
    /// pitch.
    fn dense(&self, part: Part, value: ValueId) -> Result {
        if self.value(part, value)?.pitch.is_some() {
            let wrong = format!("{} has a pitch here", ValueText(self.plan, value));
            return Err(failure(part, 16, wrong).help(
                "only results of nests and calls that no loop, branch or output holds have",
            ));
        }
        Ok(())
    }

    /// A scalar that controls a loop or a branch.
    fn scalar(&self, part: Part, argument: &Argument, dtypes: &[DType]) -> Result {
        self.dense(part, argument.value)?;
        let value = self.value(part, argument.value)?;
        if !dtypes.contains(&value.dtype) || value.elements() != 1 {
            let names: Vec<&str> = dtypes.iter().map(|d| d.name()).collect();
            let shown = ValueText(self.plan, argument.value);
            bail!(part, 5, "{shown} is no scalar of {}", names.join(" or "));
        }
        self.place(part, argument.value, &argument.at)
    }

    fn place(&self, part: Part, value: ValueId, at: &Address) -> Result {
        let value = self.value(part, value)?;
        let alignment = if at.strides.is_empty() {
            self.plan.target.alignment
        } else {
            value.dtype.size() as u64
        };
        self.address(part, at, value.bytes(), alignment)
    }

    /// P3, P7, and of P8 that strides belong to enclosing loops.
    fn address(&self, part: Part, at: &Address, bytes: u64, alignment: u64) -> Result {
        let Some(size) = self.plan.space_bytes(at.space) else {
            bail!(part, 3, "there is no `{}`", at.space);
        };
        ensure!(
            bytes != 0 || at.strides.is_empty(),
            part,
            8,
            "nothing lies at `{at}`: values without bytes have no strides"
        );
        let mut enclosing = self.loops.iter();
        for (id, stride) in &at.strides {
            ensure!(
                enclosing.any(|l| l == id),
                part,
                3,
                "{id} in `{at}` is no loop around it, or out of order"
            );
            ensure!(
                stride.is_multiple_of(alignment) && *stride != 0,
                part,
                7,
                "the stride {stride} of `{at}` is not aligned"
            );
        }
        if !at.offset.is_multiple_of(alignment) {
            bail!(part, 7, "`{at}` is not aligned to {alignment} bytes");
        }
        ensure!(
            at.offset.checked_add(bytes).is_some_and(|end| end <= size),
            part,
            7,
            "{bytes} bytes at `{at}` are beyond its {size} bytes"
        );
        Ok(())
    }

    /// P9.
    fn written(&self, part: Part, at: &Address) -> Result {
        let read_only = match at.space {
            Space::Input(_) | Space::Constant(_) => true,
            Space::Variable(n) => {
                self.plan.variables.get(n as usize).is_none_or(|v| v.before == Some(v.after))
            }
            Space::Arena | Space::Output(_) => false,
        };
        if read_only {
            Err(failure(part, 9, format!("writes `{at}`, which is only read")))
        } else {
            Ok(())
        }
    }

    fn same_type(&self, part: Part, values: &[ValueId]) -> Result {
        values.iter().try_for_each(|id| self.dense(part, *id))?;
        let first = self.value(part, values[0])?;
        for id in &values[1..] {
            let other = self.value(part, *id)?;
            if other.dtype != first.dtype || other.bytes() != first.bytes() {
                let (a, b) = (ValueText(self.plan, values[0]), ValueText(self.plan, *id));
                bail!(part, 5, "{a} and {b} are of different types");
            }
        }
        Ok(())
    }

    fn looping(&mut self, number: usize, l: &'a Loop, depth: usize) -> Result {
        let part = Part::Step(number);
        ensure!(
            l.id.0 == self.next_loop,
            part,
            3,
            "loops are numbered in order: this is l{}",
            self.next_loop
        );
        self.next_loop += 1;
        match &l.trip {
            Trip::Constant(_) => {}
            Trip::Value { count, .. } => self.scalar(part, count, &[DType::I32, DType::I64])?,
            Trip::While { before, after, .. } => {
                self.scalar(part, before, &[DType::Bool])?;
                self.scalar(
                    part,
                    &Argument { value: *after, at: before.at.clone() },
                    &[DType::Bool],
                )?;
                self.written(part, &before.at)?;
                ensure!(!l.reverse, part, 3, "only a loop whose trip is known runs in reverse");
            }
        }
        for (k, carry) in l.carries.iter().enumerate() {
            let part = Part::Carry(number, k);
            self.same_type(part, &[carry.initial, carry.input, carry.output, carry.result])?;
            self.place(part, carry.initial, &carry.at)?;
            self.written(part, &carry.at)?;
            self.define(part, carry.input, Definition::Once)?;
            self.define(part, carry.result, Definition::Once)?;
        }
        let mut sliced = BTreeSet::new();
        for (k, Slice { whole, part: inner, at }) in l.slices.iter().enumerate() {
            let part = Part::Slice(number, k);
            self.parts(part, l, *whole, *inner, at)?;
            self.define(part, *inner, Definition::Once)?;
            ensure!(sliced.insert((whole, at)), part, 4, "slices the same value a second time");
        }
        for (k, Stack { initial, part: inner, whole, at }) in l.stacks.iter().enumerate() {
            let part = Part::Stack(number, k);
            self.parts(part, l, *whole, *inner, at)?;
            self.written(part, at)?;
            self.define(part, *whole, Definition::Once)?;
            match initial {
                Some(initial) => self.same_type(part, &[*initial, *whole])?,
                None if count(&self.plan.values[*whole], &self.plan.values[*inner])
                    .is_some_and(|n| n == u64::MAX || l.trip == Trip::Constant(n)) => {}
                None => {
                    bail!(part, 12, "the iterations do not write all of it";
                        help "say what it holds before: `over %value`");
                }
            }
        }
        self.loops.push(l.id);
        self.block(&l.body, depth + 1)?;
        self.loops.pop();
        Ok(())
    }

    /// Checks that a whole consists of parts: by bytes, since a reshape moves no bytes.
    fn parts(&self, part: Part, l: &Loop, whole: ValueId, inner: ValueId, at: &Address) -> Result {
        self.place(part, whole, at)?;
        [whole, inner].into_iter().try_for_each(|id| self.dense(part, id))?;
        let (whole, inner) = (self.value(part, whole)?, self.value(part, inner)?);
        let Some(count) = count(whole, inner) else {
            bail!(part, 5, "it does not consist of values of the part's type");
        };
        ensure!(
            count >= l.trip.limit(),
            part,
            12,
            "{} iterations have {count} parts",
            l.trip.limit()
        );
        Ok(())
    }

    fn merges(&mut self, number: usize, merges: &[Merge], ways: usize) -> Result {
        for (k, merge) in merges.iter().enumerate() {
            let part = Part::Merge(number, k);
            ensure!(
                merge.ways.len() == ways,
                part,
                3,
                "merges {} values of {ways} ways",
                merge.ways.len()
            );
            let all: Vec<ValueId> = merge.ways.iter().copied().chain([merge.result]).collect();
            self.same_type(part, &all)?;
            self.place(part, merge.result, &merge.at)?;
            self.written(part, &merge.at)?;
            self.define(part, merge.result, Definition::Once)?;
        }
        Ok(())
    }
}

/// Number of parts of a whole; unlimited if they have no bytes.
fn count(whole: &Value, part: &Value) -> Option<u64> {
    if whole.dtype != part.dtype {
        return None;
    }
    match (whole.bytes(), part.bytes()) {
        (0, 0) => Some(u64::MAX),
        (_, 0) => None,
        (whole, part) => whole.is_multiple_of(part).then_some(whole / part),
    }
}

/// Number of elements, if it does not overflow.
fn elements(shape: &[usize]) -> Option<u64> {
    shape.iter().try_fold(1u64, |n, e| n.checked_mul(*e as u64))
}

/// True if both steps compute the same results from the same values.
fn recomputes(plan: &Plan, a: &Step, b: &Step) -> bool {
    let operands = |step: &Step| -> Vec<ValueId> {
        let is_operand = |n: usize, count: usize| match step {
            Step::Nest { nest, .. } => {
                plan.nests[*nest].parameters().nth(n).is_some_and(|(_, b)| b.role == BufferRole::In)
            }
            _ => n + 1 < count,
        };
        match step {
            Step::Nest { arguments, .. } | Step::Call { arguments, .. } => {
                let operand = |n: &usize| is_operand(*n, arguments.len());
                (0..arguments.len()).filter(operand).map(|n| arguments[n].value).collect()
            }
            _ => Vec::new(),
        }
    };
    let same = match (a, b) {
        (Step::Nest { nest: n, .. }, Step::Nest { nest: m, .. }) => n == m,
        (Step::Call { call: n, .. }, Step::Call { call: m, .. }) => n == m,
        _ => false,
    };
    same && operands(a) == operands(b)
}
