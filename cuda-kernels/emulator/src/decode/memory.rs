//! Loads, stores, atomics, asynchronous copies, fences.

use super::arithmetic::float_format;
use super::modifiers::Modifiers;
use super::program::{Access, AtomicOperation, Level, Op, Operand, Ordering};
use super::{Builder, Class, Frame, Result};
use crate::parse::syntax::{self, Space, Type};
use crate::semantics::float::{Float, Operation};

/// Cache hints, which change no result.
fn is_hint(word: &str) -> bool {
    matches!(word, "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt" | "nc" | "unified")
        || word.starts_with("L1::")
        || word.starts_with("L2::")
        || word.starts_with("level::")
}

/// The first level that a load with these modifiers looks up: PTX ISA, "Cache Operators" and
/// "Memory Consistency Model". An ordered access of a wider scope than the block is served by the
/// L2 cache, since L1 caches are not coherent. `.L1::no_allocate` may hit in hardware; here it
/// bypasses L1.
fn level(m: &Modifiers<'_>) -> Level {
    let any = |words: &[&str]| words.iter().any(|word| m.has(word));
    let ordered = any(&["relaxed", "acquire"]) && !m.has("cta");
    let bypasses = any(&["cg", "cv", "volatile", "mmio", "L1::no_allocate"]);
    if bypasses || ordered { Level::L2 } else { Level::L1 }
}

/// Consumes `.weak .volatile .relaxed .acquire .release .acq_rel .mmio` and the scope.
fn ordering(m: &mut Modifiers<'_>) -> Ordering {
    let word =
        m.one_of(&["weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio", "sc"]);
    m.take("relaxed");
    m.one_of(&["cta", "cluster", "gpu", "sys"]);
    Ordering {
        strong: !matches!(word, None | Some("weak")),
        acquire: matches!(word, Some("acquire" | "acq_rel" | "sc")),
        release: matches!(word, Some("release" | "acq_rel" | "sc")),
    }
}

impl<'a> Builder<'a> {
    /// `[base + offset]`: the space if the base is a variable, the base, and the offset.
    pub(super) fn address(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        operand: &'a syntax::Operand,
    ) -> Result<(Option<Space>, Operand, i64)> {
        let syntax::Operand::Address(base, offset) = operand else {
            return self.error(i, "an address stands in square brackets");
        };
        match &**base {
            syntax::Operand::Variable(id, inner) => {
                let (space, base) = self.address_of(frame, i, *id, inner.wrapping_add(*offset))?;
                Ok((Some(space), base, 0))
            }
            syntax::Operand::Register(_) | syntax::Operand::Integer(_) => {
                let base = self.source(frame, i, base, Type::Bits(64))?;
                if self.class(base) == Some(Class::Predicate) {
                    return self.error(i, "a predicate is no address");
                }
                Ok((None, base, *offset))
            }
            _ => self.error(i, "an address is a register or a variable plus an offset"),
        }
    }

    /// The space of an access, or `None` for a generic address.
    pub(super) fn space_of(
        &self,
        frame: &Frame<'a>,
        said: Option<Space>,
        variable: Option<Space>,
    ) -> Option<Space> {
        match (said, variable) {
            // A call's parameters and returns live in the thread's local memory.
            (Some(Space::Param), Some(space)) => Some(space),
            (Some(Space::Param), None) if !frame.function.entry => Some(Space::Local),
            (Some(said), _) => Some(said),
            (None, variable) => variable,
        }
    }

    pub(super) fn memory(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        match i.opcode.as_str() {
            "ld" | "ldu" | "st" => self.load_store(frame, i, m),
            "atom" | "red" => self.atomic(frame, i, m),
            "membar" => {
                let wide = !matches!(m.one_of(&["cta", "gl", "sys"]), Some("cta"));
                self.emit(frame, i, Op::Fence { wide }, vec![], vec![]);
                Ok(true)
            }
            "fence" => {
                if m.has("proxy") || m.has("mbarrier_init") {
                    return self.proxy_fence(frame, i, m);
                }
                m.one_of(&["sc", "acq_rel", "acquire", "release"]);
                let wide = !matches!(m.one_of(&["cta", "cluster", "gpu", "sys"]), Some("cta"));
                self.emit(frame, i, Op::Fence { wide }, vec![], vec![]);
                Ok(true)
            }
            "prefetch" | "prefetchu" | "applypriority" | "discard" => {
                if i.opcode == "discard" {
                    return Ok(false);
                }
                m.take_all(|_| true);
                self.emit(frame, i, Op::Nothing, vec![], vec![]);
                Ok(true)
            }
            "createpolicy" => {
                // A policy is a hint; its register is used by other hints only.
                m.take_all(|_| true);
                let output = self.target(frame, i, self.operand(i, 0)?)?;
                let zero = self.value(0);
                self.emit(frame, i, Op::Join { bits: 64 }, vec![output], vec![zero]);
                Ok(true)
            }
            "cp" => self.copy_async(frame, i, m),
            _ => Ok(false),
        }
    }

