//! An assembler for the few x86-64 instructions of native nests.
//!
//! Vector instructions are encoded with EVEX, instructions on masks with VEX, and those of the
//! loop around them with legacy prefixes. Each method appends one instruction. Constants follow
//! the code, addressed relative to the instruction pointer. Their addresses are known only at the
//! end, so [`Assembler::finish`] patches them in.

/// A general register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub(super) enum Gpr {
    Rax,
    Rcx,
    Rdx,
    Rbx,
    Rsp,
    Rbp,
    Rsi,
    Rdi,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
}

/// The vector length of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Width {
    /// 128 bits.
    Xmm,
    /// 256 bits.
    Ymm,
    /// 512 bits.
    Zmm,
}

/// The opcode of an instruction: prefix (0 none, 1 `66`, 2 `F3`, 3 `F2`), map (1 `0F`, 2 `0F38`,
/// 3 `0F3A`), W, and the byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Code {
    pub prefix: u8,
    pub map: u8,
    pub wide: bool,
    pub byte: u8,
}

impl Code {
    pub const fn new(prefix: u8, map: u8, wide: bool, byte: u8) -> Code {
        Code { prefix, map, wide, byte }
    }
}

/// An address in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Address {
    /// `base + index · 2^scale + displacement`.
    Based { base: Gpr, index: Option<(Gpr, u8)>, displacement: i32 },
    /// An offset among the constants.
    Constant(usize),
}

/// The operand that may be in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// A register.
    Register(u8),
    /// Memory, with its bytes (the unit of compressed displacements).
    Memory(Address, i32),
    /// An element of this many bytes, broadcast to all lanes.
    Broadcast(Address, i32),
}

/// An EVEX instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vector {
    pub code: Code,
    pub width: Width,
    pub reg: u8,
    /// The operand between the two others; 0 if there is none.
    pub second: u8,
    pub place: Place,
    /// The mask, 0 for none.
    pub mask: u8,
    /// Whether lanes outside the mask become 0, rather than keep their value.
    pub zeroing: bool,
    pub immediate: Option<u8>,
}

impl Vector {
    /// An instruction of two operands without a mask.
    pub fn new(code: Code, width: Width, reg: u8, place: Place) -> Vector {
        Vector { code, width, reg, second: 0, place, mask: 0, zeroing: false, immediate: None }
    }
}

/// A target of jumps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label(usize);

/// The condition of a jump, on two compared registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Condition {
    /// The first is below the second, unsigned.
    Below = 2,
    /// The negation.
    NotBelow = 3,
}

/// The code so far.
#[derive(Default, Debug)]
pub(super) struct Assembler {
    code: Vec<u8>,
    constants: Vec<u8>,
    /// For each use of a constant: the offset of the displacement, the end of its instruction,
    /// and the constant's offset.
    patches: Vec<(usize, usize, usize)>,
    /// For each jump: the offset of its displacement, and the label.
    jumps: Vec<(usize, usize)>,
    labels: Vec<usize>,
}

const NOWHERE: usize = usize::MAX;

impl Assembler {
    /// The address of a constant; equal constants share one.
    pub fn constant(&mut self, bits: u64, bytes: usize) -> Address {
        let wanted = &bits.to_le_bytes()[..bytes];
        let found = self.constants.chunks_exact(bytes).position(|chunk| chunk == wanted);
        let at = found.map_or_else(
            || {
                self.constants.resize(self.constants.len().next_multiple_of(bytes), 0);
                self.constants.extend_from_slice(wanted);
                self.constants.len() - bytes
            },
            |k| k * bytes,
        );
        Address::Constant(at)
    }

    /// A new label, not yet placed.
    pub fn label(&mut self) -> Label {
        self.labels.push(NOWHERE);
        Label(self.labels.len() - 1)
    }

    /// Places a label here.
    pub fn place(&mut self, label: Label) {
        self.labels[label.0] = self.code.len();
    }

    /// Pads the code to a multiple of 32 bytes with no-ops, which are executed.
    pub fn align(&mut self) {
        while !self.code.len().is_multiple_of(32) {
            match 32 - self.code.len() % 32 {
                1 => self.code.push(0x90),
                2 => self.code.extend([0x66, 0x90]),
                3..=7 => self.code.extend([0x0f, 0x1f, 0x00]),
                _ => self.code.extend([0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]),
            }
        }
    }

