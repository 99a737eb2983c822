//! Nests from text; `docs/ir.md` has the grammar.
//!
//! The reader resolves names and builds normal forms; what a nest must be beyond that is the verifier's to say, which
//! can name lines through [`Places`]. Registers may have any names in text; their numbers are the order of definition.

use super::{
    Access, Affine, Axis, AxisId, Buffer, BufferId, BufferRole, Combine, Guard, Instr, Nest, Phase, Prefix,
    Reduction, Reg, ScalarOp, Term, Tree,
};
use crate::diagnostic::Result;
use crate::dtype::DType;
use crate::id::{Id, IdVec};
use crate::location::Location;
use crate::text::{Cursor, Kind, Token};
use std::collections::BTreeMap;

/// A part of a nest that an error can speak of.
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

/// Where the parts of a parsed nest stand in its text.
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
    /// The place of a part; unknown if the nest has no such part.
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

/// Reads a text of nests.
pub fn parse_nests(file: &str, text: &str) -> Result<Vec<(Nest, Places)>> {
    let mut cursor = Cursor::new(file, text);
    let mut nests = Vec::new();
    while !cursor.is_end() {
        nests.push(parse_nest(&mut cursor)?);
    }
    Ok(nests)
}

/// Reads the nest at the cursor.
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
    let mut parser =
        Parser { nest, places, buffers: BTreeMap::new(), axes: BTreeMap::new(), registers: BTreeMap::new() };
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
    /// The axes that are visible: parallel ones, and those of the phase being read.
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
        let shape = c.extents()?;
        let id = self.nest.buffers.push(Buffer { name: name.into(), dtype, shape, role });
        self.places.buffers.push(c.location(start));
        if self.buffers.insert(name, id).is_some() {
            return Err(c.error(token, format!("a second buffer is named `%{name}`")));
        }
        Ok(())
    }

    fn axis_list(&mut self, c: &mut Cursor<'a>) -> Result<Vec<AxisId>> {
        let mut axes = Vec::new();
        loop {
            let token = c.peek();
            let name = c.expect_name("the name of an axis")?;
            c.expect(":")?;
            let extent = c.expect_integer("the extent of an axis")?;
            let id = self.nest.axes.push(Axis { name: name.into(), extent });
            if self.axes.insert(name, id).is_some() {
                return Err(c.error(token, format!("a second axis is named `{name}` here")));
            }
            axes.push(id);
            if !c.eat(",") {
                return Ok(axes);
            }
        }
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
                let guards = if c.is("{") { self.guards(c)? } else { Vec::new() };
                phase.body.push(Instr::Store { access: Access { guards, ..access }, value });
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
                return Err(c.error(token, "reductions come after all instructions of a phase"));
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

    /// What follows `%r: dtype =`.
    fn definition(&mut self, c: &mut Cursor<'a>, defined: &[Defined<'a>]) -> Result<Instr> {
        let token = c.peek();
        let word = c.expect_name("an instruction")?;
        if word == "prefix" {
            let reverse = c.eat_keyword("reverse");
            let values = c.list("(", ")", |c| self.reg(c))?;
            let combine = parse_combine(c, defined)?;
            let results = self.define_all(c, defined)?;
            return Ok(Instr::Prefix(Prefix { results, values, combine, reverse }));
        }
        let single = single(c, defined)?;
        // Operands come before the definition, so that no instruction reads its own result.
        let instr = match word {
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
        Ok(with_result(instr, register))
    }

    fn reduction(&mut self, c: &mut Cursor<'a>, defined: &[Defined<'a>]) -> Result<Reduction> {
        c.expect_keyword("reduce")?;
        let values = c.list("(", ")", |c| self.reg(c))?;
        let combine = parse_combine(c, defined)?;
        c.expect_keyword("tree")?;
        c.expect("(")?;
        let lanes = c.expect_integer("a number of lanes")?;
        let block = if c.eat(",") { c.expect_integer("a number of elements a block")? } else { 0 };
        c.expect(")")?;
        let results = self.define_all(c, defined)?;
        Ok(Reduction { results, values, combine, tree: Tree { lanes, block } })
    }

    fn define_all(&mut self, c: &Cursor<'a>, defined: &[Defined<'a>]) -> Result<Vec<Reg>> {
        defined.iter().map(|d| define(c, *d, &mut self.registers, &mut self.nest.registers)).collect()
    }

    fn reg(&self, c: &mut Cursor<'a>) -> Result<Reg> {
        read_reg(c, &self.registers)
    }

    /// `%x[i, j]`, with `clamp`; without guards, which stand elsewhere for loads and stores.
    fn access(&self, c: &mut Cursor<'a>) -> Result<Access> {
        let token = c.peek();
        let name = c.expect_value("the name of a buffer")?;
        let Some(&buffer) = self.buffers.get(name) else {
            return Err(c.error(token, format!("no buffer is named `%{name}`")));
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

    /// A sum of integers, axes, registers, divisions, and integers times these; brought into normal form.
    fn affine(&self, c: &mut Cursor<'a>) -> Result<Affine> {
        let start = c.peek();
        let mut constant: i128 = 0;
        let mut terms: BTreeMap<Term, i128> = BTreeMap::new();
        let mut minus = c.eat("-");
        loop {
            if matches!(c.peek().kind, Kind::Integer(_)) || c.is("-") {
                let mut factor = c.expect_wide_integer("an integer")?;
                if minus {
                    factor = -factor;
                }
                if c.eat("*") {
                    self.add(c, factor, &mut constant, &mut terms)?;
                } else {
                    constant += factor;
                }
            } else {
                self.add(c, if minus { -1 } else { 1 }, &mut constant, &mut terms)?;
            }
            minus = c.is("-");
            if !minus && !c.is("+") {
                break;
            }
            c.advance();
        }
        let wide = |_| c.error(start, "index expression is beyond 64 bits");
        let narrow = terms
            .into_iter()
            .filter(|(_, f)| *f != 0)
            .map(|(t, f)| Ok((t, i64::try_from(f).map_err(wide)?)))
            .collect::<Result<Vec<_>>>()?;
        Ok(Affine { constant: i64::try_from(constant).map_err(wide)?, terms: narrow })
    }

    /// Adds `factor` times the axis, register or division at the cursor. Sums cannot overflow: a text would have to have 2^63
    /// terms, but for divisions, whose parts are added here with factors of their own.
    fn add(
        &self,
        c: &mut Cursor<'a>,
        factor: i128,
        constant: &mut i128,
        terms: &mut BTreeMap<Term, i128>,
    ) -> Result<()> {
        let token = c.peek();
        let term = match token.kind {
            Kind::Value(_) => Term::Reg(self.reg(c)?),
            Kind::Name(name @ ("floor_div" | "mod")) => {
                c.advance();
                let value = c.nested(|c| self.division(c, name == "floor_div"))?;
                let wide = || c.error(token, "index expression is beyond 64 bits");
                let scaled = |v: i64| i128::from(v).checked_mul(factor).filter(|v| v.abs() <= 1 << 100);
                *constant += scaled(value.constant).ok_or_else(wide)?;
                for (term, coefficient) in value.terms {
                    *terms.entry(term).or_default() += scaled(coefficient).ok_or_else(wide)?;
                }
                return Ok(());
            }
            Kind::Name(name) => {
                let axis = self.axes.get(name).ok_or_else(|| {
                    c.error(token, format!("no axis `{name}` is visible here"))
                        .help("parallel axes and the axes of the phase are")
                })?;
                c.advance();
                Term::Axis(*axis)
            }
            _ => return Err(c.unexpected("an index expression")),
        };
        *terms.entry(term).or_default() += factor;
        Ok(())
    }

    fn division(&self, c: &mut Cursor<'a>, floor: bool) -> Result<Affine> {
        c.expect("(")?;
        let value = self.affine(c)?;
        c.expect(",")?;
        let token = c.peek();
        let divisor: i64 = c.expect_integer("a divisor")?;
        if divisor < 1 {
            return Err(c.error(token, format!("divisor {divisor} is not at least 1")));
        }
        c.expect(")")?;
        Ok(if floor { value.floor_div(divisor) } else { value.modulo(divisor) })
    }
}

/// A register that is being defined: its name, dtype and place.
#[derive(Clone, Copy)]
struct Defined<'a> {
    name: &'a str,
    dtype: DType,
    token: Token<'a>,
}