    fn load_store(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        let store = i.opcode == "st";
        let hinted = m.has("L2::cache_hint");
        let level = level(m);
        m.take_all(is_hint);
        let ordering = ordering(m);
        let cluster = m.has("shared::cluster");
        let said = m.space();
        let count = match m.one_of(&["v2", "v4", "v8"]) {
            Some("v2") => 2,
            Some("v4") => 4,
            Some(_) => 8,
            None => 1,
        };
        let ty = self.one_type(i, m)?;
        if ty.bits() > 64 || ty.bits() < 8 {
            return self.error(i, "accesses of this type are not supported");
        }
        self.exactly(i, 2 + usize::from(hinted))?;
        let (place, data) =
            if store { (&i.operands[0], &i.operands[1]) } else { (&i.operands[1], &i.operands[0]) };
        let (variable, base, offset) = self.address(frame, i, place)?;
        let space = self.space_of(frame, said, variable);
        let passes = said == Some(Space::Param) && space == Some(Space::Local);
        let elements = match data {
            syntax::Operand::Vector(elements) => &elements[..],
            single => std::slice::from_ref(single),
        };
        if elements.len() != count as usize {
            return self.error(i, format!("{count} elements are wanted"));
        }
        let mut registers = Vec::new();
        for element in elements {
            let register = if store {
                self.source(frame, i, element, ty)?
            } else {
                self.target(frame, i, element)?
            };
            if self.class(register) == Some(Class::Predicate) {
                return self.error(i, "memory holds no predicates");
            }
            registers.push(register);
        }
        let register_bits = registers.iter().map(|&r| self.width(r)).min().unwrap_or(64);
        if !store && registers.iter().any(|&r| r != Operand::Sink && self.width(r) < ty.bits()) {
            return self.error(i, "the register is narrower than what is loaded");
        }
        let access = Access {
            space,
            cluster: cluster || space.is_none(),
            bytes: ty.bytes(),
            count,
            offset,
            signed: ty.is_signed() && !store && register_bits > ty.bits(),
            register_bits,
            ordering,
            level: if passes { Level::Register } else { level },
        };
        if store {
            let mut inputs = vec![base];
            inputs.extend(registers);
            self.emit(frame, i, Op::Store(access), vec![], inputs);
        } else {
            self.emit(frame, i, Op::Load(access), registers, vec![base]);
        }
        Ok(true)
    }

    fn atomic(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        let reduces = i.opcode == "red";
        let hinted = m.has("L2::cache_hint");
        m.take_all(is_hint);
        let ordering = Ordering { strong: true, ..ordering(m) };
        let cluster = m.has("shared::cluster");
        let said = m.space();
        m.take("noftz");
        let ty = self.one_type(i, m)?;
        let name =
            m.one_of(&["and", "or", "xor", "exch", "cas", "add", "inc", "dec", "min", "max"]);
        let signed = ty.is_signed();
        let operation = match (name, float_format(ty)) {
            (Some("add"), Some((format, pair))) => {
                let float = Float::new(Operation::Add, format);
                if pair { AtomicOperation::FloatPair(float) } else { AtomicOperation::Float(float) }
            }
            (Some(name @ ("min" | "max")), Some((format, pair))) => {
                let operation = if name == "min" { Operation::Minimum } else { Operation::Maximum };
                let float = Float::new(operation, format);
                if pair { AtomicOperation::FloatPair(float) } else { AtomicOperation::Float(float) }
            }
            (Some("and"), None) => AtomicOperation::And,
            (Some("or"), None) => AtomicOperation::Or,
            (Some("xor"), None) => AtomicOperation::Xor,
            (Some("exch"), _) => AtomicOperation::Exchange,
            (Some("cas"), _) => AtomicOperation::CompareAndSwap,
            (Some("add"), None) => AtomicOperation::Add,
            (Some("inc"), None) => AtomicOperation::Increment,
            (Some("dec"), None) => AtomicOperation::Decrement,
            (Some("min"), None) => AtomicOperation::Minimum { signed },
            (Some("max"), None) => AtomicOperation::Maximum { signed },
            _ => {
                return self.error(i, format!("this operation of `{}` is not supported", i.opcode));
            }
        };
        if !matches!(ty.bits(), 16 | 32 | 64) {
            return self.error(i, "atomics have 16, 32 or 64 bits");
        }
        let values = if operation == AtomicOperation::CompareAndSwap { 2 } else { 1 };
        let first = usize::from(!reduces);
        self.exactly(i, first + 1 + values + usize::from(hinted))?;
        let output = if reduces { Operand::Sink } else { self.target(frame, i, &i.operands[0])? };
        let (variable, base, offset) = self.address(frame, i, &i.operands[first])?;
        let space = self.space_of(frame, said, variable);
        let class = if ty.bits() == 64 { Class::Double } else { Class::Word };
        self.expect(i, output, class)?;
        let mut inputs = vec![base];
        for operand in &i.operands[first + 1..][..values] {
            let input = self.source(frame, i, operand, ty)?;
            self.expect(i, input, class)?;
            inputs.push(input);
        }
        let register_bits = ty.bits();
        let access = Access {
            space,
            cluster: cluster || space.is_none(),
            bytes: ty.bytes(),
            count: 1,
            offset,
            signed: false,
            register_bits,
            ordering,
            level: Level::L2,
        };
        self.emit(frame, i, Op::Atomic { access, operation }, vec![output], inputs);
        Ok(true)
    }

