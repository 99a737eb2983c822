//! Printer of the text of the Graph stage. `docs/ir.md` has the grammar; [`super::parse`] reads
//! the text.
//!
//! Values are numbered through the whole function, including regions, in the order of their
//! definition in the text. Inputs of functions have names, and so have the region inputs that
//! stand for them; these names replace the number. Invalid functions are printed too, with `%?`
//! for undefined values, since dumps are needed most for broken graphs.

use super::{Body, Equation, Function, InputRole, OutputRole, Program, ValueId};
use crate::id::Id;
use crate::location::{Location, LocationId};
use crate::op::{Attribute, Attributes, RegionInput};
use crate::text::{print_literal, print_string};
use std::collections::HashSet;
use std::fmt::{self, Write};
use std::ops::Range;
use std::rc::Rc;

/// Additional items to print.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PrintOptions {
    /// The location of every input and equation, and the table of locations.
    pub locations: bool,
}

/// The text of a program.
pub fn print(program: &Program, options: &PrintOptions) -> String {
    let mut out = String::new();
    for (i, function) in program.functions().iter().enumerate() {
        if i > 0 {
            out.push('\n');
        }
        out.push_str(&print_function(function, options));
    }
    out
}

/// The text of a function.
pub fn print_function(function: &Function, options: &PrintOptions) -> String {
    let mut printer = Printer { locations: options.locations, ..Printer::default() };
    printer.function(function);
    printer.out
}

/// The text of each equation of a function without its regions, in the order of
/// [`Function::numbered`].
pub fn print_equations(function: &Function) -> Vec<String> {
    let mut printer = Printer::default();
    printer.function(function);
    let lines = printer.lines.into_iter();
    lines.map(|line| printer.out[line].trim().to_owned()).collect()
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print(self, &PrintOptions::default()))
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print_function(self, &PrintOptions::default()))
    }
}

#[derive(Default)]
struct Printer {
    out: String,
    next: usize,
    locations: bool,
    /// The positions of the equations' lines.
    lines: Vec<Range<usize>>,
}

/// Names of a body's values, with their `%`; `None` for a value that is not defined (yet).
type Names = Vec<Option<Rc<str>>>;

macro_rules! put {
    ($printer:expr, $($arg:tt)*) => {
        write!($printer.out, $($arg)*).expect("writing to a string cannot fail")
    };
}

impl Printer {
    fn function(&mut self, function: &Function) {
        put!(self, "func @{}", function.name);
        if !function.mesh.is_empty() {
            put!(self, " {} ", function.mesh);
        }
        self.out.push('(');
        let body = &function.body;
        let mut names: Names = vec![None; body.values.len()];
        for (i, value) in body.inputs.iter().enumerate() {
            self.comma(i);
            let name = match function.inputs.get(i) {
                Some(input) => {
                    if input.role != InputRole::Input {
                        put!(self, "{} ", input.role.name());
                    }
                    set(&mut names, *value, format!("%{}", input.name))
                }
                None => set(&mut names, *value, "%?".into()),
            };
            put!(self, "{name}");
            self.ty(body, *value);
            if let Some(input) = function.inputs.get(i) {
                self.location(input.location);
            }
        }
        self.out.push_str(") -> (");
        for (i, value) in body.outputs.iter().enumerate() {
            self.comma(i);
            match function.outputs.get(i) {
                Some(output) if output.role == OutputRole::State => {
                    put!(self, "state {}: ", output.name)
                }
                Some(output) if output.name != i.to_string() => put!(self, "{}: ", output.name),
                _ => {}
            }
            match body.values.get(*value) {
                Some(ty) => put!(self, "{ty}"),
                None => self.out.push('?'),
            }
        }
        self.out.push_str(") {\n");
        for callee in body.callees() {
            self.indent(1);
            put!(self, "func @{}", callee.name);
            self.closed(callee.body, &[], 1);
        }
        self.body(body, names, 1);
        if self.locations {
            for (id, location) in function.locations.iter().skip(1) {
                put!(self, "  loc {} = ", id.index());
                match location {
                    Location::Unknown => self.out.push_str("unknown"),
                    Location::Source { file, line, column } => {
                        print_string(&mut self.out, file);
                        put!(self, ":{line}:{column}");
                    }
                    Location::Derived { of, rule } => {
                        print_string(&mut self.out, rule);
                        put!(self, " of {}", of.index());
                    }
                }
                self.out.push('\n');
            }
        }
        self.out.push_str("}\n");
    }

    /// Prints equations and `return`.
    fn body(&mut self, body: &Body, mut names: Names, depth: usize) {
        for equation in &body.equations {
            self.equation(body, equation, &mut names, depth);
        }
        self.indent(depth);
        self.out.push_str("return");
        self.values(&body.outputs, &names);
        self.out.push('\n');
    }

