//! Parser of plans; `docs/ir.md` has the grammar.
//!
//! The parser resolves names and numbers. The verifier checks the invariants, and names lines
//! through [`Places`].

use super::{
    Address, Argument, Carry, Constant, Input, Loop, LoopId, Merge, NestId, Output, Plan, Slice,
    Space, Stack, Step, Transfer, TransferId, Trip, Value, ValueId, Variable,
};
use crate::call::Call;
use crate::diagnostic::{Result, bail, ensure};
use crate::dim::Binding;
use crate::graph::InputRole;
use crate::graph::parse::{parse_attributes, read_axes};
use crate::id::{Id, IdVec};
use crate::location::Location;
use crate::mesh::Mesh;
use crate::nest;
use crate::target::Target;
use crate::text::{Cursor, Kind};
use std::collections::BTreeMap;

/// A part of a plan, for error messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The plan as a whole.
    Plan,
    /// Its target.
    Target,
    /// The size of its arena.
    Arena,
    /// A value of the table.
    Value(ValueId),
    /// An input, by position.
    Input(usize),
    /// A variable, by position.
    Variable(usize),
    /// An output, by position.
    Output(usize),
    /// A constant, by position.
    Constant(usize),
    /// A nest.
    Nest(NestId),
    /// A step. Steps are numbered in the order of the text, nested steps after the step that
    /// contains them.
    Step(usize),
    /// A carry of the loop at that step.
    Carry(usize, usize),
    /// A slice of the loop at that step.
    Slice(usize, usize),
    /// A stack of the loop at that step.
    Stack(usize, usize),
    /// A merge of the branch at that step.
    Merge(usize, usize),
}

/// Positions of the parts of a parsed plan in its text.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Places {
    plan: Location,
    target: Location,
    arena: Location,
    values: Vec<Location>,
    inputs: Vec<Location>,
    variables: Vec<Location>,
    outputs: Vec<Location>,
    constants: Vec<Location>,
    nests: Vec<nest::Places>,
    steps: Vec<StepPlaces>,
}

#[derive(Clone, PartialEq, Debug, Default)]
struct StepPlaces {
    head: Location,
    carries: Vec<Location>,
    slices: Vec<Location>,
    stacks: Vec<Location>,
    merges: Vec<Location>,
}

impl Places {
    /// The position of a part; unknown if the plan has no such part.
    pub fn get(&self, part: Part) -> Location {
        let step = |n: usize| self.steps.get(n);
        match part {
            Part::Plan => Some(&self.plan),
            Part::Target => Some(&self.target),
            Part::Arena => Some(&self.arena),
            Part::Value(id) => self.values.get(id.index()),
            Part::Input(n) => self.inputs.get(n),
            Part::Variable(n) => self.variables.get(n),
            Part::Output(n) => self.outputs.get(n),
            Part::Constant(n) => self.constants.get(n),
            Part::Nest(id) => return self.nest(id).get(nest::Part::Nest),
            Part::Step(n) => step(n).map(|s| &s.head),
            Part::Carry(n, k) => step(n).and_then(|s| s.carries.get(k)),
            Part::Slice(n, k) => step(n).and_then(|s| s.slices.get(k)),
            Part::Stack(n, k) => step(n).and_then(|s| s.stacks.get(k)),
            Part::Merge(n, k) => step(n).and_then(|s| s.merges.get(k)),
        }
        .cloned()
        .unwrap_or_default()
    }

    /// The positions inside a nest.
    pub fn nest(&self, id: NestId) -> nest::Places {
        self.nests.get(id.index()).cloned().unwrap_or_default()
    }
}

/// Parses a text of one plan.
pub fn parse_plan(file: &str, text: &str) -> Result<(Plan, Places)> {
    let mut cursor = Cursor::new(file, text);
    let plan = read_plan(&mut cursor)?;
    cursor.expect_end()?;
    Ok(plan)
}

