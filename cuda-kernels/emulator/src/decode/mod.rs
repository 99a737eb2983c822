//! Decoding: from the tree of a kernel to straight code that is ready for execution.
//!
//! Calls are inlined: a kernel becomes one body. Every call site has its own registers and its
//! own part of the thread's memory, so that flow analysis and reconvergence see the whole kernel.
//! Names, immediates and addresses are resolved. Each modifier must be used by its instruction's
//! decoder; an unused one is an error, since ignoring a modifier gives a wrong result. Each
//! instruction is bound to the function that computes it.

mod arithmetic;
mod control;
mod data;
mod flow;
mod fragments;
pub(crate) mod hopper;
mod memory;
mod modifiers;
pub(crate) mod program;

use crate::parse::ParseError;
use crate::parse::syntax::{
    self, Function, Space, Special, Statement, Tree, Type, Variable, VariableId,
};
use crate::semantics::rows::Rows;
use modifiers::Modifiers;
use program::{Constant, Instruction, Op, Operand, Program};
use std::collections::HashMap;

type Result<T> = std::result::Result<T, ParseError>;

/// Maximum number of instructions of a kernel after inlining.
const MOST_INSTRUCTIONS: usize = 4 << 20;
/// Maximum number of calls of a kernel after inlining. Each adds the registers of its function,
/// which the limit of instructions does not bound.
const MOST_CALLS: u32 = 100_000;
/// Maximum number of registers of a kernel after inlining.
const MOST_REGISTERS: usize = 8 << 20;
/// Maximum depth of nested calls.
const DEEPEST_CALL: usize = 64;
/// Maximum number of bytes of a thread's local memory (the CUDA programming guide's limit).
const MOST_LOCAL: u32 = 512 << 10;

/// Maximum number of bytes of a kernel's parameters (PTX ISA, since 8.1).
const MOST_PARAMETERS: u32 = 32_764;

/// Class of a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    Word,
    Double,
    Predicate,
}

/// State of the decoding of a kernel.
struct Builder<'a> {
    text: &'a str,
    tree: &'a Tree,
    code: Vec<Instruction>,
    /// Width of each virtual register, including those of inlined calls.
    registers: Vec<u8>,
    constants: Vec<Constant>,
    known_constants: HashMap<Constant, u32>,
    specials: Vec<(Special, u32)>,
    /// Offsets of the module's shared variables.
    module_shared: HashMap<u32, u32>,
    shared_bytes: u32,
    dynamic_align: u32,
    local_bytes: u32,
    /// Functions in the process of inlining, outermost first.
    calls: Vec<usize>,
    /// Number of inlined calls.
    inlined: u32,
}

