//! N1 to N13 and N20 to N22: names, sizes, numbering, scopes, dtypes and shapes. Local rules, each
//! checked in one place.

use super::{
    Failure, MAX_DIVISIONS, MAX_LANES, MAX_RANK, MAX_ROW_BYTES, MAX_TERMS, TOTAL_LANES, failure,
};
use crate::diagnostic::{bail, ensure};
use crate::dtype::DType;
use crate::id::Id;
use crate::nest::parse::Part;
use crate::nest::{
    Access, Affine, AxisId, Buffer, BufferRole, Combine, Guard, Instr, Nest, Phase, Reg, Term,
    Total, Tree,
};
use crate::pitch::memory_extents;
use crate::text::{is_name, is_sigil_name};
use std::collections::BTreeSet;

type Result<T = ()> = std::result::Result<T, Failure>;

pub(super) fn check(nest: &Nest) -> Result {
    buffers(nest)?;
    registers(nest)?;
    axes(nest)?;
    let mut checker = Checker { nest, defined: 0, row: vec![false; nest.registers.len()], body: 0 };
    for (p, phase) in nest.phases.iter().enumerate() {
        checker.phase(p, phase)?;
    }
    if checker.defined != nest.registers.len() {
        let wrong = format!(
            "{} registers have a dtype, {} are defined",
            nest.registers.len(),
            checker.defined
        );
        return Err(failure(Part::Nest, 3, wrong).help("call `renumber`"));
    }
    Ok(())
}

fn buffers(nest: &Nest) -> Result {
    ensure!(is_sigil_name(&nest.name), Part::Nest, 1, "the name of the nest is no name");
    let mut names = BTreeSet::new();
    let mut row = false;
    let mut row_bytes = 0usize;
    for (id, buffer) in nest.buffers.iter() {
        let part = Part::Buffer(id);
        ensure!(is_sigil_name(&buffer.name), part, 1, "the name of the buffer is no name");
        ensure!(names.insert(&buffer.name), part, 1, "two buffers have this name");
        ensure!(buffer.shape.len() <= MAX_RANK, part, 2, "more than {MAX_RANK} dimensions");
        ensure!(
            !buffer.dtype.is_float8(),
            part,
            5,
            "a nest has no {}: its elements are u8, their bits",
            buffer.dtype
        );
        let extents = memory_extents(&buffer.shape, buffer.pitch);
        let Some(bytes) = bounded_product(buffer.dtype.size(), extents) else {
            bail!(part, 2, "the buffer is beyond 2^63 bytes");
        };
        pitch(part, buffer)?;
        ensure!(
            !row || buffer.role == BufferRole::Row, part, 3,
            "a parameter comes after a row storage";
            help "call `renumber`"
        );
        row = buffer.role == BufferRole::Row;
        if row {
            // Both are below 2^63, so the sum fits 64 bits.
            row_bytes += bytes;
            if row_bytes > MAX_ROW_BYTES {
                let wrong =
                    format!("the row storages up to this one take {row_bytes} bytes together");
                return Err(failure(part, 20, wrong)
                    .help(format!("each thread keeps them all: at most {MAX_ROW_BYTES} bytes")));
            }
        }
    }
    Ok(())
}

/// N5 for registers, which constants define too.
fn registers(nest: &Nest) -> Result {
    match nest.registers.iter().find(|(_, dtype)| dtype.is_float8()) {
        Some((reg, dtype)) => {
            Err(failure(Part::Nest, 5, format!("{reg} is {dtype}: a nest has its bits, u8")))
        }
        None => Ok(()),
    }
}

/// N21.
fn pitch(part: Part, buffer: &Buffer) -> Result {
    let Some(pitch) = buffer.pitch else { return Ok(()) };
    ensure!(buffer.role != BufferRole::Row, part, 21, "row storage has no pitch");
    match buffer.shape.as_slice() {
        [_, .., row] if pitch > *row => Ok(()),
        [_, .., row] => {
            let wrong =
                format!("a pitch of {pitch} leaves no padding after rows of {row} elements");
            Err(failure(part, 21, wrong).help("a dense buffer is written without a pitch"))
        }
        _ => Err(failure(part, 21, "a buffer of fewer than two dimensions has no pitch")),
    }
}