/// Parses the plan at the cursor.
pub fn read_plan(c: &mut Cursor<'_>) -> Result<(Plan, Places)> {
    let mut places = Places { plan: c.location(c.peek()), ..Places::default() };
    c.expect_keyword("plan")?;
    let function = c.expect_function("the name of the function, `@name`")?.to_string();
    c.expect("{")?;
    places.target = c.location(c.peek());
    let target = read_target(c)?;
    let mut binding = Binding::new();
    // The verifier of plans checks the mesh.
    let mesh = if c.is_keyword("mesh") { read_axes(c)? } else { Mesh::default() };
    if c.eat_keyword("bind") {
        c.list("{", "}", |c| {
            let token = c.peek();
            let name = read_name(c, "the name of a dimension")?;
            c.expect("=")?;
            let value = c.expect_integer("the value of a dimension")?;
            ensure!(binding.get(&name).is_none(), c at token, "dimension `{name}` is bound twice");
            binding.insert(&name, value)
        })?;
    }
    places.arena = c.location(c.peek());
    c.expect_keyword("arena")?;
    let arena = c.expect_integer("the bytes of the arena")?;
    c.expect_keyword("bound")?;
    let lower_bound = c.expect_integer("the lower bound of the arena")?;
    let plan = Plan {
        function,
        binding,
        target,
        mesh,
        inputs: Vec::new(),
        outputs: Vec::new(),
        variables: Vec::new(),
        constants: Vec::new(),
        values: IdVec::new(),
        nests: IdVec::new(),
        steps: Vec::new(),
        arena,
        lower_bound,
    };
    let mut reader = Reader { plan, places, nests: BTreeMap::new() };
    reader.declarations(c)?;
    c.expect_keyword("steps")?;
    reader.plan.steps = reader.block(c)?;
    c.expect("}")?;
    Ok((reader.plan, reader.places))
}

/// `target @cpu {…}`
fn read_target(c: &mut Cursor<'_>) -> Result<Target> {
    c.expect_keyword("target")?;
    let token = c.peek();
    let name = c.expect_function("the name of the target, `@cpu`")?.to_string();
    let attributes = parse_attributes(c)?;
    Target::from_attributes(&name, attributes).map_err(|e| c.relay(token, e))
}

/// Takes the next keyword and returns its position.
fn keyword(c: &mut Cursor<'_>) -> Location {
    let token = c.advance();
    c.location(token)
}

/// A bare name, or any string in quotes.
fn read_name(c: &mut Cursor<'_>, what: &str) -> Result<String> {
    match c.peek().kind {
        Kind::Str(_) => c.expect_string(what),
        _ => c.expect_name(what).map(str::to_string),
    }
}

/// The number after a prefix: `%12` without the sign, `l3` with `l`.
fn number<T: std::str::FromStr>(text: &str, prefix: &str) -> Option<T> {
    let digits = text.strip_prefix(prefix)?;
    // Each number has one spelling.
    let plain =
        digits == "0" || (!digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit()));
    if plain { digits.parse().ok() } else { None }
}

fn read_value(c: &mut Cursor<'_>) -> Result<ValueId> {
    let token = c.peek();
    let name = c.expect_value("a value, `%0`")?;
    number(name, "")
        .map(ValueId)
        .ok_or_else(|| c.error(token, "a value of a plan is a number, `%0`"))
}

fn read_loop_id(c: &mut Cursor<'_>) -> Result<LoopId> {
    let token = c.peek();
    let name = c.expect_name("a loop, `l0`")?;
    number(name, "l")
        .map(LoopId)
        .ok_or_else(|| c.error(token, "a loop of a plan is a number, `l0`"))
}

fn read_transfer_id(c: &mut Cursor<'_>) -> Result<TransferId> {
    let token = c.peek();
    let name = c.expect_name("a transfer, `t0`")?;
    number(name, "t")
        .map(TransferId)
        .ok_or_else(|| c.error(token, "a transfer of a plan is a number, `t0`"))
}

/// `(%0 at input.0, %1 at arena)`
fn read_transfer(c: &mut Cursor<'_>, id: TransferId) -> Result<Transfer> {
    c.expect("(")?;
    let operand = read_argument(c)?;
    c.expect(",")?;
    let result = read_argument(c)?;
    c.expect(")")?;
    Ok(Transfer { id, operand, result })
}

fn read_address(c: &mut Cursor<'_>) -> Result<Address> {
    let token = c.peek();
    let name = c.expect_name("a memory, such as `arena` or `input.0`")?;
    let space = match name {
        "arena" => Some(Space::Arena),
        _ => number(name, "input.")
            .map(Space::Input)
            .or_else(|| number(name, "output.").map(Space::Output))
            .or_else(|| number(name, "variable.").map(Space::Variable))
            .or_else(|| number(name, "constant.").map(Space::Constant)),
    };
    let space = space.ok_or_else(|| {
        c.error(token, format!("`{name}` is no memory"))
            .help("memories are `arena`, `input.N`, `output.N`, `variable.N` and `constant.N`")
    })?;
    let mut address = Address::new(space, 0);
    let mut first = true;
    while c.eat("+") {
        let token = c.peek();
        let bytes = c.expect_integer("a number of bytes")?;
        if c.eat("*") {
            address.strides.push((read_loop_id(c)?, bytes));
        } else if first {
            address.offset = bytes;
        } else {
            bail!(c at token, "only the first number is an offset; the others are `bytes*loop`");
        }
        first = false;
    }
    Ok(address)
}