/// `%a: f32, %b: i64 =`
fn definitions<'a>(c: &mut Cursor<'a>, what: &str) -> Result<Vec<Defined<'a>>> {
    let mut defined = Vec::new();
    loop {
        let token = c.peek();
        let name = c.expect_value(what)?;
        c.expect(":")?;
        defined.push(Defined { name, dtype: c.dtype()?, token });
        if !c.eat(",") {
            c.expect("=")?;
            return Ok(defined);
        }
    }
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
        return Err(c.error(defined.token, format!("`%{}` is defined a second time", defined.name)));
    }
    Ok(reg)
}

fn read_reg<'a>(c: &mut Cursor<'a>, names: &BTreeMap<&'a str, Reg>) -> Result<Reg> {
    let token = c.peek();
    let name = c.expect_value("a register")?;
    names.get(name).copied().ok_or_else(|| c.error(token, format!("`%{name}` is not defined before")))
}

/// `const` and scalar instructions, which bodies and combine programs share; the result is filled in later.
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
        return Err(c.error(token, format!("unknown instruction `{word}`")));
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

fn with_result(mut instr: Instr, register: Reg) -> Instr {
    match &mut instr {
        Instr::Scalar { result, .. }
        | Instr::Const { result, .. }
        | Instr::Index { result, .. }
        | Instr::Test { result, .. }
        | Instr::Load { result, .. } => *result = register,
        Instr::Store { .. } | Instr::Prefix(_) => {}
    }
    instr
}

