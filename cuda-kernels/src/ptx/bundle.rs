//! Kernels that share a launch.
//!
//! The blocks of the launch are divided among the parts, in order. Parts whose kernels have one
//! [`Template`] are a [`Family`]: its code is in the bundle once. Parts of one kernel are
//! neighbours; they are a [`Class`].
//!
//! - **The class of a block** is found by comparisons of the block's number with constants, which
//!   form a balanced tree.
//! - **The part of a block** within its class is the quotient of the block's number in the class
//!   and the number of blocks of a part, a constant. The remainder is the number of the block in
//!   its part. The code reads it from [`Special::Block`] instead of [`Special::CtaidX`].
//! - **Addresses** are one parameter, an array. It has for each family the addresses that all parts
//!   share, followed by those of each part, in the order of the parts.
//! - **Bounds** that differ among the classes of a family are in registers, which the code of the
//!   class sets.
//!
//! A family has a scope of its own, so registers, labels and arrays keep their names. Threads
//! beyond those of its kernel do nothing.

use super::instruction::{Inst, Line, Statement};
use super::kernel::{Kernel, declare, head, lines};
use super::template::{Template, bound};
use super::types::{Operand, Space, Special, Type};
use std::fmt;

/// Kernels that share a launch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bundle {
    /// Its name.
    pub name: String,
    /// Its families, in the order of their blocks. No kernel has dynamic shared memory.
    pub families: Vec<Family>,
}

/// Parts of one code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Family {
    /// The code.
    pub template: Template,
    /// Its classes, in the order of their blocks.
    pub classes: Vec<Class>,
    /// For each parameter of a part, whether all parts share the argument.
    pub shared: Vec<bool>,
}

/// Parts of one kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Class {
    /// The name of the kernel, for remarks.
    pub name: String,
    /// How many parts there are.
    pub parts: u32,
    /// Blocks of each.
    pub blocks: u32,
    /// The bounds of the kernel.
    pub bounds: Vec<i64>,
}

impl Family {
    fn parts(&self) -> u32 {
        self.classes.iter().map(|class| class.parts).sum()
    }

    /// Number of the parameters whose argument differs among parts.
    fn own(&self) -> usize {
        self.shared.iter().filter(|shared| !**shared).count()
    }

    /// The number of its addresses.
    fn addresses(&self) -> usize {
        self.shared.len() - self.own() + self.own() * self.parts() as usize
    }

    /// Whether classes differ in a bound.
    fn differs(&self, number: usize) -> bool {
        self.classes.iter().any(|class| class.bounds[number] != self.classes[0].bounds[number])
    }
}

/// A class, and where it begins.
struct Leaf<'a> {
    family: usize,
    class: &'a Class,
    /// Its first block.
    first: u32,
    /// The bytes before the addresses of its first part.
    at: usize,
}

/// Bytes of an address.
const WORD: usize = 8;
/// The parameter.
const ADDRESSES: &str = "addresses";
/// The register that holds the address of the addresses of the block's part.
const PART: &str = "%part";

impl Bundle {
    /// Whether a kernel can be a part whose blocks have `threads` threads. With fewer of its own,
    /// it has no barrier, since the others would not arrive there.
    pub fn takes(kernel: &Kernel, threads: u32) -> bool {
        let is_barrier =
            |line: &Line| matches!(line, Line::Statement(Statement { inst: Inst::Barrier, .. }));
        let waits = || kernel.code.lines().iter().any(is_barrier);
        !kernel.dynamic_shared
            && kernel.parameters.iter().all(|p| p.ty == Type::U64)
            && kernel.threads <= threads
            && (kernel.threads == threads || !waits())
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.kernels().map(|kernel| kernel.threads).max().unwrap_or(1)
    }

    /// Bytes of shared memory of a block.
    pub fn static_shared(&self) -> u32 {
        self.kernels().map(Kernel::static_shared).sum()
    }