    /// The code, followed by the constants.
    pub fn finish(mut self) -> Vec<u8> {
        for (at, label) in &self.jumps {
            let target = self.labels[*label];
            assert!(target != NOWHERE, "every label that is jumped to has a place");
            let distance = target as i64 - (*at as i64 + 4);
            self.code[*at..*at + 4].copy_from_slice(&(distance as i32).to_le_bytes());
        }
        let start = self.code.len().next_multiple_of(64);
        self.code.resize(start, 0xcc);
        for (at, end, offset) in &self.patches {
            let distance = (start + offset) as i64 - *end as i64;
            self.code[*at..*at + 4].copy_from_slice(&(distance as i32).to_le_bytes());
        }
        self.code.extend(self.constants);
        self.code
    }

    /// A vector instruction.
    pub fn vector(&mut self, v: Vector) {
        let (index, base) = v.place.upper();
        let (broadcast, unit) = match v.place {
            Place::Register(_) => (false, 1),
            Place::Memory(_, unit) => (false, unit),
            Place::Broadcast(_, unit) => (true, unit),
        };
        let not = |bit: u8| !bit & 1;
        let Code { prefix, map, wide, byte } = v.code;
        let length = match v.width {
            Width::Xmm => 0,
            Width::Ymm => 1,
            Width::Zmm => 2u8,
        };
        self.code.push(0x62);
        self.code.push(
            not(v.reg >> 3) << 7 | not(index) << 6 | not(base) << 5 | not(v.reg >> 4) << 4 | map,
        );
        self.code.push(u8::from(wide) << 7 | (!v.second & 15) << 3 | 4 | prefix);
        self.code.push(
            u8::from(v.zeroing) << 7
                | length << 5
                | u8::from(broadcast) << 4
                | not(v.second >> 4) << 3
                | v.mask,
        );
        self.code.push(byte);
        self.operands(v.reg, v.place, unit, v.immediate);
    }

    /// An instruction on masks: VEX, the two-byte form for map `0F` without W.
    pub fn mask(
        &mut self,
        code: Code,
        long: bool,
        reg: u8,
        second: u8,
        place: Place,
        immediate: Option<u8>,
    ) {
        let last = (!second & 15) << 3 | u8::from(long) << 2 | code.prefix;
        if code.map == 1 && !code.wide {
            self.code.extend([0xc5, 0x80 | last]);
        } else {
            self.code.extend([0xc4, 0xe0 | code.map, u8::from(code.wide) << 7 | last]);
        }
        self.code.push(code.byte);
        self.operands(reg, place, 1, immediate);
    }

    fn operands(&mut self, reg: u8, place: Place, unit: i32, immediate: Option<u8>) {
        let reg = (reg & 7) << 3;
        let mut patch = None;
        match place {
            Place::Register(r) => self.code.push(0xc0 | reg | (r & 7)),
            Place::Memory(Address::Constant(offset), _)
            | Place::Broadcast(Address::Constant(offset), _) => {
                self.code.push(reg | 5);
                patch = Some((self.code.len(), offset));
                self.code.extend([0; 4]);
            }
            Place::Memory(Address::Based { base, index, displacement }, _)
            | Place::Broadcast(Address::Based { base, index, displacement }, _) => {
                let base = base as u8 & 7;
                let short = displacement % unit == 0 && i8::try_from(displacement / unit).is_ok();
                let mode = match displacement {
                    0 if base != 5 => 0,
                    _ if short => 1,
                    _ => 2u8,
                };
                match index {
                    Some((index, scale)) => {
                        self.code.extend([
                            mode << 6 | reg | 4,
                            scale << 6 | (index as u8 & 7) << 3 | base,
                        ]);
                    }
                    None if base == 4 => self.code.extend([mode << 6 | reg | 4, 0x24]),
                    None => self.code.push(mode << 6 | reg | base),
                }
                match mode {
                    0 => {}
                    1 => self.code.push((displacement / unit) as i8 as u8),
                    _ => self.code.extend(displacement.to_le_bytes()),
                }
            }
        }
        self.code.extend(immediate);
        if let Some((at, offset)) = patch {
            self.patches.push((at, self.code.len(), offset));
        }
    }

    /// An instruction on general registers of 64 bits (`wide`) or 32.
    fn general(&mut self, wide: bool, bytes: &[u8], reg: u8, place: Place) {
        let (index, base) = place.upper();
        let rex = u8::from(wide) << 3 | (reg >> 3) << 2 | index << 1 | base;
        if rex != 0 {
            self.code.push(0x40 | rex);
        }
        self.code.extend(bytes);
        self.operands(reg, place, 1, None);
    }

    /// An instruction of one byte, which names a register.
    fn short(&mut self, byte: u8, register: Gpr) {
        if register as u8 >= 8 {
            self.code.push(0x41);
        }
        self.code.push(byte | (register as u8 & 7));
    }

