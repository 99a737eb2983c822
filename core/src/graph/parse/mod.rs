//! Parser of the text of the Graph stage. `docs/ir.md` has the grammar; [`super::print()`] writes
//! the text.
//!
//! The text is untrusted. Work is linear in its length (times the logarithm of the number of its
//! names), depth is bounded, and the memory of a literal is bounded by its text. A parsed program
//! has passed the verifier. An error has its place in the text.
//!
//! A function has its own locations (`loc`) at all inputs and equations or at none. Without them
//! equations are located in the text itself, so that later errors point there.

mod callees;

use self::callees::Callee;
use super::verify::{self, Place};
use super::{Body, Equation, Function, Input, InputRole, Output, OutputRole, Program, ValueId};
use crate::diagnostic::{Result, bail, ensure};
use crate::dtype::DType;
use crate::id::Id;
use crate::location::{Location, LocationId, LocationTable};
use crate::mesh::Mesh;
use crate::op::{Attribute, Op};
use crate::text::{Cursor, Kind, Token};
use crate::ty::TensorType;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Reads a program and verifies it. `file_name` appears in errors and locations.
pub fn parse_program(text: &str, file_name: &str) -> Result<Program> {
    let mut c = Cursor::new(file_name, text);
    let mut functions = Vec::new();
    let mut names = BTreeSet::new();
    while !c.is_end() {
        let (function, places) = read_function(&mut c, &functions)?;
        ensure!(
            names.insert(function.name.clone()), c at places.function,
            "G1: function `@{}` is defined twice", function.name;
            help "give it another name"
        );
        verify::check(&function).map_err(|violation| {
            let token = match violation.place {
                Place::Function => places.function,
                Place::Input(i) => places.inputs[i],
                Place::Output(i) => places.outputs[i],
                Place::Callee(i) => places.callees[i],
                Place::Equation(i) => places.equations[i],
            };
            c.relay(token, verify::context(&function, &violation.name, violation.diagnostic))
        })?;
        functions.push(function);
    }
    Program::from_functions(functions)
}

/// Reads one function without verifying it. It may call `earlier` functions.
fn read_function<'a>(c: &mut Cursor<'a>, earlier: &[Function]) -> Result<(Function, Places<'a>)> {
    if !c.is_keyword("func") {
        return Err(c.unexpected("`func`").help(
            "a graph text is a list of functions: func @f(%x: f32[3]) -> (f32[3]) { … return %0 }",
        ));
    }
    c.advance();
    let function = c.peek();
    let name = c.expect_function("the name of the function, such as `@f`")?.to_string();
    let mesh = if c.is_keyword("mesh") { read_mesh(c)? } else { Mesh::default() };
    let mut reader = Reader {
        mesh,
        places: Places {
            function,
            inputs: vec![],
            outputs: vec![],
            callees: vec![],
            equations: vec![],
        },
        earlier,
        open: vec![name.clone()],
        callees: BTreeMap::new(),
        locations: LocationTable::default(),
        mode: Mode::Open,
        scopes: vec![HashMap::new()],
    };
    let mut body = Body::default();
    let inputs = c.list("(", ")", |c| reader.input(c, &mut body))?;
    body.inputs = body.values.ids().collect();
    c.expect("->")?;
    let mut position = 0;
    let outputs = c.list("(", ")", |c| {
        position += 1;
        reader.output(c, position - 1)
    })?;
    c.expect("{")?;
    while c.is_keyword("func") {
        reader.callee(c)?;
    }
    let end = reader.equations(c, &mut body)?;
    ensure!(
        body.outputs.len() == outputs.len(), c at end,
        "G2: {} outputs are declared, {} are returned", outputs.len(), body.outputs.len()
    );
    for (i, (value, (_, ty))) in body.outputs.iter().zip(&outputs).enumerate() {
        let found = body.ty(*value);
        if found != ty {
            let token = reader.places.outputs[i];
            bail!(c at token, "G2: the output is declared {ty}, but {found} is returned");
        }
    }
    reader.location_table(c)?;
    c.expect("}")?;
    let outputs = outputs.into_iter().map(|(output, _)| output).collect();
    let mesh = std::mem::take(&mut reader.mesh);
    let (places, locations) = reader.places(c, &body)?;
    Ok((Function { name, mesh, inputs, outputs, body, locations }, places))
}

