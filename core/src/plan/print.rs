//! Printer of plans; `docs/ir.md` has the grammar, [`super::parse`] the parser.
//!
//! Every value of these types prints, including invalid ones, since errors show them: a nest that
//! does not exist prints as `@?`. A plan that the verifier accepts parses back unchanged.

use super::{Address, Argument, Loop, Merge, Plan, Space, Step, Transfer, Trip, ValueId};
use crate::call::Contract;
use crate::graph::print::print_attributes;
use crate::text::{
    is_name, is_sigil_name, joined, print_extents, print_layout, print_literal, print_string,
};
use std::fmt::{self, Write};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printer = Printer { plan: self, out: String::new() };
        printer.plan();
        f.write_str(&printer.out)
    }
}

/// Displays one step of a plan, without nested steps.
pub struct StepText<'a>(pub &'a Plan, pub &'a Step);

impl fmt::Display for StepText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printer = Printer { plan: self.0, out: String::new() };
        printer.head(self.1);
        f.write_str(&printer.out)
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Space::Arena => f.write_str("arena"),
            Space::Input(n) => write!(f, "input.{n}"),
            Space::Output(n) => write!(f, "output.{n}"),
            Space::Variable(n) => write!(f, "variable.{n}"),
            Space::Constant(n) => write!(f, "constant.{n}"),
        }
    }
}

impl fmt::Display for Address {
    /// `arena+64+256*l0`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.space)?;
        if self.offset > 0 {
            write!(f, "+{}", self.offset)?;
        }
        self.strides.iter().try_for_each(|(counter, bytes)| write!(f, "+{bytes}*{counter}"))
    }
}

impl fmt::Display for Argument {
    /// `%3 at arena+64`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.value, self.at)
    }
}

impl fmt::Display for Trip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trip::Constant(n) => write!(f, "trip {n}"),
            Trip::Value { count, limit } => write!(f, "trip {count} limit {limit}"),
            Trip::While { before, after, limit } => {
                write!(f, "while {}, {after} at {} limit {limit}", before.value, before.at)
            }
        }
    }
}

impl fmt::Display for Loop {
    /// Without its parts and its body.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loop {} {}{}", self.id, self.trip, if self.reverse { " reverse" } else { "" })
    }
}

impl fmt::Display for Merge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ways = joined(&self.ways, ", ");
        write!(f, "merge {ways} -> {} at {}", self.result, self.at)
    }
}

struct Printer<'a> {
    plan: &'a Plan,
    out: String,
}

macro_rules! put {
    ($printer:expr, $($arg:tt)*) => {
        write!($printer.out, $($arg)*).expect("writing to a string cannot fail")
    };
}

