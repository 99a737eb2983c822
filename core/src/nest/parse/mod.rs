//! Parser of nests; `docs/ir.md` has the grammar.
//!
//! The parser resolves names and builds normal forms. The verifier checks the invariants, and
//! names lines through [`Places`]. Registers may have any names in text; their numbers are the
//! order of definition.

mod combine;
mod index;

use super::{
    Access, Axis, AxisId, Buffer, BufferId, BufferRole, Guard, Instr, Nest, Phase, Prefix,
    Reduction, Reg, ScalarOp, Total, Tree,
};
use crate::diagnostic::{Result, bail};
use crate::dtype::DType;
use crate::id::{Id, IdVec};
use crate::location::Location;
use crate::text::{Cursor, Token};
use combine::parse_combine;
use std::collections::BTreeMap;

/// A part of a nest, for error messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The nest as a whole.
    Nest,
    /// A buffer.
    Buffer(BufferId),
    /// The parallel axes.
    Parallel,
    /// A phase, by position.
    Phase(usize),
    /// An instruction: phase and position in its body.
    Instr(usize, usize),
    /// A reduction: phase and position among its reductions.
    Reduction(usize, usize),
}

/// Positions of the parts of a parsed nest in its text.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Places {
    nest: Location,
    buffers: Vec<Location>,
    parallel: Location,
    phases: Vec<PhasePlaces>,
}

#[derive(Clone, PartialEq, Debug, Default)]
struct PhasePlaces {
    head: Location,
    body: Vec<Location>,
    reductions: Vec<Location>,
}

impl Places {
    /// The position of a part; unknown if the nest has no such part.
    pub fn get(&self, part: Part) -> Location {
        let phase = |p: usize| self.phases.get(p);
        match part {
            Part::Nest => Some(&self.nest),
            Part::Buffer(id) => self.buffers.get(id.index()),
            Part::Parallel => Some(&self.parallel),
            Part::Phase(p) => phase(p).map(|p| &p.head),
            Part::Instr(p, i) => phase(p).and_then(|p| p.body.get(i)),
            Part::Reduction(p, i) => phase(p).and_then(|p| p.reductions.get(i)),
        }
        .cloned()
        .unwrap_or_default()
    }
}

/// Parses a text of nests.
pub fn parse_nests(file: &str, text: &str) -> Result<Vec<(Nest, Places)>> {
    let mut cursor = Cursor::new(file, text);
    let mut nests = Vec::new();
    while !cursor.is_end() {
        nests.push(parse_nest(&mut cursor)?);
    }
    Ok(nests)
}

/// Parses the nest at the cursor.
pub fn parse_nest(cursor: &mut Cursor<'_>) -> Result<(Nest, Places)> {
    let start = cursor.peek();
    cursor.expect_keyword("nest")?;
    let name = cursor.expect_function("the name of the nest, `@name`")?.to_string();
    let nest = Nest {
        name,
        buffers: IdVec::new(),
        axes: IdVec::new(),
        parallel: Vec::new(),
        phases: Vec::new(),
        registers: IdVec::new(),
    };
    let places = Places { nest: cursor.location(start), ..Places::default() };
    let mut parser = Parser {
        nest,
        places,
        buffers: BTreeMap::new(),
        axes: BTreeMap::new(),
        registers: BTreeMap::new(),
    };
    cursor.list("(", ")", |c| parser.buffer(c, false))?;
    cursor.expect("{")?;
    while cursor.is_keyword("row") {
        parser.buffer(cursor, true)?;
    }
    if cursor.is_keyword("parallel") {
        let token = cursor.advance();
        parser.places.parallel = cursor.location(token);
        parser.nest.parallel = parser.axis_list(cursor)?;
    }
    while cursor.is_keyword("phase") {
        parser.phase(cursor)?;
    }
    if !cursor.eat("}") {
        return Err(cursor.unexpected("`row`, `parallel`, `phase` or `}`"));
    }
    Ok((parser.nest, parser.places))
}

struct Parser<'a> {
    nest: Nest,
    places: Places,
    buffers: BTreeMap<&'a str, BufferId>,
    /// The visible axes: the parallel ones, and those of the current phase.
    axes: BTreeMap<&'a str, AxisId>,
    registers: BTreeMap<&'a str, Reg>,
}