/// The body in the process of decoding: the kernel's, or that of a call.
struct Frame<'a> {
    function: &'a Function,
    /// First virtual register.
    base: u32,
    /// Spaces and offsets of the function's variables.
    places: Vec<(Space, u32)>,
    labels: HashMap<(u32, &'a str), u32>,
    tables: HashMap<(u32, &'a str), (&'a [String], u32)>,
    /// Branches without targets yet: (instruction, label, scope).
    branches: Vec<(usize, &'a str, u32, u32)>,
    /// Branches to the end of the call.
    returns: Vec<usize>,
}

/// Decodes the kernel `function`.
pub(crate) fn decode(text: &str, tree: &Tree, function: usize) -> Result<Program> {
    let mut builder = Builder {
        text,
        tree,
        code: Vec::new(),
        registers: Vec::new(),
        constants: Vec::new(),
        known_constants: HashMap::new(),
        specials: Vec::new(),
        module_shared: HashMap::new(),
        shared_bytes: 0,
        dynamic_align: 16,
        local_bytes: 0,
        calls: Vec::new(),
        inlined: 0,
    };
    let kernel = &tree.functions[function];
    let mut places = Vec::new();
    let mut offset = 0u32;
    for parameter in &kernel.variables[..kernel.parameters] {
        offset = offset.next_multiple_of(parameter.align);
        places.push((Space::Param, offset));
        if u64::from(offset) + parameter.bytes > u64::from(MOST_PARAMETERS) {
            let message = format!("the kernel has more than {MOST_PARAMETERS} bytes of parameters");
            return Err(ParseError::new(text, parameter.line, 1, message));
        }
        offset += parameter.bytes as u32;
    }
    builder.registers.extend_from_slice(&kernel.registers);
    builder.body(function, places, 0)?;
    builder.finish()
}

impl<'a> Builder<'a> {
    fn error<T>(&self, i: &syntax::Instruction, message: impl Into<String>) -> Result<T> {
        Err(ParseError::new(self.text, i.line, i.column, message))
    }

    /// Decodes a body; `places` are those of its returns and parameters, `base` is its first
    /// register.
    fn body(&mut self, index: usize, places: Vec<(Space, u32)>, base: u32) -> Result<()> {
        let tree = self.tree;
        let function = &tree.functions[index];
        let (labels, tables) = (HashMap::new(), HashMap::new());
        let mut frame = Frame {
            function,
            base,
            places,
            labels,
            tables,
            branches: Vec::new(),
            returns: Vec::new(),
        };
        let first = frame.places.len();
        for variable in &function.variables[first..] {
            let place = self.place(variable)?;
            frame.places.push(place);
        }
        let statements = function.body.as_deref().expect("only functions with bodies are decoded");
        for statement in statements {
            if let Statement::Targets { name, labels, scope } = statement {
                frame.tables.insert((*scope, name), (labels, *scope));
            }
        }
        self.calls.push(index);
        for statement in statements {
            match statement {
                Statement::Targets { .. } => {}
                Statement::Label(name, scope) => {
                    if frame.labels.insert((*scope, name), self.code.len() as u32).is_some() {
                        let message = format!("the label `{name}` stands twice");
                        return Err(ParseError::new(self.text, function.line, 1, message));
                    }
                }
                Statement::Instruction(i) => self.instruction(&mut frame, i)?,
            }
        }
        self.calls.pop();
        if self.calls.is_empty() {
            // A body may end without `ret`.
            let line = self.code.last().map_or(function.line, |last| last.line);
            self.push_part(None, Op::Exit, vec![], vec![], line);
        }
        let end = self.code.len() as u32;
        for at in frame.returns {
            self.code[at].op = Op::Branch(end);
        }
        for (at, label, scope, slot) in frame.branches {
            let mut scope = scope;
            let target = loop {
                if let Some(&target) = frame.labels.get(&(scope, label)) {
                    break target;
                }
                let parent = function.scopes[scope as usize];
                if parent == scope {
                    let line = self.code[at].line;
                    return Err(ParseError::new(
                        self.text,
                        line,
                        1,
                        format!("there is no label `{label}`"),
                    ));
                }
                scope = parent;
            };
            match &mut self.code[at].op {
                Op::Branch(place) => *place = target,
                Op::BranchTable(places) => places[slot as usize] = target,
                _ => unreachable!("only branches are noted"),
            }
        }
        Ok(())
    }

    /// Allocates a variable of a function.
    fn place(&mut self, variable: &Variable) -> Result<(Space, u32)> {
        let too_large = |this: &Self, most: u64| {
            let message = format!(
                "`{}` does not fit: {} memory ends at {most} bytes",
                variable.name, variable.space
            );
            Err(ParseError::new(this.text, variable.line, 1, message))
        };
        let used = match variable.space {
            Space::Shared => &mut self.shared_bytes,
            Space::Local | Space::Param => &mut self.local_bytes,
            _ => return too_large(self, 0),
        };
        let most = if variable.space == Space::Shared { 1 << 20 } else { MOST_LOCAL };
        let offset = used.next_multiple_of(variable.align);
        if u64::from(offset) + variable.bytes > u64::from(most) {
            return too_large(self, u64::from(most));
        }
        *used = offset + variable.bytes as u32;
        let space = if variable.space == Space::Shared { Space::Shared } else { Space::Local };
        Ok((space, offset))
    }

    /// Adds an instruction that the text does not have as such.
    fn push_part(
        &mut self,
        guard: Option<(u32, bool)>,
        op: Op,
        outputs: Vec<Operand>,
        inputs: Vec<Operand>,
        line: u32,
    ) -> usize {
        let (outputs, inputs) = (outputs.into(), inputs.into());
        let (watched, pinned, part) = (false, false, true);
        self.code.push(Instruction { guard, op, outputs, inputs, line, watched, pinned, part });
        self.code.len() - 1
    }

    fn emit(
        &mut self,
        frame: &Frame<'a>,
        i: &syntax::Instruction,
        op: Op,
        outputs: Vec<Operand>,
        inputs: Vec<Operand>,
    ) -> usize {
        let guard = i.guard.map(|(register, negated)| (frame.base + register, negated));
        let at = self.push_part(guard, op, outputs, inputs, i.line);
        self.code[at].part = false;
        at
    }

    fn instruction(&mut self, frame: &mut Frame<'a>, i: &'a syntax::Instruction) -> Result<()> {
        if self.code.len() > MOST_INSTRUCTIONS {
            return self.error(
                i,
                format!("the kernel has more than {MOST_INSTRUCTIONS} instructions after inlining"),
            );
        }
        let first = self.code.len();
        let mut m = Modifiers::new(&i.modifiers);
        let known = self.arithmetic(frame, i, &mut m)?
            || self.data(frame, i, &mut m)?
            || self.memory(frame, i, &mut m)?
            || self.control(frame, i, &mut m)?;
        if !known {
            let full: String = i.modifiers.iter().map(|m| format!(".{m}")).collect();
            return self.error(i, format!("the instruction `{}{full}` is not supported", i.opcode));
        }
        // The last one stands for the instruction, those before prepare its operands. A call has
        // the instructions of its body here, which are counted by themselves.
        if i.opcode != "call"
            && let [before @ .., _] = &mut self.code[first..]
        {
            before.iter_mut().for_each(|instruction| instruction.part = true);
        }
        match m.left() {
            Some(left) => {
                self.error(i, format!("`.{left}` is not supported on `{}` here", i.opcode))
            }
            None => Ok(()),
        }
    }

    fn constant(&mut self, constant: Constant) -> Operand {
        let next = self.constants.len() as u32;
        let index = *self.known_constants.entry(constant).or_insert(next);
        if index == next {
            self.constants.push(constant);
        }
        Operand::Constant(index)
    }

    fn value(&mut self, value: u64) -> Operand {
        self.constant(Constant::Value(value))
    }

    fn fresh(&mut self, bits: u8) -> u32 {
        self.registers.push(bits);
        self.registers.len() as u32 - 1
    }

    fn register(&self, register: u32) -> Operand {
        match self.registers[register as usize] {
            1 => Operand::Predicate(register),
            64 => Operand::Double(register),
            _ => Operand::Word(register),
        }
    }

    fn class(&self, operand: Operand) -> Option<Class> {
        match operand {
            Operand::Word(_) => Some(Class::Word),
            Operand::Double(_) => Some(Class::Double),
            Operand::Predicate(_) => Some(Class::Predicate),
            Operand::Constant(_) | Operand::Sink => None,
        }
    }

    /// Bits of a destination register.
    fn width(&self, operand: Operand) -> u32 {
        match operand {
            Operand::Word(r) | Operand::Double(r) | Operand::Predicate(r) => {
                self.registers[r as usize].into()
            }
            Operand::Constant(_) | Operand::Sink => 64,
        }
    }

    /// Operand `index` of the instruction.
    fn operand(&self, i: &'a syntax::Instruction, index: usize) -> Result<&'a syntax::Operand> {
        match i.operands.get(index) {
            Some(operand) => Ok(operand),
            None => self.error(i, format!("`{}` has too few operands", i.opcode)),
        }
    }

    fn exactly(&self, i: &syntax::Instruction, count: usize) -> Result<()> {
        if i.operands.len() == count {
            Ok(())
        } else {
            self.error(
                i,
                format!(
                    "`{}` takes {count} operands here and is given {}",
                    i.opcode,
                    i.operands.len()
                ),
            )
        }
    }

    /// A destination register.
    fn target(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        operand: &syntax::Operand,
    ) -> Result<Operand> {
        match operand {
            syntax::Operand::Register(register) => Ok(self.register(frame.base + register)),
            syntax::Operand::Sink => Ok(Operand::Sink),
            _ => self.error(i, "the result goes to a register"),
        }
    }

    /// A source operand of type `ty`.
    fn source(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        operand: &syntax::Operand,
        ty: Type,
    ) -> Result<Operand> {
        let mask = if ty.bits() >= 64 { u64::MAX } else { (1 << ty.bits()) - 1 };
        Ok(match operand {
            syntax::Operand::Register(register) => self.register(frame.base + register),
            syntax::Operand::Special(special) => self.special(frame, i, *special),
            syntax::Operand::Integer(value) => self.value(value & mask),
            syntax::Operand::Single(bits) => match ty {
                Type::Float(64) => self.value(f64::from(f32::from_bits(*bits)).to_bits()),
                _ => self.value(u64::from(*bits)),
            },
            syntax::Operand::Double(bits) => match ty {
                Type::Float(32) => self.value(u64::from((f64::from_bits(*bits) as f32).to_bits())),
                _ => self.value(*bits),
            },
            syntax::Operand::Variable(id, offset) => self.address_of(frame, i, *id, *offset)?.1,
            syntax::Operand::Not(inner) if ty == Type::Predicate => {
                let inner = self.source(frame, i, inner, ty)?;
                let negated = self.fresh(1);
                self.emit(
                    frame,
                    i,
                    Op::Predicates(None, true),
                    vec![Operand::Predicate(negated)],
                    vec![inner],
                );
                Operand::Predicate(negated)
            }
            _ => return self.error(i, "an operand here is a register, a constant or a variable"),
        })
    }

    fn special(&mut self, frame: &Frame<'a>, i: &syntax::Instruction, special: Special) -> Operand {
        use Special::{Clock, Clock64, ClockHigh, Globaltimer, GlobaltimerHigh, GlobaltimerLow};
        let bits = special.bits() as u8;
        if matches!(
            special,
            Clock | Clock64 | ClockHigh | Globaltimer | GlobaltimerHigh | GlobaltimerLow
        ) {
            let register = self.fresh(bits);
            let target = self.register(register);
            self.emit(frame, i, Op::ReadSpecial(special), vec![target], vec![]);
            return target;
        }
        if let Some(&(_, register)) = self.specials.iter().find(|(known, _)| *known == special) {
            return self.register(register);
        }
        let register = self.fresh(bits);
        self.specials.push((special, register));
        self.register(register)
    }

    /// The space of a variable and its address in it.
    fn address_of(
        &mut self,
        frame: &Frame<'a>,
        i: &syntax::Instruction,
        id: VariableId,
        offset: i64,
    ) -> Result<(Space, Operand)> {
        let tree = self.tree;
        Ok(match id {
            VariableId::Function(index) => {
                let (space, place) = frame.places[index as usize];
                (space, self.value(i64::from(place).wrapping_add(offset) as u64))
            }
            VariableId::Module(index) => {
                let variable = &tree.variables[index as usize];
                match variable.space {
                    Space::Shared if variable.dynamic => {
                        self.dynamic_align = self.dynamic_align.max(variable.align);
                        (Space::Shared, self.constant(Constant::Dynamic(offset)))
                    }
                    Space::Shared => {
                        let place = match self.module_shared.get(&index) {
                            Some(&place) => place,
                            None => {
                                let (_, place) = self.place(variable)?;
                                self.module_shared.insert(index, place);
                                place
                            }
                        };
                        (Space::Shared, self.value(i64::from(place).wrapping_add(offset) as u64))
                    }
                    Space::Global | Space::Const => (
                        variable.space,
                        self.constant(Constant::Address { variable: index, offset }),
                    ),
                    _ => return self.error(i, format!("`{}` has no address", variable.name)),
                }
            }
        })
    }

    /// Checks that an operand of a row function has the row's width.
    fn expect(&self, i: &syntax::Instruction, operand: Operand, class: Class) -> Result<()> {
        match self.class(operand) {
            Some(found) if found != class => self.error(
                i,
                format!("an operand of `{}` has a width that the type does not", i.opcode),
            ),
            _ => Ok(()),
        }
    }

    /// Emits a row function: result first, then operands of type `ty`.
    fn rows(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        rows: Rows,
        ty: Type,
    ) -> Result<bool> {
        use Class::{Double as D, Word as W};
        let (target, sources): (Class, &[Class]) = match rows {
            Rows::W1(_) => (W, &[W]),
            Rows::W2(_) => (W, &[W, W]),
            Rows::W3(_) => (W, &[W, W, W]),
            Rows::D1(_) => (D, &[D]),
            Rows::D2(_) => (D, &[D, D]),
            Rows::D3(_) => (D, &[D, D, D]),
            Rows::WToD(_) => (D, &[W]),
            Rows::DToW(_) => (W, &[D]),
            Rows::WWToD(_) => (D, &[W, W]),
            Rows::WWDToD(_) => (D, &[W, W, D]),
            Rows::DWToD(_) => (D, &[D, W]),
        };
        self.exactly(i, sources.len() + 1)?;
        let output = self.target(frame, i, &i.operands[0])?;
        self.expect(i, output, target)?;
        let mut inputs = Vec::new();
        for (operand, &class) in i.operands[1..].iter().zip(sources) {
            // A shift's amount and the addend of a wide sum may be wider or narrower than the
            // instruction's type; their class gives the width.
            let bits = if class == D { 64 } else { 32 };
            let ty = if ty.bits().max(32) == bits { ty } else { Type::Bits(bits) };
            let input = self.source(frame, i, operand, ty)?;
            self.expect(i, input, class)?;
            inputs.push(input);
        }
        self.emit(frame, i, Op::Rows(rows), vec![output], inputs);
        Ok(true)
    }

    /// Emits a scalar function: result first, then `count` operands of type `ty`.
    fn scalar(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        scalar: crate::semantics::scalar::Scalar,
        types: &[Type],
    ) -> Result<bool> {
        self.exactly(i, types.len() + 1)?;
        let output = self.target(frame, i, &i.operands[0])?;
        let bits = self.width(output);
        let mut inputs = Vec::new();
        for (operand, &ty) in i.operands[1..].iter().zip(types) {
            inputs.push(self.source(frame, i, operand, ty)?);
        }
        if inputs
            .iter()
            .chain([&output])
            .any(|&operand| self.class(operand) == Some(Class::Predicate))
        {
            return self.error(i, format!("`{}` takes no predicate there", i.opcode));
        }
        self.emit(frame, i, Op::Scalar(scalar, bits), vec![output], inputs);
        Ok(true)
    }
}