impl Printer<'_> {
    fn plan(&mut self) {
        let plan = self.plan;
        put!(self, "plan @");
        self.sigil_name(&plan.function);
        put!(self, " {{\n  target @");
        self.sigil_name(&plan.target.name);
        put!(self, " ");
        print_attributes(&mut self.out, &plan.target.attributes());
        put!(self, "\n");
        if !plan.mesh.is_empty() {
            put!(self, "  {}\n", plan.mesh);
        }
        if !plan.binding.is_empty() {
            put!(self, "  bind {{");
            for (n, (name, value)) in plan.binding.iter().enumerate() {
                put!(self, "{}", if n > 0 { ", " } else { "" });
                self.name(name);
                put!(self, "={value}");
            }
            put!(self, "}}\n");
        }
        put!(self, "  arena {} bound {}\n", plan.arena, plan.lower_bound);
        for (id, value) in plan.values.iter() {
            put!(self, "  value {id}: {}{}", value.dtype, print_layout(&value.shape, value.pitch));
            if !value.name.is_empty() {
                put!(self, " ");
                print_string(&mut self.out, &value.name);
            }
            put!(self, "\n");
        }
        for input in &plan.inputs {
            put!(self, "  {} ", input.role.name());
            self.name(&input.name);
            put!(self, " = {}\n", input.value);
        }
        for variable in &plan.variables {
            put!(self, "  variable ");
            self.name(&variable.name);
            put!(self, ": {}{}", variable.dtype, print_extents(&variable.shape));
            match variable.before {
                Some(before) if before == variable.after => put!(self, " = {before}\n"),
                Some(before) => put!(self, " = {before} -> {}\n", variable.after),
                None => put!(self, " -> {}\n", variable.after),
            }
        }
        for output in &plan.outputs {
            put!(self, "  output ");
            self.name(&output.name);
            put!(self, ": {} = {}\n", print_extents(&output.shape), output.value);
        }
        for constant in &plan.constants {
            // The type is the value's. A constant of another type is invalid and does not parse
            // back.
            put!(self, "  constant {} = ", constant.value);
            print_literal(&mut self.out, &constant.literal);
            put!(self, "\n");
        }
        for (_, nest) in plan.nests.iter() {
            for line in nest.to_string().lines() {
                put!(self, "  {line}\n");
            }
        }
        put!(self, "  steps {{\n");
        self.steps(&plan.steps, 2);
        put!(self, "  }}\n}}\n");
    }

    fn name(&mut self, name: &str) {
        if is_name(name) {
            put!(self, "{name}");
        } else {
            print_string(&mut self.out, name);
        }
    }

    fn sigil_name(&mut self, name: &str) {
        put!(self, "{}", if is_sigil_name(name) { name } else { "?" });
    }

    fn indent(&mut self, depth: usize) {
        // A malformed plan may nest to any depth before the verifier rejects it.
        (0..depth.min(100)).for_each(|_| self.out.push_str("  "));
    }

    fn steps(&mut self, steps: &[Step], depth: usize) {
        for step in steps {
            self.indent(depth);
            self.head(step);
            match step {
                Step::Loop(l) => self.loop_body(l, depth),
                Step::If { then, otherwise, merges, .. } => {
                    self.block(then, depth);
                    put!(self, " else");
                    self.block(otherwise, depth);
                    self.merges(merges);
                }
                Step::Switch { arms, merges, .. } => {
                    for arm in arms {
                        put!(self, " case");
                        self.block(arm, depth);
                    }
                    self.merges(merges);
                }
                _ => {}
            }
            put!(self, "\n");
        }
    }

    fn block(&mut self, steps: &[Step], depth: usize) {
        put!(self, " {{\n");
        self.steps(steps, depth + 1);
        self.indent(depth);
        put!(self, "}}");
    }

    fn merges(&mut self, merges: &[Merge]) {
        merges.iter().for_each(|merge| put!(self, " {merge}"));
    }

    fn loop_body(&mut self, l: &Loop, depth: usize) {
        put!(self, " {{\n");
        for c in &l.carries {
            self.indent(depth + 1);
            put!(
                self,
                "carry {} -> {}, {} -> {} at {}\n",
                c.initial,
                c.input,
                c.output,
                c.result,
                c.at
            );
        }
        for s in &l.slices {
            self.indent(depth + 1);
            put!(self, "slice {} -> {} at {}\n", s.whole, s.part, s.at);
        }
        for s in &l.stacks {
            self.indent(depth + 1);
            put!(self, "stack {} -> {}", s.part, s.whole);
            if let Some(initial) = s.initial {
                put!(self, " over {initial}");
            }
            put!(self, " at {}\n", s.at);
        }
        self.steps(&l.body, depth + 1);
        self.indent(depth);
        put!(self, "}}");
    }

    /// A step without nested steps.
    fn head(&mut self, step: &Step) {
        match step {
            Step::Nest { nest, arguments } => {
                let name = self.plan.nests.get(*nest).map_or("?", |n| n.name.as_str());
                put!(self, "run @{name}");
                self.arguments(arguments);
            }
            Step::Call { call, arguments, workspace } => {
                put!(self, "call {}", call.name());
                self.arguments(arguments);
                self.call(&**call);
                if let Some((at, bytes)) = workspace {
                    put!(self, " workspace {bytes} at {at}");
                }
            }
            Step::Start { transfer, call } => {
                put!(self, "start {} {}", transfer.id, call.name());
                self.transfer(transfer);
                self.call(call);
            }
            Step::Wait(transfer) => {
                put!(self, "wait {}", transfer.id);
                self.transfer(transfer);
            }
            Step::Copy { value, from, to } => put!(self, "copy {value} from {from} to {to}"),
            Step::Loop(l) => put!(self, "{l}"),
            Step::If { predicate, .. } => put!(self, "if {predicate}"),
            Step::Switch { index, .. } => put!(self, "switch {index}"),
        }
    }

    fn arguments(&mut self, arguments: &[Argument]) {
        put!(self, "({})", joined(arguments, ", "));
    }

    fn transfer(&mut self, transfer: &Transfer) {
        put!(self, "({}, {})", transfer.operand, transfer.result);
    }

    fn call(&mut self, call: &dyn Contract) {
        put!(self, " ");
        print_attributes(&mut self.out, &call.attributes());
    }
}

/// For messages: a value with its name.
pub(super) struct ValueText<'a>(pub &'a Plan, pub ValueId);

impl fmt::Display for ValueText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.1)?;
        match self.0.values.get(self.1) {
            Some(value) if !value.name.is_empty() => {
                // A malformed name may be megabytes long.
                write!(f, " ({})", value.name.chars().take(60).collect::<String>())
            }
            _ => Ok(()),
        }
    }
}