impl<'a> Parser<'a> {
    fn buffer(&mut self, c: &mut Cursor<'a>, row: bool) -> Result<()> {
        let start = c.peek();
        let role = match c.expect_name("`in`, `out` or `inout`")? {
            "in" if !row => BufferRole::In,
            "out" if !row => BufferRole::Out,
            "inout" if !row => BufferRole::InOut,
            "row" if row => BufferRole::Row,
            _ => return Err(c.error(start, "parameters are `in`, `out` or `inout`")),
        };
        let token = c.peek();
        let name = c.expect_value("the name of a buffer")?;
        c.expect(":")?;
        let dtype = c.dtype()?;
        let (shape, pitch) = (c.extents()?, c.pitch()?);
        let id = self.nest.buffers.push(Buffer { name: name.into(), dtype, shape, pitch, role });
        self.places.buffers.push(c.location(start));
        if self.buffers.insert(name, id).is_some() {
            bail!(c at token, "a second buffer is named `%{name}`");
        }
        Ok(())
    }

    fn axis_list(&mut self, c: &mut Cursor<'a>) -> Result<Vec<AxisId>> {
        c.separated(|c| {
            let token = c.peek();
            let name = c.expect_name("the name of an axis")?;
            c.expect(":")?;
            let extent = c.expect_integer("the extent of an axis")?;
            let id = self.nest.axes.push(Axis { name: name.into(), extent });
            if self.axes.insert(name, id).is_some() {
                bail!(c at token, "a second axis is named `{name}` here");
            }
            Ok(id)
        })
    }

    fn phase(&mut self, c: &mut Cursor<'a>) -> Result<()> {
        let token = c.advance();
        let mut places = PhasePlaces { head: c.location(token), ..PhasePlaces::default() };
        let mut phase = Phase { axes: Vec::new(), body: Vec::new(), reductions: Vec::new() };
        if !c.is("{") {
            phase.axes = self.axis_list(c)?;
        }
        c.expect("{")?;
        while !c.is("}") {
            let token = c.peek();
            if c.eat_keyword("store") {
                let access = self.access(c)?;
                c.expect(",")?;
                let value = self.reg(c)?;
                let total = if c.eat_keyword("total") {
                    let dtypes = [self.nest.registers[value]];
                    Some(Box::new(Total { combine: parse_combine(c, &dtypes)?, tree: tree(c)? }))
                } else {
                    None
                };
                let guards = if c.is("{") { self.guards(c)? } else { Vec::new() };
                phase.body.push(Instr::Store { access: Access { guards, ..access }, value, total });
                places.body.push(c.location(token));
                continue;
            }
            let defined = definitions(c, "an instruction or `}`")?;
            if c.is_keyword("reduce") {
                phase.reductions.push(self.reduction(c, &defined)?);
                places.reductions.push(c.location(token));
            } else if phase.reductions.is_empty() {
                phase.body.push(self.definition(c, &defined)?);
                places.body.push(c.location(token));
            } else {
                bail!(c at token, "reductions come after all instructions of a phase");
            }
        }
        c.expect("}")?;
        for id in &phase.axes {
            self.axes.remove(self.nest.axes[*id].name.as_str());
        }
        self.nest.phases.push(phase);
        self.places.phases.push(places);
        Ok(())
    }

    /// The instruction after `%r: dtype =`.
    fn definition(&mut self, c: &mut Cursor<'a>, defined: &[Defined<'a>]) -> Result<Instr> {
        let token = c.peek();
        let word = c.expect_name("an instruction")?;
        if word == "prefix" {
            let reverse = c.eat_keyword("reverse");
            let values = c.list("(", ")", |c| self.reg(c))?;
            let combine = parse_combine(c, &dtypes(defined))?;
            let results = self.define_all(c, defined)?;
            return Ok(Instr::Prefix(Prefix { results, values, combine, reverse }));
        }
        let single = single(c, defined)?;
        // Operands are parsed before the definition, so no instruction reads its own result.
        let mut instr = match word {
            "index" => Instr::Index { result: Reg(0), value: self.affine(c)? },
            "test" => Instr::Test { result: Reg(0), guards: self.guards(c)? },
            "load" => {
                let mut access = self.access(c)?;
                if c.is("{") {
                    access.guards = self.guards(c)?;
                }
                let fill = if c.eat_keyword("else") { Some(self.reg(c)?) } else { None };
                Instr::Load { result: Reg(0), access, fill }
            }
            _ => straight(c, token, word, single, |c| self.reg(c))?,
        };
        let register = define(c, single, &mut self.registers, &mut self.nest.registers)?;
        instr.results_mut().fill(register);
        Ok(instr)
    }

    fn reduction(&mut self, c: &mut Cursor<'a>, defined: &[Defined<'a>]) -> Result<Reduction> {
        c.expect_keyword("reduce")?;
        let values = c.list("(", ")", |c| self.reg(c))?;
        let combine = parse_combine(c, &dtypes(defined))?;
        let tree = tree(c)?;
        let results = self.define_all(c, defined)?;
        Ok(Reduction { results, values, combine, tree })
    }

    fn define_all(&mut self, c: &Cursor<'a>, defined: &[Defined<'a>]) -> Result<Vec<Reg>> {
        defined
            .iter()
            .map(|d| define(c, *d, &mut self.registers, &mut self.nest.registers))
            .collect()
    }

    fn reg(&self, c: &mut Cursor<'a>) -> Result<Reg> {
        read_reg(c, &self.registers)
    }

    /// `%x[i, j]`, with `clamp`. Guards are parsed by the callers, since loads and stores place
    /// them differently.
    fn access(&self, c: &mut Cursor<'a>) -> Result<Access> {
        let token = c.peek();
        let name = c.expect_value("the name of a buffer")?;
        let Some(&buffer) = self.buffers.get(name) else {
            bail!(c at token, "no buffer is named `%{name}`");
        };
        let indices = c.list("[", "]", |c| self.affine(c))?;
        let clamp = c.eat_keyword("clamp");
        Ok(Access { buffer, indices, guards: Vec::new(), clamp })
    }

    fn guards(&self, c: &mut Cursor<'a>) -> Result<Vec<Guard>> {
        c.list("{", "}", |c| {
            let index = self.affine(c)?;
            c.expect_keyword("in")?;
            let low = c.expect_integer("a bound")?;
            c.expect("..")?;
            let high = c.expect_integer("a bound")?;
            Ok(Guard { index, low, high })
        })
    }
}