/// Reads the mesh of a function.
fn read_mesh(c: &mut Cursor<'_>) -> Result<Mesh> {
    let token = c.peek();
    let mesh = read_axes(c)?;
    mesh.verify().map_err(|d| c.relay(token, d.context("G11")))?;
    Ok(mesh)
}

/// Reads `mesh(data=4, tensor=2)`, which is not verified yet.
pub(crate) fn read_axes(c: &mut Cursor<'_>) -> Result<Mesh> {
    let token = c.advance();
    let axes = c.list("(", ")", |c| {
        let name = c.expect_name("the name of an axis, such as `data=4`")?;
        c.expect("=")?;
        Ok((name.into(), c.expect_integer("the extent of the axis")?))
    })?;
    ensure!(!axes.is_empty(), c at token, "a mesh has axes"; help "leave `mesh` out");
    Ok(Mesh::unverified(axes))
}

/// The first tokens of a function's parts, for errors of the verifier.
struct Places<'a> {
    function: Token<'a>,
    inputs: Vec<Token<'a>>,
    outputs: Vec<Token<'a>>,
    /// Callees, in the order of [`Body::callees`].
    callees: Vec<Token<'a>>,
    /// In the order of the printed text.
    equations: Vec<Token<'a>>,
}

/// Source of a function's locations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// No input or equation has been read yet.
    Open,
    /// Places in this text.
    Text,
    /// The function's own `loc`s.
    Own,
}

struct Reader<'a, 'e> {
    /// The mesh of the function.
    mesh: Mesh,
    places: Places<'a>,
    /// Functions of the program that may be called.
    earlier: &'e [Function],
    /// Names of the functions that are being read.
    open: Vec<String>,
    /// Nested functions, and the earlier ones called so far.
    callees: BTreeMap<String, Callee<'a>>,
    locations: LocationTable,
    mode: Mode,
    /// Values by name, for each open body from the outermost to the innermost.
    scopes: Vec<HashMap<&'a str, ValueId>>,
}

