//! Branches, calls, barriers, and collective instructions of a warp.

use super::modifiers::Modifiers;
use super::program::{
    Barrier, BarrierKind, Element, Matrix, Op, Operand, Shuffle, Vote, WarpReduction,
};
use super::{Builder, Class, DEEPEST_CALL, Frame, MOST_CALLS, MOST_REGISTERS, Result};
use crate::parse::syntax::{self, Space, Type};
use crate::semantics::exact::{BF16, E5M2, F16, F32, F64, TF32};
use crate::semantics::matrix::Shape;

const B32: Type = Type::Bits(32);

/// An element of A or B.
pub(super) fn element(ty: Type) -> Option<Element> {
    Some(match ty {
        Type::Float(16) => Element::Float(F16),
        Type::Brain => Element::Float(BF16),
        Type::Tensor32 => Element::Float(TF32),
        Type::Float(64) => Element::Float(F64),
        Type::E4M3 => Element::E4M3,
        Type::E5M2 => Element::Float(E5M2),
        Type::Signed(8) | Type::Unsigned(8) => Element::Integer { bits: 8, signed: ty.is_signed() },
        _ => return None,
    })
}

/// An element of C and D.
pub(super) fn accumulator(ty: Type) -> Option<Element> {
    Some(match ty {
        Type::Float(16) => Element::Float(F16),
        Type::Float(32) => Element::Float(F32),
        Type::Float(64) => Element::Float(F64),
        Type::Signed(32) => Element::Integer { bits: 32, signed: true },
        _ => return None,
    })
}