    /// `to = from`
    pub fn copy(&mut self, to: Gpr, from: Gpr) {
        self.general(true, &[0x8b], to as u8, Place::Register(from as u8));
    }

    /// `to = 64 bits at the address`
    pub fn load(&mut self, to: Gpr, address: Address) {
        self.general(true, &[0x8b], to as u8, Place::Memory(address, 1));
    }

    /// `to = an element of so many bytes at the address`, zero- or sign-extended.
    pub fn load_element(&mut self, to: Gpr, address: Address, bytes: usize, signed: bool) {
        let place = Place::Memory(address, 1);
        match (bytes, signed) {
            (1, false) => self.general(false, &[0x0f, 0xb6], to as u8, place),
            (1, true) => self.general(false, &[0x0f, 0xbe], to as u8, place),
            (2, _) => self.general(false, &[0x0f, 0xb7], to as u8, place),
            (4, _) => self.general(false, &[0x8b], to as u8, place),
            _ => self.general(true, &[0x8b], to as u8, place),
        }
    }

    /// `64 bits at the address = from`
    pub fn store(&mut self, address: Address, from: Gpr) {
        self.general(true, &[0x89], from as u8, Place::Memory(address, 1));
    }

    /// `to = the address`
    pub fn address(&mut self, to: Gpr, address: Address) {
        self.general(true, &[0x8d], to as u8, Place::Memory(address, 1));
    }

    /// `to = value`, the upper 32 bits 0.
    pub fn set(&mut self, to: Gpr, value: u32) {
        self.short(0xb8, to);
        self.code.extend(value.to_le_bytes());
    }

    /// `to += value`
    pub fn add(&mut self, to: Gpr, value: i32) {
        self.general(true, &[0x81], 0, Place::Register(to as u8));
        self.code.extend(value.to_le_bytes());
    }

    /// `to += a number that is filled in later`; returns the offset of the number.
    pub fn reserve(&mut self, to: Gpr) -> usize {
        self.add(to, 0);
        self.code.len() - 4
    }

    /// Fills in a reserved number.
    pub fn fill(&mut self, at: usize, value: i32) {
        self.code[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// `to &= value`, sign-extended.
    pub fn and(&mut self, to: Gpr, value: i32) {
        self.general(true, &[0x81], 4, Place::Register(to as u8));
        self.code.extend(value.to_le_bytes());
    }

    /// `to -= other`
    pub fn subtract(&mut self, to: Gpr, other: Gpr) {
        self.general(true, &[0x2b], to as u8, Place::Register(other as u8));
    }

    /// `to = −to`
    pub fn negate(&mut self, to: Gpr) {
        self.general(true, &[0xf7], 3, Place::Register(to as u8));
    }

    /// `to <<= cl`
    pub fn shift_left(&mut self, to: Gpr) {
        self.general(true, &[0xd3], 4, Place::Register(to as u8));
    }

    /// Compares two registers.
    pub fn compare(&mut self, a: Gpr, b: Gpr) {
        self.general(true, &[0x3b], a as u8, Place::Register(b as u8));
    }

    /// Jumps to the label if the condition holds.
    pub fn jump(&mut self, condition: Condition, label: Label) {
        self.code.extend([0x0f, 0x80 | condition as u8]);
        self.jumps.push((self.code.len(), label.0));
        self.code.extend([0; 4]);
    }

    /// Pushes a register.
    pub fn push(&mut self, register: Gpr) {
        self.short(0x50, register);
    }

    /// Pops a register.
    pub fn pop(&mut self, register: Gpr) {
        self.short(0x58, register);
    }

    /// Returns, after `vzeroupper`.
    pub fn return_clean(&mut self) {
        self.code.extend([0xc5, 0xf8, 0x77, 0xc3]);
    }

    /// Store fence: orders the non-temporal stores.
    pub fn fence(&mut self) {
        self.code.extend([0x0f, 0xae, 0xf8]);
    }
}

impl Place {
    /// The numbers of the index and of the base without their lowest three bits; for a register,
    /// the index has its fifth bit.
    fn upper(self) -> (u8, u8) {
        match self {
            Place::Register(register) => (register >> 4, register >> 3),
            Place::Memory(Address::Based { base, index, .. }, _)
            | Place::Broadcast(Address::Based { base, index, .. }, _) => {
                (index.map_or(0, |(index, _)| index as u8 >> 3), base as u8 >> 3)
            }
            _ => (0, 0),
        }
    }
}