    fn copy_async(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        if !m.take("async") {
            return Ok(false);
        }
        if m.has("bulk") {
            return self.bulk(frame, i, m);
        }
        if m.has("mbarrier") {
            return self.copy_arrive(frame, i, m);
        }
        if m.take("commit_group") {
            self.emit(frame, i, Op::CommitAsync, vec![], vec![]);
            return Ok(true);
        }
        if m.take("wait_all") {
            self.emit(frame, i, Op::WaitAsync(None), vec![], vec![]);
            return Ok(true);
        }
        if m.take("wait_group") {
            let syntax::Operand::Integer(groups) = *self.operand(i, 0)? else {
                return self.error(i, "the number of groups is a constant");
            };
            self.emit(
                frame,
                i,
                Op::WaitAsync(Some(groups.min(u32::MAX.into()) as u32)),
                vec![],
                vec![],
            );
            return Ok(true);
        }
        let sixteen_only = m.has("cg");
        let hinted = m.has("L2::cache_hint");
        let level = level(m);
        m.take_all(is_hint);
        let spaces = (m.space(), m.space());
        if !matches!(
            spaces,
            (Some(Space::Global), Some(Space::Shared)) | (Some(Space::Shared), Some(Space::Global))
        ) {
            return self.error(i, "`cp.async` copies from global to shared memory");
        }
        let (_, to, to_offset) = self.address(frame, i, self.operand(i, 0)?)?;
        let (_, from, from_offset) = self.address(frame, i, self.operand(i, 1)?)?;
        let bytes = match *self.operand(i, 2)? {
            syntax::Operand::Integer(bytes @ (4 | 8 | 16)) if bytes == 16 || !sixteen_only => {
                bytes as u32
            }
            _ => return self.error(i, "`cp.async` copies 4, 8 or 16 bytes, with .cg only 16"),
        };
        let rest = i.operands.len() - 3 - usize::from(hinted && i.operands.len() > 3);
        let mut inputs = vec![to, from];
        let mut ignores = false;
        if rest > 0 {
            let source = match &i.operands[3] {
                syntax::Operand::Not(_) => {
                    self.source(frame, i, &i.operands[3], Type::Predicate)?
                }
                other => self.source(frame, i, other, Type::Bits(32))?,
            };
            ignores = self.class(source) == Some(Class::Predicate);
            inputs.push(source);
        }
        let (to, from, sized) = (to_offset, from_offset, rest > 0);
        let op = Op::CopyAsync { bytes, to, from, sized, ignores, level };
        self.emit(frame, i, op, vec![], inputs);
        Ok(true)
    }

    /// `ldmatrix`, `stmatrix`: the address and the modifiers.
    pub(super) fn matrix_access(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        let loads = i.opcode == "ldmatrix";
        for word in ["sync", "aligned", "m8n8"] {
            if !m.take(word) {
                return self.error(i, format!("`{}` says .sync.aligned.m8n8", i.opcode));
            }
        }
        let count = match m.one_of(&["x1", "x2", "x4"]) {
            Some("x1") => 1,
            Some("x2") => 2,
            Some(_) => 4,
            None => return self.error(i, "the number of matrices is .x1, .x2 or .x4"),
        };
        let transposed = m.take("trans");
        let said = m.space();
        if m.ty() != Some(Type::Bits(16)) {
            return self.error(i, "elements of .b16 are supported");
        }
        self.exactly(i, 2)?;
        let (data, place) =
            if loads { (&i.operands[0], &i.operands[1]) } else { (&i.operands[1], &i.operands[0]) };
        let (variable, base, offset) = self.address(frame, i, place)?;
        let space = self.space_of(frame, said, variable);
        let elements = match data {
            syntax::Operand::Vector(elements) => &elements[..],
            single => std::slice::from_ref(single),
        };
        if elements.len() != count as usize {
            return self.error(i, format!("{count} registers are wanted"));
        }
        let mut registers = Vec::new();
        for element in elements {
            let register = if loads {
                self.target(frame, i, element)?
            } else {
                self.source(frame, i, element, Type::Bits(32))?
            };
            self.expect(i, register, Class::Word)?;
            registers.push(register);
        }
        if loads {
            self.emit(
                frame,
                i,
                Op::LoadMatrix { count, transposed, offset, space },
                registers,
                vec![base],
            );
        } else {
            let mut inputs = vec![base];
            inputs.extend(registers);
            self.emit(
                frame,
                i,
                Op::StoreMatrix { count, transposed, offset, space },
                vec![],
                inputs,
            );
        }
        Ok(true)
    }
}