fn read_argument(c: &mut Cursor<'_>) -> Result<Argument> {
    let value = read_value(c)?;
    c.expect_keyword("at")?;
    Ok(Argument { value, at: read_address(c)? })
}

struct Reader<'a> {
    plan: Plan,
    places: Places,
    nests: BTreeMap<&'a str, NestId>,
}

impl<'a> Reader<'a> {
    /// Values, signature, constants and nests, in printing order.
    fn declarations(&mut self, c: &mut Cursor<'a>) -> Result<()> {
        while c.is_keyword("value") {
            self.places.values.push(keyword(c));
            let token = c.peek();
            let id = read_value(c)?;
            ensure!(
                id.index() == self.plan.values.len(), c at token,
                "values are numbered in order: this is %{}", self.plan.values.len()
            );
            c.expect(":")?;
            let (dtype, shape, pitch) = (c.dtype()?, c.extents()?, c.pitch()?);
            let name = match c.peek().kind {
                Kind::Str(_) => c.expect_string("a name")?,
                _ => String::new(),
            };
            self.plan.values.push(Value { name, dtype, shape, pitch });
        }
        while let Some(role) =
            [InputRole::Input, InputRole::Key].into_iter().find(|r| c.is_keyword(r.name()))
        {
            self.places.inputs.push(keyword(c));
            let name = read_name(c, "the name of an input")?;
            c.expect("=")?;
            self.plan.inputs.push(Input { name, role, value: read_value(c)? });
        }
        while c.is_keyword("variable") {
            self.places.variables.push(keyword(c));
            let name = read_name(c, "the name of a variable")?;
            c.expect(":")?;
            let (dtype, shape) = (c.dtype()?, c.extents()?);
            let before = if c.eat("=") { Some(read_value(c)?) } else { None };
            let after = match before {
                Some(before) if !c.is("->") => before,
                _ => {
                    c.expect("->")?;
                    read_value(c)?
                }
            };
            self.plan.variables.push(Variable { name, dtype, shape, before, after });
        }
        while c.is_keyword("output") {
            self.places.outputs.push(keyword(c));
            let name = read_name(c, "the name of an output")?;
            c.expect(":")?;
            let shape = c.extents()?;
            c.expect("=")?;
            self.plan.outputs.push(Output { name, shape, value: read_value(c)? });
        }
        while c.is_keyword("constant") {
            self.places.constants.push(keyword(c));
            let token = c.peek();
            let id = read_value(c)?;
            let Some(value) = self.plan.values.get(id) else {
                bail!(c at token, "there is no value {id}");
            };
            let (dtype, shape) = (value.dtype, value.shape.clone());
            c.expect("=")?;
            let literal = c.literal(dtype, &shape)?;
            self.plan.constants.push(Constant { value: id, literal });
        }
        while c.is_keyword("nest") {
            let mut ahead = c.clone();
            ahead.advance();
            let token = ahead.peek();
            let (nest, places) = nest::parse_nest(c)?;
            let id = self.plan.nests.push(nest);
            self.places.nests.push(places);
            let Kind::Function(name) = token.kind else { continue };
            if self.nests.insert(name, id).is_some() {
                bail!(c at token, "a second nest is named `@{name}`");
            }
        }
        Ok(())
    }

    fn block(&mut self, c: &mut Cursor<'a>) -> Result<Vec<Step>> {
        c.expect("{")?;
        let mut steps = Vec::new();
        while !c.eat("}") {
            steps.push(c.nested(|c| self.step(c))?);
        }
        Ok(steps)
    }