impl<'a> Builder<'a> {
    pub(super) fn control(
        &mut self,
        frame: &mut Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        match i.opcode.as_str() {
            "bra" => {
                m.take("uni");
                let syntax::Operand::Name(label) = self.operand(i, 0)? else {
                    return self.error(i, "`bra` goes to a label");
                };
                self.exactly(i, 1)?;
                let at = self.emit(frame, i, Op::Branch(0), vec![], vec![]);
                frame.branches.push((at, label, i.scope, 0));
            }
            "brx" => self.table(frame, i, m)?,
            "ret" => {
                m.take("uni");
                if frame.function.entry {
                    self.emit(frame, i, Op::Exit, vec![], vec![]);
                } else {
                    let at = self.emit(frame, i, Op::Branch(0), vec![], vec![]);
                    frame.returns.push(at);
                }
            }
            "exit" => {
                self.emit(frame, i, Op::Exit, vec![], vec![]);
            }
            "trap" => {
                self.emit(frame, i, Op::Trap("the kernel executes `trap`"), vec![], vec![]);
            }
            "brkpt" => {
                self.emit(
                    frame,
                    i,
                    Op::Trap("the kernel executes `brkpt`, and no debugger is there"),
                    vec![],
                    vec![],
                );
            }
            "griddepcontrol" | "setmaxnreg" => return self.launch_control(frame, i, m),
            "mbarrier" => return self.mbarrier(frame, i, m),
            "mapa" | "getctarank" => return self.cluster_address(frame, i, m),
            "wgmma" => return self.wgmma(frame, i, m),
            "nanosleep" | "pmevent" => {
                m.take_all(|_| true);
                self.emit(frame, i, Op::Nothing, vec![], vec![]);
            }
            "call" => self.call(frame, i, m)?,
            "bar" | "barrier" => return self.barrier(frame, i, m),
            "shfl" | "vote" | "match" | "activemask" | "redux" | "elect" => {
                return self.warp(frame, i, m);
            }
            "ldmatrix" | "stmatrix" => return self.matrix_access(frame, i, m),
            "movmatrix" => {
                m.take_all(|word| matches!(word, "sync" | "aligned" | "m8n8" | "trans" | "b16"));
                self.words(frame, i, Op::MoveMatrix, 1)?;
            }
            "mma" => return self.mma(frame, i, m),
            "wmma" => return self.wmma(frame, i, m),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// One result word, `count` operand words.
    fn words(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        op: Op,
        count: usize,
    ) -> Result<()> {
        self.exactly(i, count + 1)?;
        let output = self.target(frame, i, &i.operands[0])?;
        self.expect(i, output, Class::Word)?;
        let inputs = self.word_sources(frame, i, &i.operands[1..])?;
        self.emit(frame, i, op, vec![output], inputs);
        Ok(())
    }

    fn word_sources(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        operands: &'a [syntax::Operand],
    ) -> Result<Vec<Operand>> {
        let mut inputs = Vec::new();
        for operand in operands {
            let input = self.source(frame, i, operand, B32)?;
            self.expect(i, input, Class::Word)?;
            inputs.push(input);
        }
        Ok(inputs)
    }

    fn table(
        &mut self,
        frame: &mut Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<()> {
        m.take("uni");
        if !m.take("idx") {
            return self.error(i, "`brx` is supported with .idx");
        }
        self.exactly(i, 2)?;
        let index = self.source(frame, i, &i.operands[0], B32)?;
        self.expect(i, index, Class::Word)?;
        let syntax::Operand::Name(name) = &i.operands[1] else {
            return self.error(i, "`brx.idx` names a list of targets");
        };
        let mut scope = i.scope;
        let (labels, scope) = loop {
            if let Some(&found) = frame.tables.get(&(scope, name.as_str())) {
                break found;
            }
            let parent = frame.function.scopes[scope as usize];
            if parent == scope {
                return self.error(i, format!("there is no list of targets `{name}`"));
            }
            scope = parent;
        };
        let targets = vec![0; labels.len()].into();
        let at = self.emit(frame, i, Op::BranchTable(targets), vec![], vec![index]);
        for (slot, label) in labels.iter().enumerate() {
            frame.branches.push((at, label, scope, slot as u32));
        }
        Ok(())
    }

    /// `call (returns), function, (arguments)`: inlines the function's body.
    fn call(
        &mut self,
        frame: &mut Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<()> {
        m.take("uni");
        let mut operands = i.operands.as_slice();
        let mut returns: &[syntax::Operand] = &[];
        if let Some((syntax::Operand::List(list), rest)) = operands.split_first() {
            (returns, operands) = (list, rest);
        }
        let Some((syntax::Operand::Name(name), rest)) = operands.split_first() else {
            return self.error(i, "calls through registers are not supported");
        };
        let arguments: &[syntax::Operand] = match rest {
            [] => &[],
            [syntax::Operand::List(list)] => list,
            _ => return self.error(i, "calls through pointers are not supported"),
        };
        let tree = self.tree;
        let Some(index) = tree.functions.iter().position(|f| f.name == *name && !f.entry) else {
            return self.error(i, format!("there is no function `{name}`"));
        };
        let callee = &tree.functions[index];
        if callee.body.is_none() {
            if name == "__assertfail" {
                self.emit(frame, i, Op::Trap("an assertion failed"), vec![], vec![]);
                return Ok(());
            }
            return self.error(i, format!("the function `{name}` has no body"));
        }
        if self.calls.contains(&index) {
            return self.error(i, format!("`{name}` calls itself, which is not supported"));
        }
        if self.calls.len() > DEEPEST_CALL {
            return self.error(i, format!("calls are nested deeper than {DEEPEST_CALL}"));
        }
        if returns.len() != callee.returns || arguments.len() != callee.parameters {
            return self.error(i, format!("`{name}` has another number of parameters"));
        }
        // A guarded call branches around the body; the body does not depend on the guard.
        let skip = i.guard.map(|(register, negated)| {
            self.push_part(
                Some((frame.base + register, !negated)),
                Op::Branch(0),
                vec![],
                vec![],
                i.line,
            )
        });
        // The call itself, for counts.
        self.emit(frame, i, Op::Nothing, vec![], vec![]);
        self.inlined += 1;
        if self.inlined > MOST_CALLS
            || self.registers.len() + callee.registers.len() > MOST_REGISTERS
        {
            let message = format!(
                "the kernel has more than {MOST_CALLS} calls or {MOST_REGISTERS} \
                 registers after inlining"
            );
            return self.error(i, message);
        }
        let base = self.registers.len() as u32;
        self.registers.extend_from_slice(&callee.registers);
        let mut places = Vec::new();
        let mut copies_back = Vec::new();
        let passed = returns.iter().chain(arguments);
        for (k, (formal, actual)) in
            callee.variables[..callee.returns + callee.parameters].iter().zip(passed).enumerate()
        {
            let is_return = k < callee.returns;
            match (formal.register, actual) {
                // By-value parameters share the caller's bytes: the caller writes them before the
                // call and reads them after.
                (None, syntax::Operand::Variable(id, 0)) => match self
                    .address_of(frame, i, *id, 0)?
                {
                    (Space::Local, Operand::Constant(place)) => {
                        let super::program::Constant::Value(place) = self.constants[place as usize]
                        else {
                            return self.error(i, "a parameter has no address");
                        };
                        places.push((Space::Local, place as u32));
                    }
                    _ => {
                        return self
                            .error(i, "a call's parameters are `.param` variables or registers");
                    }
                },
                (None, actual) => {
                    let place = self.place(formal)?;
                    let address = self.value(place.1.into());
                    let ty = Type::Bits(formal.bytes.min(8) as u32 * 8);
                    let access = super::program::Access {
                        space: Some(Space::Local),
                        cluster: false,
                        bytes: ty.bytes(),
                        count: 1,
                        offset: 0,
                        signed: false,
                        register_bits: ty.bits(),
                        ordering: super::program::Ordering::WEAK,
                        level: super::program::Level::Register,
                    };
                    if is_return {
                        let output = self.target(frame, i, actual)?;
                        copies_back.push((Op::Load(access), output, address));
                    } else {
                        let input = self.source(frame, i, actual, ty)?;
                        self.push_part(
                            None,
                            Op::Store(access),
                            vec![],
                            vec![address, input],
                            i.line,
                        );
                    }
                    places.push(place);
                }
                (Some(register), actual) => {
                    let bits = callee.registers[register as usize];
                    let formal_register = base + register;
                    let class = |register| match bits {
                        1 => Operand::Predicate(register),
                        64 => Operand::Double(register),
                        _ => Operand::Word(register),
                    };
                    let op = match bits {
                        1 => Op::Predicates(None, false),
                        _ => Op::Rows(
                            crate::semantics::rows::integer1(
                                "mov",
                                Type::Bits(bits.max(16).into()),
                            )
                            .expect("registers have 16, 32 or 64 bits"),
                        ),
                    };
                    let wanted = match bits {
                        1 => Class::Predicate,
                        64 => Class::Double,
                        _ => Class::Word,
                    };
                    if is_return {
                        let output = self.target(frame, i, actual)?;
                        self.expect(i, output, wanted)?;
                        copies_back.push((op, output, class(formal_register)));
                    } else {
                        let ty = if bits == 1 { Type::Predicate } else { Type::Bits(bits.into()) };
                        let input = self.source(frame, i, actual, ty)?;
                        self.expect(i, input, wanted)?;
                        self.push_part(None, op, vec![class(formal_register)], vec![input], i.line);
                    }
                    places.push((Space::Local, 0));
                }
            }
        }
        self.body(index, places, base)?;
        for (op, output, input) in copies_back {
            self.push_part(None, op, vec![output], vec![input], i.line);
        }
        if let Some(at) = skip {
            self.code[at].op = Op::Branch(self.code.len() as u32);
        }
        Ok(())
    }

    fn barrier(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        if i.opcode == "barrier" && m.has("cluster") {
            return self.cluster_barrier(frame, i, m);
        }
        if i.opcode == "bar" && m.take("warp") {
            m.take("sync");
            self.exactly(i, 1)?;
            let inputs = self.word_sources(frame, i, &i.operands)?;
            self.emit(frame, i, Op::WarpBarrier, vec![], inputs);
            return Ok(true);
        }
        m.take("cta");
        let aligned = m.take("aligned") || i.opcode == "bar";
        let kind = m.one_of(&["sync", "arrive", "red"]);
        if kind == Some("red") {
            let kind = match m.one_of(&["popc", "and", "or"]) {
                Some("popc") => BarrierKind::ReducePopulation,
                Some("and") => BarrierKind::ReduceAnd,
                Some(_) => BarrierKind::ReduceOr,
                None => return self.error(i, "`red` is .popc, .and or .or"),
            };
            m.types();
            let counted = i.operands.len() == 4;
            self.exactly(i, if counted { 4 } else { 3 })?;
            let output = self.target(frame, i, &i.operands[0])?;
            let wanted =
                if kind == BarrierKind::ReducePopulation { Class::Word } else { Class::Predicate };
            self.expect(i, output, wanted)?;
            let last = i.operands.len() - 1;
            let mut inputs = self.word_sources(frame, i, &i.operands[1..last])?;
            let p = self.source(frame, i, &i.operands[last], Type::Predicate)?;
            self.expect(i, p, Class::Predicate)?;
            inputs.insert(0, p);
            self.emit(
                frame,
                i,
                Op::Barrier(Barrier { kind, aligned, counted }),
                vec![output],
                inputs,
            );
            return Ok(true);
        }
        let kind = match kind {
            Some("arrive") => BarrierKind::Arrive,
            Some(_) => BarrierKind::Sync,
            None => return Ok(false),
        };
        let counted = i.operands.len() == 2;
        if i.operands.is_empty()
            || i.operands.len() > 2
            || (kind == BarrierKind::Arrive && !counted)
        {
            return self.error(i, "a barrier has a number, and a count of threads");
        }
        let inputs = self.word_sources(frame, i, &i.operands)?;
        self.emit(frame, i, Op::Barrier(Barrier { kind, aligned, counted }), vec![], inputs);
        Ok(true)
    }

    fn warp(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        if i.opcode == "activemask" {
            m.take("b32");
            self.words(frame, i, Op::ActiveMask, 0)?;
            return Ok(true);
        }
        if !m.take("sync") {
            return self
                .error(i, format!("`{}` without .sync is not supported since sm_70", i.opcode));
        }
        // The result; some instructions have a predicate beside it.
        let (first, second) = match self.operand(i, 0)? {
            syntax::Operand::Pair(first, second) => (&**first, Some(&**second)),
            single => (single, None),
        };
        let mut outputs = vec![self.target(frame, i, first)?];
        if let Some(second) = second {
            let second = self.target(frame, i, second)?;
            self.expect(i, second, Class::Predicate)?;
            outputs.push(second);
        }
        match i.opcode.as_str() {
            "shfl" => {
                m.take("b32");
                let mode = match m.one_of(&["up", "down", "bfly", "idx"]) {
                    Some("up") => Shuffle::Up,
                    Some("down") => Shuffle::Down,
                    Some("bfly") => Shuffle::Butterfly,
                    Some(_) => Shuffle::Index,
                    None => return self.error(i, "`shfl` is .up, .down, .bfly or .idx"),
                };
                self.exactly(i, 5)?;
                self.expect(i, outputs[0], Class::Word)?;
                let inputs = self.word_sources(frame, i, &i.operands[1..])?;
                self.emit(frame, i, Op::Shuffle(mode), outputs, inputs);
            }
            "vote" => {
                let mode = match m.one_of(&["all", "any", "uni", "ballot"]) {
                    Some("all") => Vote::All,
                    Some("any") => Vote::Any,
                    Some("uni") => Vote::Uniform,
                    Some(_) => Vote::Ballot,
                    None => return self.error(i, "`vote` is .all, .any, .uni or .ballot"),
                };
                m.types();
                self.exactly(i, 3)?;
                let wanted = if mode == Vote::Ballot { Class::Word } else { Class::Predicate };
                self.expect(i, outputs[0], wanted)?;
                let p = self.source(frame, i, &i.operands[1], Type::Predicate)?;
                self.expect(i, p, Class::Predicate)?;
                let mask = self.word_sources(frame, i, &i.operands[2..])?;
                self.emit(frame, i, Op::Vote(mode), outputs, vec![p, mask[0]]);
            }
            "match" => {
                let all = m.one_of(&["any", "all"]) == Some("all");
                let ty = self.one_type(i, m)?;
                self.exactly(i, 3)?;
                let double = ty.bits() == 64;
                let a = self.source(frame, i, &i.operands[1], ty)?;
                self.expect(i, a, if double { Class::Double } else { Class::Word })?;
                self.expect(i, outputs[0], Class::Word)?;
                let mask = self.word_sources(frame, i, &i.operands[2..])?;
                self.emit(frame, i, Op::Match { all }, outputs, vec![a, mask[0]]);
            }
            "redux" => {
                let (absolute, nan) = (m.take("abs"), m.take("NaN"));
                let ty = self.one_type(i, m)?;
                let signed = ty.is_signed();
                let name = m.one_of(&["add", "and", "or", "xor", "min", "max"]);
                let operation = match name {
                    Some(name @ ("min" | "max")) if ty == Type::Float(32) => {
                        WarpReduction::Float { maximum: name == "max", absolute, nan }
                    }
                    Some("add") => WarpReduction::Add,
                    Some("and") => WarpReduction::And,
                    Some("or") => WarpReduction::Or,
                    Some("xor") => WarpReduction::Xor,
                    Some("min") => WarpReduction::Minimum { signed },
                    Some("max") => WarpReduction::Maximum { signed },
                    _ => return self.error(i, "`redux` names an operation"),
                };
                self.exactly(i, 3)?;
                self.expect(i, outputs[0], Class::Word)?;
                let inputs = self.word_sources(frame, i, &i.operands[1..])?;
                self.emit(frame, i, Op::WarpReduce(operation), outputs, inputs);
            }
            _ => {
                self.exactly(i, 2)?;
                self.expect(i, outputs[0], Class::Word)?;
                let inputs = self.word_sources(frame, i, &i.operands[1..])?;
                self.emit(frame, i, Op::Elect, outputs, inputs);
            }
        }
        Ok(true)
    }

    fn mma(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        let shapes = [
            ("m8n8k4", (8, 8, 4)),
            ("m16n8k4", (16, 8, 4)),
            ("m16n8k8", (16, 8, 8)),
            ("m16n8k16", (16, 8, 16)),
            ("m16n8k32", (16, 8, 32)),
        ];
        let (sync, aligned) = (m.take("sync"), m.take("aligned"));
        let shape = shapes.iter().find(|(name, _)| m.take(name)).map(|&(_, shape)| shape);
        let layout = m.take("row") && m.take("col");
        let (true, Some((rows, columns, k)), true) = (sync && aligned, shape, layout) else {
            return Ok(false);
        };
        let saturate = m.take("satfinite");
        m.take("kind::f8f6f4");
        let types = m.types();
        let [d, a, b, c] = types[..] else { return self.error(i, "`mma` has four types") };
        if d != c {
            return self.error(i, "`mma` is supported with the same type for C and D");
        }
        let Some(accumulator) = accumulator(c) else {
            return self.error(i, "this accumulator is not supported");
        };
        let (Some(a_element), Some(b_element)) = (element(a), element(b)) else {
            return self.error(i, "these types of matrices are not supported");
        };
        let known = match (a, b, c) {
            (Type::Float(16), Type::Float(16), Type::Float(16 | 32)) => {
                rows == 16 && matches!(k, 8 | 16)
            }
            (Type::Brain, Type::Brain, Type::Float(32)) => rows == 16 && matches!(k, 8 | 16),
            (Type::Tensor32, Type::Tensor32, Type::Float(32)) => rows == 16 && matches!(k, 4 | 8),
            (Type::Float(64), Type::Float(64), Type::Float(64)) => {
                (rows == 8 && k == 4) || (rows == 16 && matches!(k, 4 | 8 | 16))
            }
            (
                Type::Signed(8) | Type::Unsigned(8),
                Type::Signed(8) | Type::Unsigned(8),
                Type::Signed(32),
            ) => rows == 16 && matches!(k, 16 | 32),
            (Type::E4M3 | Type::E5M2, Type::E4M3 | Type::E5M2, Type::Float(16 | 32)) => {
                rows == 16 && matches!(k, 16 | 32)
            }
            _ => false,
        };
        if !known {
            return self.error(i, "this shape is not supported with these types");
        }
        let packed = (32 / a.bits() as usize).max(1);
        let shape = Shape { m: rows, n: columns, k, packed };
        let double = c.bits() == 64;
        let registers =
            |values: usize, bits: u32| values * bits as usize / if double { 64 } else { 32 };
        let counts = [
            registers(shape.c_values(), c.bits()),
            registers(shape.a_values(), a.bits()),
            registers(shape.b_values(), b.bits()),
            registers(shape.c_values(), c.bits()),
        ];
        self.exactly(i, 4)?;
        let class = if double { Class::Double } else { Class::Word };
        let (mut outputs, mut inputs) = (Vec::new(), Vec::new());
        for (at, (operand, count)) in i.operands.iter().zip(counts).enumerate() {
            let elements = match operand {
                syntax::Operand::Vector(elements) => &elements[..],
                single => std::slice::from_ref(single),
            };
            if elements.len() != count {
                return self
                    .error(i, format!("operand {} of this `mma` has {count} registers", at + 1));
            }
            for element in elements {
                let ty = if double { Type::Float(64) } else { B32 };
                let register = if at == 0 {
                    self.target(frame, i, element)?
                } else {
                    self.source(frame, i, element, ty)?
                };
                self.expect(i, register, class)?;
                if at == 0 { outputs.push(register) } else { inputs.push(register) }
            }
        }
        let matrix = Matrix { shape, a: a_element, b: b_element, c: accumulator, saturate };
        self.emit(frame, i, Op::Matrix(Box::new(matrix)), outputs, inputs);
        Ok(true)
    }
}