    /// The code of each family.
    pub(super) fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.families.iter().map(|family| &family.template.kernel)
    }

    fn classes(&self) -> impl Iterator<Item = &Class> {
        self.families.iter().flat_map(|family| &family.classes)
    }

    fn leaves(&self) -> Vec<Leaf<'_>> {
        let (mut all, mut first, mut at) = (Vec::new(), 0, 0);
        for (number, family) in self.families.iter().enumerate() {
            at += WORD * (family.shared.len() - family.own());
            for class in &family.classes {
                all.push(Leaf { family: number, class, first, at });
                first += class.parts * class.blocks;
                at += WORD * family.own() * class.parts as usize;
            }
        }
        all
    }

    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, overlaps: bool) -> fmt::Result {
        let names: Vec<String> = self.classes().map(Class::to_string).collect();
        let bounds = || self.kernels().map(|kernel| kernel.resident);
        let resident = if bounds().any(|r| r == 0) { 0 } else { bounds().min().unwrap_or(0) };
        let remark = format!("A launch of {}.", names.join(", "));
        let bytes = WORD * self.families.iter().map(Family::addresses).sum::<usize>();
        let parameter = format!(".param .align {WORD} .b8 {ADDRESSES}[{bytes}]");
        head(f, &remark, &self.name, &parameter, self.threads(), resident)?;
        let block = Special::Block.name();
        writeln!(f, "    .reg .b32 {block}, %thread, %number, %before;")?;
        writeln!(f, "    .reg .b64 {PART};\n    .reg .pred %other;")?;
        for (number, family) in self.families.iter().enumerate() {
            for (n, ty) in
                family.template.types.iter().enumerate().filter(|(n, _)| family.differs(*n))
            {
                writeln!(f, "    .reg {} {};", ty.bits().name(), bound_of(number, n))?;
            }
        }
        if overlaps && self.kernels().all(|kernel| kernel.early) {
            writeln!(f, "    {}", Kernel::ORDER)?;
        }
        writeln!(f, "    mov.u32 {block}, {};", Special::CtaidX.name())?;
        writeln!(f, "    mov.u32 %thread, {};", Special::TidX.name())?;
        self.choose(f, &self.leaves(), 0)?;
        for (number, family) in self.families.iter().enumerate() {
            if family.classes.len() > 1 {
                writeln!(f, "$F{number}:")?;
                self.body(f, number)?;
            }
        }
        writeln!(f, "}}")
    }

    /// Code that finds the class of a block among some, the first of which has this number.
    fn choose(&self, f: &mut fmt::Formatter<'_>, all: &[Leaf<'_>], number: usize) -> fmt::Result {
        if let [leaf] = all {
            return self.enter(f, leaf);
        }
        let (left, right) = all.split_at(all.len().div_ceil(2));
        let (middle, block) = (number + left.len(), Special::Block.name());
        writeln!(f, "    setp.ge.u32 %other, {block}, {};", right[0].first)?;
        writeln!(f, "    @%other bra $C{middle};")?;
        self.choose(f, left, number)?;
        writeln!(f, "$C{middle}:")?;
        self.choose(f, right, middle)
    }

    /// Code that sets the registers of the class and the part, and goes on with the family's code.
    fn enter(&self, f: &mut fmt::Formatter<'_>, leaf: &Leaf<'_>) -> fmt::Result {
        let Leaf { family: number, class, first, at } = leaf;
        let (family, block) = (&self.families[*number], Special::Block.name());
        if *first > 0 {
            writeln!(f, "    sub.u32 {block}, {block}, {first};")?;
        }
        if family.own() > 0 {
            writeln!(f, "    mov.u64 {PART}, {ADDRESSES};")?;
            if *at > 0 {
                writeln!(f, "    add.u64 {PART}, {PART}, {at};")?;
            }
        }
        if class.parts > 1 {
            writeln!(f, "    div.u32 %number, {block}, {};", class.blocks)?;
            writeln!(f, "    mul.lo.u32 %before, %number, {};", class.blocks)?;
            writeln!(f, "    sub.u32 {block}, {block}, %before;")?;
            if family.own() > 0 {
                let bytes = WORD * family.own();
                writeln!(f, "    mad.wide.u32 {PART}, %number, {bytes}, {PART};")?;
            }
        }
        for (n, value) in class.bounds.iter().enumerate().filter(|(n, _)| family.differs(*n)) {
            let ty = family.template.types[n].bits().name();
            writeln!(f, "    mov{ty} {}, {value};", bound_of(*number, n))?;
        }
        match family.classes.len() {
            1 => self.body(f, *number),
            _ => writeln!(f, "    bra $F{number};"),
        }
    }

    /// The code of a family.
    fn body(&self, f: &mut fmt::Formatter<'_>, number: usize) -> fmt::Result {
        let family = &self.families[number];
        let kernel = &family.template.kernel;
        if kernel.threads < self.threads() {
            writeln!(f, "    setp.ge.u32 %other, %thread, {};", kernel.threads)?;
            writeln!(f, "    @%other ret;")?;
        }
        writeln!(f, "    {{")?;
        kernel.arrays(f)?;
        declare(f, &kernel.code)?;
        let code: Vec<Line> =
            kernel.code.lines().iter().map(|line| self.of_part(number, line)).collect();
        lines(f, &code)?;
        writeln!(f, "    }}\n    ret;")
    }

    /// A line of a family's code, with the addresses, the bounds and the number of the block of its
    /// part.
    fn of_part(&self, family: usize, line: &Line) -> Line {
        let before = self.families[..family].iter().map(Family::addresses).sum::<usize>();
        let (number, family) = (family, &self.families[family]);
        let mut line = line.clone();
        let Line::Statement(Statement { inst, .. }) = &mut line else { return line };
        match inst {
            Inst::Load { space: Space::Param, base, offset, .. } => {
                let parameters = &family.template.kernel.parameters;
                let Operand::Symbol(name) = &*base else {
                    unreachable!("kernels read parameters by their names")
                };
                let parameter = parameters.iter().position(|p| p.name == *name);
                let parameter = parameter.expect("a kernel reads its own parameters");
                let is_shared = family.shared[parameter];
                let like = family.shared[..parameter].iter().filter(|s| **s == is_shared).count();
                let (list, first) = if is_shared { (ADDRESSES, before) } else { (PART, 0) };
                *base = Operand::Symbol(list.into());
                *offset += (WORD * (first + like)) as i64;
            }
            Inst::Unary(.., operand @ Operand::Special(Special::CtaidX)) => {
                *operand = Operand::Special(Special::Block);
            }
            Inst::Compare(.., limit @ Operand::Symbol(_)) => {
                let mut bounds = 0..family.template.types.len();
                if let Some(n) = bounds.find(|n| *limit == Operand::Symbol(bound(*n))) {
                    *limit = match family.differs(n) {
                        true => Operand::Symbol(bound_of(number, n)),
                        false => Operand::Int(family.classes[0].bounds[n]),
                    };
                }
            }
            _ => {}
        }
        line
    }
}

/// The register of a family's bound.
fn bound_of(family: usize, number: usize) -> String {
    format!("{}_{family}", bound(number))
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts {
            1 => f.write_str(&self.name),
            parts => write!(f, "{parts} {}", self.name),
        }
    }
}