    fn equation(&mut self, body: &Body, equation: &Equation, names: &mut Names, depth: usize) {
        let operands: Vec<_> = equation.operands.iter().map(|v| name_of(names, *v)).collect();
        let start = self.out.len();
        self.indent(depth);
        for (i, result) in equation.results.iter().enumerate() {
            self.comma(i);
            let name = self.number(names, *result);
            put!(self, "{name}");
            self.ty(body, *result);
        }
        put!(self, " = {}", equation.op.name());
        for (i, operand) in operands.iter().enumerate() {
            put!(self, "{}{operand}", if i > 0 { ", " } else { " " });
        }
        let attributes = equation.op.attributes();
        if !attributes.is_empty() {
            self.out.push(' ');
            print_attributes(&mut self.out, &attributes);
        }
        self.location(equation.location);
        self.out.push('\n');
        self.lines.push(start..self.out.len());
        // Callees are printed once, before the function.
        for (k, region) in
            equation.regions.iter().enumerate().filter(|_| equation.op.callee().is_none())
        {
            self.indent(depth + 1);
            self.out.push_str("region ");
            self.closed(region, &self.inputs(equation, k, names), depth + 1);
        }
    }

    /// Prints a body that sees its own inputs only.
    fn closed(&mut self, region: &Body, known: &[Option<String>], depth: usize) {
        self.out.push('(');
        let mut names: Names = vec![None; region.values.len()];
        for (i, input) in region.inputs.iter().enumerate() {
            self.comma(i);
            let number = self.number(&mut names, *input);
            let name = match known.get(i).cloned().flatten() {
                Some(name) => set(&mut names, *input, name),
                None => number,
            };
            put!(self, "{name}");
            self.ty(region, *input);
        }
        self.out.push_str(") {\n");
        self.body(region, names, depth + 1);
        self.indent(depth);
        self.out.push_str("}\n");
    }

    /// The names of region inputs that stand for named values: `%w` for `%w`, `%x.t` for the
    /// slice of `%x` at a step.
    fn inputs(&self, equation: &Equation, region: usize, names: &Names) -> Vec<Option<String>> {
        let mut taken = HashSet::new();
        let of = |i: usize| {
            let (operand, suffix) =
                match equation.op.region_input(equation.operands.len(), region, i)? {
                    RegionInput::Operand(operand) => (operand, ""),
                    RegionInput::AtStep(operand) => (operand, ".t"),
                };
            let name = name_of(names, equation.operands[operand]);
            let named = name[1..].starts_with(|c: char| c != '?' && !c.is_ascii_digit());
            Some(format!("{name}{suffix}")).filter(|name| named && taken.insert(name.clone()))
        };
        (0..equation.regions[region].inputs.len()).map(of).collect()
    }

    fn number(&mut self, names: &mut Names, value: ValueId) -> Rc<str> {
        self.next += 1;
        set(names, value, format!("%{}", self.next - 1))
    }

    fn ty(&mut self, body: &Body, value: ValueId) {
        match body.values.get(value) {
            Some(ty) => put!(self, ": {ty}"),
            None => self.out.push_str(": ?"),
        }
    }

    fn values(&mut self, values: &[ValueId], names: &Names) {
        for (i, value) in values.iter().enumerate() {
            put!(self, "{}{}", if i > 0 { ", " } else { " " }, name_of(names, *value));
        }
    }

    fn location(&mut self, id: LocationId) {
        if self.locations {
            put!(self, " loc {}", id.index());
        }
    }

    fn comma(&mut self, i: usize) {
        if i > 0 {
            self.out.push_str(", ");
        }
    }

    fn indent(&mut self, depth: usize) {
        self.out.extend(std::iter::repeat_n("  ", depth));
    }
}

fn set(names: &mut Names, value: ValueId, name: String) -> Rc<str> {
    let name: Rc<str> = name.into();
    if let Some(slot) = names.get_mut(value.index()) {
        *slot = Some(name.clone());
    }
    name
}

fn name_of(names: &Names, value: ValueId) -> Rc<str> {
    names.get(value.index()).cloned().flatten().unwrap_or_else(|| "%?".into())
}

/// Appends `{name=value, …}`.
pub fn print_attributes(out: &mut String, attributes: &Attributes) {
    out.push('{');
    for (i, (name, attribute)) in attributes.iter().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        out.push_str(name);
        out.push('=');
        print_attribute(out, attribute);
    }
    out.push('}');
}

/// Appends the text of an attribute.
pub fn print_attribute(out: &mut String, attribute: &Attribute) {
    const INFALLIBLE: &str = "writing to a string cannot fail";
    match attribute {
        Attribute::Bool(value) => write!(out, "{value}").expect(INFALLIBLE),
        Attribute::Dim(dim) => write!(out, "{dim}").expect(INFALLIBLE),
        Attribute::DType(dtype) => write!(out, "{dtype}").expect(INFALLIBLE),
        Attribute::Text(text) => print_string(out, text),
        Attribute::Function(name) => write!(out, "@{name}").expect(INFALLIBLE),
        Attribute::Scalar(scalar) => write!(out, "{}({scalar})", scalar.dtype()).expect(INFALLIBLE),
        Attribute::Literal(literal) => {
            write!(out, "{} ", literal.ty()).expect(INFALLIBLE);
            print_literal(out, literal);
        }
        Attribute::List(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                print_attribute(out, item);
            }
            out.push(']');
        }
    }
}