/// `sum`, or `combine(%a: f32 = 0.0; %b) { … return %c }`.
fn parse_combine<'a>(c: &mut Cursor<'a>, defined: &[Defined<'a>]) -> Result<Combine> {
    let token = c.peek();
    let name = c.expect_name("a combiner")?;
    if name != "combine" {
        let dtypes: Vec<DType> = defined.iter().map(|d| d.dtype).collect();
        return Combine::named(name, &dtypes).ok_or_else(|| {
            let names: Vec<_> = Combine::names().collect();
            let dtypes: Vec<_> = dtypes.iter().map(|d| d.name()).collect();
            c.error(token, format!("no combiner `{name}` for ({})", dtypes.join(", ")))
                .help(format!("there are {}, and `combine(…) {{ … }}`", names.join(", ")))
        });
    }
    let mut names = BTreeMap::new();
    let mut registers = IdVec::new();
    let mut identity = Vec::new();
    c.expect("(")?;
    loop {
        let token = c.peek();
        let name = c.expect_value("an operand of the combiner")?;
        c.expect(":")?;
        let dtype = c.dtype()?;
        c.expect("=")?;
        identity.push(c.scalar(dtype)?);
        define(c, Defined { name, dtype, token }, &mut names, &mut registers)?;
        if !c.eat(",") {
            break;
        }
    }
    c.expect(";")?;
    for (n, value) in identity.iter().enumerate() {
        if n > 0 {
            c.expect(",")?;
        }
        let token = c.peek();
        let name = c.expect_value("a second operand of the combiner")?;
        define(c, Defined { name, dtype: value.dtype(), token }, &mut names, &mut registers)?;
    }
    c.expect(")")?;
    c.expect("{")?;
    let mut body = Vec::new();
    while !c.is_keyword("return") {
        let defined = definitions(c, "an instruction or `return`")?;
        let single = single(c, &defined)?;
        let token = c.peek();
        let word = c.expect_name("an instruction")?;
        let instr = straight(c, token, word, single, |c| read_reg(c, &names))?;
        body.push(with_result(instr, define(c, single, &mut names, &mut registers)?));
    }
    c.expect_keyword("return")?;
    let mut results = vec![read_reg(c, &names)?];
    while c.eat(",") {
        results.push(read_reg(c, &names)?);
    }
    c.expect("}")?;
    Ok(Combine { identity, registers, body, results })
}
