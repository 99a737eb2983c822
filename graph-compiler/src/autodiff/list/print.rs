//! The text of a list: one operation a line, with its type, source location, and value if it has
//! one.
//!
//! ```text
//! x: f64[]
//! v1: f64[] = mul x, x     // src/main.rs:3:9
//! v2: f64[] = mul v1, x    // src/main.rs:4:9
//! y = v2
//! ```
//!
//! Scalar constants are printed at their uses.

use std::fmt::Write;
use wengert_core::graph::print::print_attributes;
use wengert_core::graph::{Body, Equation, ValueId};
use wengert_core::{Id, IdVec, Literal, LocationTable, Op};

const INFALLIBLE: &str = "writing to a string cannot fail";

/// The list to print.
pub struct Text<'a> {
    /// The operations.
    pub body: &'a Body,
    /// A name for each input.
    pub inputs: Vec<String>,
    /// A name for each output.
    pub outputs: Vec<String>,
    /// The known values.
    pub values: Option<&'a dyn Fn(ValueId) -> Option<Literal>>,
}

/// A line, and its trailing note.
struct Line {
    text: String,
    note: String,
}

struct Printer<'a> {
    lines: Vec<Line>,
    next: usize,
    locations: &'a LocationTable,
    values: Option<&'a dyn Fn(ValueId) -> Option<Literal>>,
}

type Names = IdVec<ValueId, String>;

/// Whether an equation is a scalar constant, which has no line of its own.
pub fn is_number(equation: &Equation) -> bool {
    matches!(&equation.op, Op::Constant(constant) if constant.value.shape().is_empty())
}

impl Text<'_> {
    /// The text, each line ended.
    pub fn print(&self, locations: &LocationTable) -> String {
        let mut printer = Printer { lines: vec![], next: 1, locations, values: self.values };
        let mut names: Names = self.body.values.ids().map(|_| String::new()).collect();
        for (value, name) in self.body.inputs.iter().zip(&self.inputs) {
            names[*value] = name.clone();
            let text = format!("{name}: {}{}", self.body.ty(*value), printer.value(0, *value));
            printer.lines.push(Line { text, note: String::new() });
        }
        printer.equations(self.body, &mut names, 0);
        for (value, name) in self.body.outputs.iter().zip(&self.outputs) {
            printer
                .lines
                .push(Line { text: format!("{name} = {}", names[*value]), note: String::new() });
        }
        printer.finish()
    }
}

impl Printer<'_> {
    fn equations(&mut self, body: &Body, names: &mut Names, depth: usize) {
        for equation in &body.equations {
            if is_number(equation) {
                let Op::Constant(constant) = &equation.op else { unreachable!("it is a constant") };
                names[equation.results[0]] = constant.value.get(0).to_string();
                continue;
            }
            self.equation(body, equation, names, depth);
        }
    }

    fn equation(&mut self, body: &Body, equation: &Equation, names: &mut Names, depth: usize) {
        let mut text = "  ".repeat(depth);
        for (i, result) in equation.results.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            names[*result] = format!("v{}", self.next);
            self.next += 1;
            write!(text, "{comma}{}: {}", names[*result], body.ty(*result)).expect(INFALLIBLE);
        }
        write!(text, " = {}", equation.op.name()).expect(INFALLIBLE);
        for (i, operand) in equation.operands.iter().enumerate() {
            write!(text, "{}{}", if i > 0 { ", " } else { " " }, names[*operand])
                .expect(INFALLIBLE);
        }
        let attributes = equation.op.attributes();
        if !attributes.is_empty() {
            text.push(' ');
            print_attributes(&mut text, &attributes);
        }
        equation.results.iter().for_each(|result| text.push_str(&self.value(depth, *result)));
        let note = match equation.location.index() {
            0 => String::new(),
            _ => format!("// {}", self.locations.describe(equation.location)),
        };
        self.lines.push(Line { text, note });
        for region in &equation.regions {
            self.region(region, depth + 1);
        }
    }

    fn region(&mut self, region: &Body, depth: usize) {
        let mut names: Names = region.values.ids().map(|_| String::new()).collect();
        let indent = "  ".repeat(depth);
        let mut text = format!("{indent}region (");
        for (i, input) in region.inputs.iter().enumerate() {
            names[*input] = format!("v{}", self.next);
            self.next += 1;
            let comma = if i > 0 { ", " } else { "" };
            write!(text, "{comma}{}: {}", names[*input], region.ty(*input)).expect(INFALLIBLE);
        }
        self.lines.push(Line { text: text + ")", note: String::new() });
        self.equations(region, &mut names, depth + 1);
        let outputs: Vec<&str> = region.outputs.iter().map(|v| names[*v].as_str()).collect();
        self.lines.push(Line {
            text: format!("{indent}  return {}", outputs.join(", ")),
            note: String::new(),
        });
    }

    /// ` → 3.5`, for values of the outermost body.
    fn value(&self, depth: usize, value: ValueId) -> String {
        let known = self.values.filter(|_| depth == 0).and_then(|values| values(value));
        let Some(literal) = known else { return String::new() };
        let elements: Vec<String> = literal.scalars().take(8).map(|s| s.to_string()).collect();
        let more = if literal.len() > 8 { " …" } else { "" };
        match literal.shape() {
            [] => format!(" → {}", elements[0]),
            _ => format!(" → [{}{more}]", elements.join(" ")),
        }
    }

    /// Aligns the notes in one column, except those of lines above 72 characters.
    fn finish(self) -> String {
        let width = |line: &Line| line.text.chars().count();
        let column = self.lines.iter().map(width).filter(|w| *w <= 72).max().unwrap_or(0) + 2;
        let mut out = String::new();
        for line in &self.lines {
            out.push_str(&line.text);
            if !line.note.is_empty() {
                let spaces = column.saturating_sub(width(line)).max(2);
                out.extend(std::iter::repeat_n(' ', spaces));
                out.push_str(&line.note);
            }
            out.push('\n');
        }
        out
    }
}