/// The product with empty extents counted as 1, if it is below 2^63.
fn bounded_product(start: usize, extents: impl Iterator<Item = usize>) -> Option<usize> {
    let mut extents = extents;
    extents.try_fold(start, |n, e| n.checked_mul(e.max(1)).filter(|n| i64::try_from(*n).is_ok()))
}

fn axes(nest: &Nest) -> Result {
    let mut next = 0;
    let mut group = |part: Part, ids: &[AxisId], outer: &[AxisId]| -> Result {
        for id in ids {
            if id.index() != next || nest.axes.get(*id).is_none() {
                let wrong = format!("axis {id} stands where axis a{next} belongs");
                return Err(failure(part, 3, wrong).help("call `renumber`"));
            }
            next += 1;
        }
        ensure!(
            outer.len() + ids.len() <= MAX_RANK,
            part,
            2,
            "more than {MAX_RANK} axes are visible together"
        );
        let mut names = BTreeSet::new();
        for id in outer.iter().chain(ids) {
            let axis = &nest.axes[*id];
            if !is_name(&axis.name) || matches!(axis.name.as_str(), "floor_div" | "mod") {
                bail!(part, 1, "axis {id} has no name of the text");
            }
            ensure!(names.insert(&axis.name), part, 1, "two axes are named `{}`", axis.name);
        }
        let extents = outer.iter().chain(ids).map(|a| nest.axes[*a].extent);
        if bounded_product(1, extents).is_none() {
            bail!(part, 2, "the loops have 2^63 iterations or more");
        }
        Ok(())
    };
    group(Part::Parallel, &nest.parallel, &[])?;
    for (p, phase) in nest.phases.iter().enumerate() {
        group(Part::Phase(p), &phase.axes, &nest.parallel)?;
    }
    if next != nest.axes.len() {
        let wrong = format!("{} axes belong to no loop", nest.axes.len() - next);
        return Err(failure(Part::Nest, 3, wrong).help("call `renumber`"));
    }
    Ok(())
}

/// N12.
fn check_tree(part: Part, tree: Tree) -> Result {
    ensure!(
        tree.lanes.is_power_of_two() && tree.lanes <= MAX_LANES,
        part,
        12,
        "{} lanes are no power of two up to {MAX_LANES}",
        tree.lanes
    );
    if !tree.block.is_multiple_of(tree.lanes) {
        let wrong = format!("a block of {} is no multiple of {} lanes", tree.block, tree.lanes);
        return Err(failure(part, 12, wrong));
    }
    Ok(())
}

struct Checker<'a> {
    nest: &'a Nest,
    /// Number of defined registers.
    defined: usize,
    /// Whether each of them belongs to the row, as of the current phase.
    row: Vec<bool>,
    /// Registers from here on belong to the current body.
    body: usize,
}