/// A register being defined: its name, dtype and position.
#[derive(Clone, Copy)]
struct Defined<'a> {
    name: &'a str,
    dtype: DType,
    token: Token<'a>,
}

/// `%a: f32, %b: i64 =`
fn definitions<'a>(c: &mut Cursor<'a>, what: &str) -> Result<Vec<Defined<'a>>> {
    let defined = c.separated(|c| {
        let token = c.peek();
        let name = c.expect_value(what)?;
        c.expect(":")?;
        Ok(Defined { name, dtype: c.dtype()?, token })
    })?;
    c.expect("=")?;
    Ok(defined)
}

fn dtypes(defined: &[Defined<'_>]) -> Vec<DType> {
    defined.iter().map(|d| d.dtype).collect()
}

/// `tree(16)` or `tree(16, 4096)`
fn tree(c: &mut Cursor<'_>) -> Result<Tree> {
    c.expect_keyword("tree")?;
    c.expect("(")?;
    let lanes = c.expect_integer("a number of lanes")?;
    let block = if c.eat(",") { c.expect_integer("a number of elements a block")? } else { 0 };
    c.expect(")")?;
    Ok(Tree { lanes, block })
}

fn single<'a>(c: &Cursor<'a>, defined: &[Defined<'a>]) -> Result<Defined<'a>> {
    match defined {
        [one] => Ok(*one),
        _ => Err(c.error(defined[1].token, "only `reduce` and `prefix` define several registers")),
    }
}

fn define<'a>(
    c: &Cursor<'a>,
    defined: Defined<'a>,
    names: &mut BTreeMap<&'a str, Reg>,
    registers: &mut IdVec<Reg, DType>,
) -> Result<Reg> {
    let reg = registers.push(defined.dtype);
    if names.insert(defined.name, reg).is_some() {
        bail!(c at defined.token, "`%{}` is defined a second time", defined.name);
    }
    Ok(reg)
}

fn read_reg<'a>(c: &mut Cursor<'a>, names: &BTreeMap<&'a str, Reg>) -> Result<Reg> {
    let token = c.peek();
    let name = c.expect_value("a register")?;
    names
        .get(name)
        .copied()
        .ok_or_else(|| c.error(token, format!("`%{name}` is not defined before")))
}

/// `const` and scalar instructions, which bodies and combine programs share. The caller fills in
/// the result.
fn straight<'a>(
    c: &mut Cursor<'a>,
    token: Token<'a>,
    word: &str,
    defined: Defined<'a>,
    mut reg: impl FnMut(&mut Cursor<'a>) -> Result<Reg>,
) -> Result<Instr> {
    if word == "const" {
        return Ok(Instr::Const { result: Reg(0), value: c.scalar(defined.dtype)? });
    }
    let Some(op) = ScalarOp::from_name(word) else {
        bail!(c at token, "unknown instruction `{word}`");
    };
    let mut operands = Vec::with_capacity(op.arity());
    for n in 0..op.arity() {
        if n > 0 {
            c.expect(",")?;
        }
        operands.push(reg(c)?);
    }
    Ok(Instr::Scalar { result: Reg(0), op, operands })
}