impl<'a> Reader<'a, '_> {
    fn input(&mut self, c: &mut Cursor<'a>, body: &mut Body) -> Result<Input> {
        let token = c.peek();
        let mut role = InputRole::Input;
        if let Kind::Name(name) = token.kind {
            c.advance();
            role = InputRole::ALL.into_iter().find(|r| r.name() == name).ok_or_else(|| {
                c.error(token, format!("expected an input, found `{name}`")).help(
                    "inputs are written `%x: f32[3]`, with `param`, `state` or `key` in front if \
                     they are that",
                )
            })?;
        }
        let name = self.body_input(c, body)?;
        let location = self.location(c, token)?;
        self.places.inputs.push(token);
        Ok(Input { name: name.into(), role, location })
    }

    /// Reads `%name: type`. The value gets the next number.
    fn body_input(&mut self, c: &mut Cursor<'a>, body: &mut Body) -> Result<&'a str> {
        let token = c.peek();
        let name = c.expect_value("an input, such as `%x: f32[3]`")?;
        c.expect(":")?;
        let value = body.values.push(c.tensor_type()?);
        self.define(c, token, name, value)?;
        Ok(name)
    }

    fn define(
        &mut self,
        c: &Cursor<'a>,
        token: Token<'a>,
        name: &'a str,
        value: ValueId,
    ) -> Result<()> {
        let scope = self.scopes.last_mut().expect("a body is being read");
        if scope.insert(name, value).is_none() {
            return Ok(());
        }
        Err(c.error(token, format!("G3: `%{name}` is defined twice")).help("give it another name"))
    }

    fn output(&mut self, c: &mut Cursor<'a>, position: usize) -> Result<(Output, TensorType)> {
        let mut token = c.advance();
        let mut role = OutputRole::Output;
        // `state` is a role unless it is the name.
        if token.kind == Kind::Name("state") && !c.is(":") {
            role = OutputRole::State;
            token = c.advance();
        }
        self.places.outputs.push(token);
        let name = match token.kind {
            Kind::Name(name) | Kind::Integer(name) if c.is(":") => name,
            // No name: the token is the dtype.
            Kind::Name(dtype) if role == OutputRole::Output => {
                let dtype: DType = dtype.parse().map_err(|e| c.relay(token, e))?;
                let ty = TensorType::of(dtype, c.shape()?).with_varying(c.varying()?);
                return Ok((Output { name: position.to_string(), role }, ty));
            }
            kind => {
                bail!(c at token, "expected an output, found {kind}";
                    help "outputs are written `f32[3]`, `loss: f32[]` or `state model.w: f32[3]`");
            }
        };
        c.expect(":")?;
        Ok((Output { name: name.into(), role }, c.tensor_type()?))
    }

    /// Reads equations and `return` of a body whose inputs are defined. Returns the token of
    /// `return`.
    fn equations(&mut self, c: &mut Cursor<'a>, body: &mut Body) -> Result<Token<'a>> {
        while !c.is_keyword("return") {
            if !matches!(c.peek().kind, Kind::Value(_)) {
                return Err(c.unexpected("an equation, such as `%0: f32[3] = exp %x`, or `return`"));
            }
            self.equation(c, body)?;
        }
        let end = c.advance();
        body.outputs = self.operands(c, end)?;
        Ok(end)
    }

    fn equation(&mut self, c: &mut Cursor<'a>, body: &mut Body) -> Result<()> {
        let names = c.separated(|c| {
            let token = c.peek();
            let name = c.expect_value("a result, such as `%0: f32[3]`")?;
            c.expect(":")?;
            Ok((token, name, c.tensor_type()?))
        })?;
        c.expect("=")?;
        let at = c.peek();
        let op = c.expect_name("the name of an op")?;
        let operands = self.operands(c, at)?;
        let attributes = if c.is("{") { parse_attributes(c)? } else { BTreeMap::new() };
        let op = Op::from_attributes(op, attributes).map_err(|e| c.relay(at, e))?;
        self.places.equations.push(at);
        let location = self.location(c, at)?;
        let mut regions = Vec::new();
        if let Some(name) = op.callee() {
            regions.push(self.called(c, at, name)?);
        }
        while c.eat_keyword("region") {
            regions.push(c.nested(|c| self.region(c))?.into());
        }
        // Results are defined after the operands are read, since an equation does not see its own
        // results.
        let mut results = Vec::with_capacity(names.len());
        for (token, name, ty) in names {
            let value = body.values.push(ty);
            self.define(c, token, name, value)?;
            results.push(value);
        }
        body.equations.push(Equation { op, operands, results, regions, location });
        Ok(())
    }

    /// Reads `%a, %b` after `head`; the list may be empty. It begins on the line of `head`, since
    /// the next line may begin with a value too.
    fn operands(&mut self, c: &mut Cursor<'a>, head: Token<'a>) -> Result<Vec<ValueId>> {
        if !matches!(c.peek().kind, Kind::Value(_)) || c.peek().line != head.line {
            return Ok(Vec::new());
        }
        let (scope, outer) = self.scopes.split_last().expect("a body is being read");
        c.separated(|c| {
            let token = c.peek();
            let name = c.expect_value("a value")?;
            match scope.get(name) {
                Some(value) => Ok(*value),
                None if outer.iter().any(|s| s.contains_key(name)) => {
                    bail!(c at token, "G4: `%{name}` is not defined in this region";
                        help "a region does not see the values around it: pass it as an operand")
                }
                None => bail!(c at token, "G4: `%{name}` is not defined before it is used"),
            }
        })
    }

    /// Reads `(inputs) { equations return … }`.
    fn region(&mut self, c: &mut Cursor<'a>) -> Result<Body> {
        self.scopes.push(HashMap::new());
        let mut body = Body::default();
        c.list("(", ")", |c| self.body_input(c, &mut body))?;
        body.inputs = body.values.ids().collect();
        c.expect("{")?;
        self.equations(c, &mut body)?;
        c.expect("}")?;
        self.scopes.pop();
        Ok(body)
    }

    /// Reads `loc 3`. Without `loc` the location is the place of `token`.
    fn location(&mut self, c: &mut Cursor<'a>, token: Token<'a>) -> Result<LocationId> {
        const ALL_OR_NONE: &str =
            "a function has locations (`loc`) at all its inputs and equations or at none";
        if !c.is_keyword("loc") {
            if self.mode == Mode::Own {
                return Err(c.unexpected("`loc`").help(ALL_OR_NONE));
            }
            self.mode = Mode::Text;
            return Ok(self.locations.intern(c.location(token)));
        }
        if self.mode == Mode::Text {
            return Err(c.unexpected("no `loc`").help(ALL_OR_NONE));
        }
        self.mode = Mode::Own;
        c.advance();
        Ok(LocationId(c.expect_integer("the number of a location")?))
    }

    /// Reads `loc 1 = "src/main.rs":3:7` and `loc 2 = "jvp(tanh)" of 1`, numbered in order.
    fn location_table(&mut self, c: &mut Cursor<'a>) -> Result<()> {
        while c.is_keyword("loc") {
            if self.mode == Mode::Text {
                return Err(c
                    .unexpected("`}`")
                    .help("no input or equation of the function refers to a `loc`"));
            }
            self.mode = Mode::Own;
            c.advance();
            let token = c.peek();
            let id: u32 = c.expect_integer("the number of a location")?;
            let due = self.locations.len();
            ensure!(
                id as usize == due, c at token,
                "location {id} is defined where {due} is expected"
            );
            c.expect("=")?;
            let text = c.expect_string("a file name or a rule in quotes")?;
            let location = if c.eat_keyword("of") {
                let of = LocationId(c.expect_integer("the number of a location")?);
                ensure!(
                    of.index() < due, c at token,
                    "G9: location {id} is derived from {}, which is not earlier", of.index()
                );
                Location::Derived { of, rule: text.into() }
            } else {
                c.expect(":")?;
                let line = c.expect_integer("a line")?;
                c.expect(":")?;
                Location::source(text, line, c.expect_integer("a column")?)
            };
            if self.locations.intern(location).index() != due {
                bail!(c at token, "location {id} is the same as an earlier one");
            }
        }
        Ok(())
    }
}

/// Reads `{name=value, …}`.
pub fn parse_attributes(c: &mut Cursor<'_>) -> Result<BTreeMap<String, Attribute>> {
    let mut map = BTreeMap::new();
    c.list("{", "}", |c| {
        let token = c.peek();
        let name = c.expect_name("the name of an attribute")?;
        c.expect("=")?;
        let value = parse_attribute(c)?;
        match map.insert(name.to_string(), value) {
            Some(_) => Err(c.error(token, format!("attribute `{name}` is given twice"))),
            None => Ok(()),
        }
    })?;
    Ok(map)
}

/// Reads the value of an attribute. The first token decides its kind.
pub fn parse_attribute(c: &mut Cursor<'_>) -> Result<Attribute> {
    match c.peek().kind {
        Kind::Punct("[") => Ok(Attribute::List(c.nested(|c| c.list("[", "]", parse_attribute))?)),
        Kind::Str(_) => Ok(Attribute::Text(c.expect_string("a string")?)),
        Kind::Function(name) => {
            c.advance();
            Ok(Attribute::Function(name.into()))
        }
        Kind::Name("true") | Kind::Name("false") => {
            Ok(Attribute::Bool(c.advance().kind == Kind::Name("true")))
        }
        Kind::Name(name) if name.parse::<DType>().is_ok() => {
            let dtype = c.dtype()?;
            if c.eat("(") {
                let scalar = c.scalar(dtype)?;
                c.expect(")")?;
                return Ok(Attribute::Scalar(scalar));
            }
            if c.is("[") {
                let shape = c.extents()?;
                return Ok(Attribute::Literal(c.literal(dtype, &shape)?));
            }
            Ok(Attribute::DType(dtype))
        }
        Kind::Name(_) | Kind::Integer(_) | Kind::Punct("-") => Ok(Attribute::Dim(c.dim()?)),
        _ => Err(c.unexpected("the value of an attribute").help(
            "values are `true`, `3`, `2*B+1`, `f32`, `\"text\"`, `@f`, `f32(1.5)`, \
             `f32[2] [1.0, 2.0]` and lists of them, `[1,2]`",
        )),
    }
}

#[cfg(test)]
mod tests;