impl Checker<'_> {
    fn phase(&mut self, p: usize, phase: &Phase) -> Result {
        self.body = self.defined;
        for (i, instr) in phase.body.iter().enumerate() {
            let part = Part::Instr(p, i);
            self.instr(part, phase, instr)?;
            self.define(part, instr.results())?;
        }
        let end = self.defined;
        for (i, reduction) in phase.reductions.iter().enumerate() {
            let part = Part::Reduction(p, i);
            self.tuple(part, &reduction.values, &reduction.results, &reduction.combine)?;
            check_tree(part, reduction.tree)?;
        }
        // Defined after all are checked: reductions do not read each other's results.
        for (i, reduction) in phase.reductions.iter().enumerate() {
            self.define(Part::Reduction(p, i), &reduction.results)?;
        }
        let first = if phase.axes.is_empty() { self.body } else { end };
        self.row[first..self.defined].fill(true);
        self.prefixes(p, phase)
    }

    fn prefixes(&self, p: usize, phase: &Phase) -> Result {
        let mut direction = None;
        for (i, instr) in phase.body.iter().enumerate() {
            let Instr::Prefix(prefix) = instr else { continue };
            let part = Part::Instr(p, i);
            ensure!(!phase.axes.is_empty(), part, 13, "a prefix in a phase without inner axes");
            if *direction.get_or_insert(prefix.reverse) != prefix.reverse {
                bail!(part, 13, "prefixes of one phase run in two directions";
                    help "use two phases and a row storage");
            }
            if prefix.reverse && !phase.reductions.is_empty() {
                bail!(part, 13, "a reverse prefix beside reductions";
                    help "use two phases and a row storage");
            }
        }
        Ok(())
    }

    fn define(&mut self, part: Part, results: &[Reg]) -> Result {
        for result in results {
            if result.index() != self.defined || self.nest.registers.get(*result).is_none() {
                let wrong = format!("{result} is defined where %{} belongs", self.defined);
                return Err(failure(part, 3, wrong).help("call `renumber`"));
            }
            self.defined += 1;
        }
        Ok(())
    }

    /// The dtype of a register that is read at this point.
    fn read(&self, part: Part, reg: Reg) -> Result<DType> {
        ensure!(reg.index() < self.defined, part, 4, "{reg} is read before it is defined");
        ensure!(
            reg.index() >= self.body || self.row[reg.index()], part, 4,
            "{reg} belongs to the body of an earlier phase";
            help "only reductions, and phases without inner axes, leave registers to the row"
        );
        Ok(self.nest.registers[reg])
    }

    fn instr(&self, part: Part, phase: &Phase, instr: &Instr) -> Result {
        // The caller defines the results right after, and checks that they are in range.
        let dtype = |reg: Reg| self.nest.registers.get(reg).copied().unwrap_or(DType::Bool);
        match instr {
            Instr::Scalar { result, op, operands } => {
                let dtypes =
                    operands.iter().map(|r| self.read(part, *r)).collect::<Result<Vec<_>>>()?;
                op.check(&dtypes, dtype(*result)).map_err(|e| failure(part, 5, e))
            }
            Instr::Const { result, value } => {
                expect(part, "the constant", value.dtype(), "the register", dtype(*result))
            }
            Instr::Index { result, value } => {
                ensure!(
                    dtype(*result).is_integer(),
                    part,
                    5,
                    "`index` results in an integer, not {}",
                    dtype(*result)
                );
                self.expressions(part, phase, std::iter::once(value))
            }
            Instr::Test { result, guards } => {
                self.guards(part, guards)?;
                expect(part, "a test", DType::Bool, "the register", dtype(*result))?;
                self.expressions(part, phase, guards.iter().map(|g| &g.index))
            }
            Instr::Load { result, access, fill } => {
                let buffer = self.access(part, phase, access)?;
                expect(part, "the buffer", buffer.dtype, "the register", dtype(*result))?;
                if access.guards.is_empty() == fill.is_some() {
                    let wrong = if fill.is_some() {
                        "a load with a fill has no guards"
                    } else {
                        "a load with guards has no fill"
                    };
                    return Err(failure(part, 8, wrong));
                }
                if let Some(fill) = fill {
                    expect(part, "the fill", self.read(part, *fill)?, "the buffer", buffer.dtype)?;
                }
                ensure!(
                    buffer.role != BufferRole::Out,
                    part,
                    9,
                    "`%{}` is `out` and cannot be read",
                    buffer.name
                );
                ensure!(
                    !access.clamp || !buffer.shape.contains(&0),
                    part,
                    10,
                    "no index can be clamped into {:?}",
                    buffer.shape
                );
                Ok(())
            }
            Instr::Store { access, value, total } => {
                if let Some(total) = total {
                    self.total(part, phase, access, total)?;
                    self.tuple(part, &[*value], &[*value], &total.combine)?;
                }
                let buffer = self.access(part, phase, access)?;
                expect(part, "the value", self.read(part, *value)?, "the buffer", buffer.dtype)?;
                ensure!(
                    buffer.role != BufferRole::In,
                    part,
                    9,
                    "`%{}` is `in` and cannot be written",
                    buffer.name
                );
                ensure!(!access.clamp, part, 10, "a store clamps");
                Ok(())
            }
            Instr::Prefix(prefix) => {
                self.tuple(part, &prefix.values, &prefix.results, &prefix.combine)
            }
        }
    }

    /// N22.
    fn total(&self, part: Part, phase: &Phase, access: &Access, total: &Total) -> Result {
        check_tree(part, total.tree)?;
        ensure!(total.combine.identity.len() == 1, part, 22, "a total of several values");
        ensure!(!phase.axes.is_empty(), part, 22, "a total in a phase without inner axes");
        let band = self.nest.parallel.last().filter(|axis| self.nest.axes[**axis].extent > 0);
        let Some(band) = band else {
            bail!(part, 22, "a total of no rows";
                help "the last parallel axis is that of the rows");
        };
        let lanes = total.tree.lanes;
        ensure!(lanes <= TOTAL_LANES, part, 22, "a total in more than {TOTAL_LANES} lanes");
        if let Some(others) = self.total_lanes()
            && others != lanes
        {
            bail!(part, 22, "a total in {lanes} lanes beside one in {others}");
        }
        let block = total.tree.block as usize;
        ensure!(
            block == 0 || block >= self.nest.axes[*band].extent,
            part,
            22,
            "the tree of a total has several blocks"
        );
        ensure!(access.guards.is_empty(), part, 22, "a total is stored under guards");
        let mut found = false;
        for index in &access.indices {
            index.visit_terms(&mut |term| match term {
                Term::Axis(axis) => found |= axis == band,
                Term::Reg(_) => found = true,
                Term::FloorDiv(..) | Term::Mod(..) => {}
            });
        }
        ensure!(
            !found, part, 22, "a total is stored at an index that differs from row to row";
            help "its indices have neither registers nor the last parallel axis"
        );
        let role = self.nest.buffers.get(access.buffer).map(|buffer| buffer.role);
        ensure!(
            role.is_none_or(|role| role == BufferRole::Out),
            part,
            22,
            "a total is stored to a buffer that is not `out`"
        );
        Ok(())
    }

    /// Lanes of the first total of the nest.
    fn total_lanes(&self) -> Option<u32> {
        self.nest.phases.iter().flat_map(|phase| &phase.body).find_map(|instr| match instr {
            Instr::Store { total: Some(total), .. } => Some(total.tree.lanes),
            _ => None,
        })
    }

    fn guards(&self, part: Part, guards: &[Guard]) -> Result {
        ensure!(guards.len() <= MAX_RANK, part, 2, "more than {MAX_RANK} guards");
        Ok(())
    }

    fn access(&self, part: Part, phase: &Phase, access: &Access) -> Result<&Buffer> {
        let Some(buffer) = self.nest.buffers.get(access.buffer) else {
            bail!(part, 3, "buffer {} does not exist", access.buffer);
        };
        if access.indices.len() != buffer.shape.len() {
            let (indices, rank) = (access.indices.len(), buffer.shape.len());
            bail!(part, 7, "{indices} indices for {rank} dimensions");
        }
        self.guards(part, &access.guards)?;
        self.expressions(part, phase, access.expressions())?;
        Ok(buffer)
    }

    fn expressions<'e>(
        &self,
        part: Part,
        phase: &Phase,
        of: impl Iterator<Item = &'e Affine>,
    ) -> Result {
        let mut terms = 0;
        for expression in of {
            self.affine(part, phase, expression, 0, &mut terms)?;
        }
        Ok(())
    }

    fn affine(
        &self,
        part: Part,
        phase: &Phase,
        e: &Affine,
        depth: usize,
        count: &mut usize,
    ) -> Result {
        *count += e.terms.len();
        if *count > MAX_TERMS || depth > MAX_DIVISIONS {
            let wrong = format!(
                "index expressions beyond {MAX_TERMS} terms or {MAX_DIVISIONS} levels of division"
            );
            return Err(failure(part, 2, wrong));
        }
        let sorted = e.terms.windows(2).all(|pair| pair[0].0 < pair[1].0);
        ensure!(
            sorted && e.terms.iter().all(|(_, c)| *c != 0),
            part,
            6,
            "the terms of an index expression are not sorted, unique and present"
        );
        for (term, _) in &e.terms {
            match term {
                Term::Axis(axis)
                    if self.nest.parallel.contains(axis) || phase.axes.contains(axis) => {}
                Term::Axis(axis) => {
                    bail!(part, 6, "axis {axis} is not visible here");
                }
                Term::Reg(reg) => {
                    let dtype = self.read(part, *reg)?;
                    ensure!(
                        matches!(dtype, DType::I32 | DType::I64), part, 6,
                        "an index from {reg}, which is {dtype}";
                        help "indices from data are i32 or i64"
                    );
                }
                Term::FloorDiv(inner, divisor) | Term::Mod(inner, divisor) => {
                    ensure!(*divisor >= 1, part, 6, "divisor {divisor} is not at least 1");
                    self.affine(part, phase, inner, depth + 1, count)?;
                    let normal = match term {
                        Term::FloorDiv(..) => inner.floor_div(*divisor),
                        _ => inner.modulo(*divisor),
                    };
                    if normal.constant != 0 || normal.terms.as_slice() != [(term.clone(), 1)] {
                        bail!(part, 6, "a division is not in normal form";
                            help "make it by `Affine::floor_div` or `modulo`");
                    }
                }
            }
        }
        Ok(())
    }

    fn tuple(&self, part: Part, values: &[Reg], results: &[Reg], combine: &Combine) -> Result {
        check_combine(part, combine)?;
        let dtypes = combine.dtypes();
        if values.len() != dtypes.len() || results.len() != dtypes.len() {
            let wrong = format!(
                "the combiner takes {} values, here are {} values and {} results",
                dtypes.len(),
                values.len(),
                results.len()
            );
            return Err(failure(part, 11, wrong));
        }
        for ((value, result), dtype) in values.iter().zip(results).zip(dtypes) {
            let value = self.read(part, *value)?;
            let result = self.nest.registers.get(*result).copied();
            if value != dtype || result.is_some_and(|r| r != dtype) {
                let result = result.unwrap_or(dtype);
                let wrong = format!(
                    "the combiner takes {dtype}; the value is {value} and the result {result}"
                );
                return Err(failure(part, 11, wrong));
            }
        }
        Ok(())
    }
}