    fn step(&mut self, c: &mut Cursor<'a>) -> Result<Step> {
        let token = c.peek();
        let number = self.places.steps.len();
        self.places.steps.push(StepPlaces { head: c.location(token), ..StepPlaces::default() });
        Ok(match c.expect_name("a step or `}`")? {
            "run" => {
                let token = c.peek();
                let name = c.expect_function("the name of a nest, `@name`")?;
                let nest = self.nests.get(name).copied();
                let nest =
                    nest.ok_or_else(|| c.error(token, format!("there is no nest `@{name}`")))?;
                Step::Nest { nest, arguments: c.list("(", ")", read_argument)? }
            }
            "call" => {
                let token = c.peek();
                let name = c.expect_name("the name of a call")?;
                let arguments = c.list("(", ")", read_argument)?;
                let attributes = if c.is("{") { parse_attributes(c)? } else { BTreeMap::new() };
                let call =
                    Call::from_attributes(name, attributes).map_err(|e| c.relay(token, e))?;
                let mut workspace = None;
                if c.eat_keyword("workspace") {
                    let bytes = c.expect_integer("a number of bytes")?;
                    c.expect_keyword("at")?;
                    workspace = Some((read_address(c)?, bytes));
                }
                Step::Call { call, arguments, workspace }
            }
            "start" => {
                let id = read_transfer_id(c)?;
                let token = c.peek();
                let name = c.expect_name("`collective`")?;
                let transfer = read_transfer(c, id)?;
                let call = Call::from_attributes(name, parse_attributes(c)?);
                match call.map_err(|e| c.relay(token, e))? {
                    Call::Collective(call) => Step::Start { transfer, call },
                    _ => bail!(c at token, "`{name}` is no collective, and cannot be started";
                               help "other calls are steps `call`"),
                }
            }
            "wait" => {
                let id = read_transfer_id(c)?;
                Step::Wait(read_transfer(c, id)?)
            }
            "copy" => {
                let value = read_value(c)?;
                c.expect_keyword("from")?;
                let from = read_address(c)?;
                c.expect_keyword("to")?;
                Step::Copy { value, from, to: read_address(c)? }
            }
            "loop" => Step::Loop(self.read_loop(c, number)?),
            "if" => {
                let predicate = read_argument(c)?;
                let then = self.block(c)?;
                c.expect_keyword("else")?;
                let otherwise = self.block(c)?;
                Step::If { predicate, then, otherwise, merges: self.merges(c, number)? }
            }
            "switch" => {
                let index = read_argument(c)?;
                let mut arms = Vec::new();
                while c.eat_keyword("case") {
                    arms.push(self.block(c)?);
                }
                Step::Switch { index, arms, merges: self.merges(c, number)? }
            }
            word => {
                bail!(c at token, "unknown step `{word}`";
                    help "steps are `run`, `call`, `start`, `wait`, `copy`, `loop`, `if` and \
                          `switch`");
            }
        })
    }

    fn read_loop(&mut self, c: &mut Cursor<'a>, step: usize) -> Result<Loop> {
        let id = read_loop_id(c)?;
        let trip = if c.eat_keyword("while") {
            let value = read_value(c)?;
            c.expect(",")?;
            let after = read_value(c)?;
            c.expect_keyword("at")?;
            let before = Argument { value, at: read_address(c)? };
            c.expect_keyword("limit")?;
            Trip::While { before, after, limit: c.expect_integer("a number of iterations")? }
        } else {
            c.expect_keyword("trip")?;
            if matches!(c.peek().kind, Kind::Value(_)) {
                let count = read_argument(c)?;
                c.expect_keyword("limit")?;
                Trip::Value { count, limit: c.expect_integer("a number of iterations")? }
            } else {
                Trip::Constant(c.expect_integer("a number of iterations, or a value")?)
            }
        };
        let reverse = c.eat_keyword("reverse");
        c.expect("{")?;
        let mut l = Loop {
            id,
            trip,
            reverse,
            carries: vec![],
            slices: vec![],
            stacks: vec![],
            body: vec![],
        };
        while c.is_keyword("carry") {
            let location = keyword(c);
            self.places.steps[step].carries.push(location);
            let initial = read_value(c)?;
            c.expect("->")?;
            let input = read_value(c)?;
            c.expect(",")?;
            let output = read_value(c)?;
            c.expect("->")?;
            let result = read_value(c)?;
            c.expect_keyword("at")?;
            l.carries.push(Carry { initial, input, output, result, at: read_address(c)? });
        }
        while c.is_keyword("slice") {
            let location = keyword(c);
            self.places.steps[step].slices.push(location);
            let whole = read_value(c)?;
            c.expect("->")?;
            let part = read_value(c)?;
            c.expect_keyword("at")?;
            l.slices.push(Slice { whole, part, at: read_address(c)? });
        }
        while c.is_keyword("stack") {
            let location = keyword(c);
            self.places.steps[step].stacks.push(location);
            let part = read_value(c)?;
            c.expect("->")?;
            let whole = read_value(c)?;
            let initial = if c.eat_keyword("over") { Some(read_value(c)?) } else { None };
            c.expect_keyword("at")?;
            l.stacks.push(Stack { initial, part, whole, at: read_address(c)? });
        }
        while !c.eat("}") {
            l.body.push(c.nested(|c| self.step(c))?);
        }
        Ok(l)
    }

    fn merges(&mut self, c: &mut Cursor<'a>, step: usize) -> Result<Vec<Merge>> {
        let mut merges = Vec::new();
        while c.is_keyword("merge") {
            let location = keyword(c);
            self.places.steps[step].merges.push(location);
            let mut ways = Vec::new();
            while !c.is("->") {
                if !ways.is_empty() {
                    c.expect(",")?;
                }
                ways.push(read_value(c)?);
            }
            c.expect("->")?;
            let result = read_value(c)?;
            c.expect_keyword("at")?;
            merges.push(Merge { ways, result, at: read_address(c)? });
        }
        Ok(merges)
    }
}