fn expect(part: Part, what: &str, is: DType, other: &str, wanted: DType) -> Result {
    if is == wanted {
        Ok(())
    } else {
        Err(failure(part, 5, format!("{what} is {is}, {other} {wanted}")))
    }
}

fn check_combine(part: Part, combine: &Combine) -> Result {
    let operands = combine.dtypes();
    ensure!(
        !operands.is_empty() && operands.len() <= MAX_RANK,
        part,
        11,
        "a combiner of {} elements",
        operands.len()
    );
    let declared = combine.registers.as_slice();
    let operand_count = 2 * operands.len();
    let agrees = declared.len() == operand_count + combine.body.len()
        && declared[..operand_count] == [&operands[..], &operands[..]].concat();
    ensure!(
        agrees,
        part,
        11,
        "the combiner's registers are not its operands, twice, and one an instruction"
    );
    let read = |reg: Reg, defined: usize| {
        ensure!(reg.index() < defined, part, 11, "{reg} is not defined");
        Ok(combine.registers[reg])
    };
    for (n, instr) in combine.body.iter().enumerate() {
        let defined = operand_count + n;
        let dtype = declared[defined];
        let [result] = instr.results() else {
            bail!(part, 11, "the combiner has an instruction with several results");
        };
        let belongs = result.index() == defined;
        ensure!(belongs, part, 11, "the combiner defines {result} where %{defined} belongs");
        match instr {
            Instr::Scalar { op, operands, .. } => {
                let dtypes =
                    operands.iter().map(|r| read(*r, defined)).collect::<Result<Vec<_>>>()?;
                op.check(&dtypes, dtype).map_err(|e| failure(part, 11, e))?;
            }
            Instr::Const { value, .. } if value.dtype() == dtype => {}
            _ => bail!(
                part,
                11,
                "the combiner has more than scalar instructions and constants of their dtype"
            ),
        }
    }
    let (returned, wanted) = (combine.results.len(), operands.len());
    ensure!(returned == wanted, part, 11, "the combiner returns {returned} of {wanted} elements");
    for (result, dtype) in combine.results.iter().zip(&operands) {
        let found = read(*result, declared.len())?;
        ensure!(found == *dtype, part, 11, "the combiner returns {found} for {dtype}");
    }
    Ok(())
}
