//! The end of a sum: the scales, the addends in the dtype of the sum, the rounding, the store, and
//! the rows of the follower. Each step has the bits of the graph op that it stands for.

use super::super::draft::Draft;
use super::super::index::advance;
use super::super::number::{Number, Place};
use super::Product;
use crate::nest::{Elements, Follower, FollowerCode};
use crate::ptx::{Binary, Code, Reg, Space, Type};
use crate::scalar::{self, Functions};
use crate::stage::{Access, Memory, Slot};
use wengert_core::call::{Scale, Scales};
use wengert_core::nest::{BufferRole, ScalarOp};
use wengert_core::{DType, Result};

/// Destination of a kernel's sums.
pub(super) struct Destination<'p> {
    /// The result, or the parts that another stage adds up; none if only the follower's results
    /// are stored.
    out: Option<Reg>,
    scales: Option<Scaling>,
    bias: Option<Reg>,
    residual: Option<Reg>,
    finishes: bool,
    follower: Option<FollowerCode<'p>>,
    /// Elements of `out`.
    number: Number,
    /// Strides of `out`: parts, batch, rows.
    strides: [i64; 3],
    /// Vector width of stores: their columns begin at a multiple of it.
    pub vector: usize,
}

/// The scales of 8-bit floats.
struct Scaling {
    /// Addresses of the scales of lhs and of rhs.
    bases: [Reg; 2],
    scales: Scales,
    /// Rows of lhs.
    rows: usize,
    /// A row, and its scale.
    row: Option<(Reg, Reg)>,
}

impl Scaling {
    fn open(draft: &mut Draft, product: &Product) -> Option<Scaling> {
        let scales = product.scales?;
        let bases = [("lhs_scale", 2), ("rhs_scale", 3)]
            .map(|(name, argument)| draft.pointer(name, Slot::read(argument)));
        Some(Scaling { bases, scales, rows: product.m, row: None })
    }

    /// The scale of a row. A row beyond the last one has the last one's.
    fn of_row(&mut self, code: &mut Code, row: Reg) -> Reg {
        if let Some((known, scale)) = self.row
            && known == row
        {
            return scale;
        }
        let address = match self.scales.lhs {
            Scale::Whole => self.bases[0],
            Scale::Rows => {
                let inside = code.binary(Binary::Min, Type::S32, row, self.rows as i64 - 1);
                advance(code, self.bases[0], inside, 4)
            }
        };
        let scale = code.load(Space::Global, Type::F32, address, 0);
        self.row = Some((row, scale));
        scale
    }

    /// The scales of `count` neighbouring columns.
    fn of_columns(
        &self,
        code: &mut Code,
        column: Reg,
        count: usize,
        valid: Option<Reg>,
    ) -> Vec<Reg> {
        let number = Number(DType::F32);
        match self.scales.rhs {
            Scale::Whole => vec![code.load(Space::Global, Type::F32, self.bases[1], 0); count],
            Scale::Rows => {
                let address = advance(code, self.bases[1], column, 4);
                number.load(code, Space::Global, Place { address, offset: 0, valid }, count)
            }
        }
    }
}

/// What the elements of neighbouring columns have in common.
pub(super) struct Columns {
    bias: Vec<Reg>,
    scales: Vec<Reg>,
}

/// Neighbouring elements of a row of the result.
pub(super) struct Run {
    /// Number of the product, row and first column.
    pub at: [Reg; 3],
    /// Byte offset of the first one in [`Destination`]'s memory.
    pub offset: Reg,
    /// Predicate that holds if they exist; none if they always do.
    pub valid: Option<Reg>,
}

impl<'p> Destination<'p> {
    /// The pointers of lhs and rhs, and the destination of sums in `parts` parts: the result, if
    /// there is one part.
    pub fn open(
        draft: &mut Draft,
        product: &'p Product,
        parts: usize,
    ) -> ([Reg; 2], Destination<'p>) {
        let [lhs, rhs] = product.arguments.map(Slot::read);
        let pointers = [draft.pointer("lhs", lhs), draft.pointer("rhs", rhs)];
        let destination = match parts {
            1 => Destination::result(draft, product),
            _ => Destination::parts(draft, product, parts),
        };
        (pointers, destination)
    }

    /// The result.
    pub fn result(draft: &mut Draft, product: &'p Product) -> Destination<'p> {
        let scales = Scaling::open(draft, product);
        let bias = product.bias_argument().map(|n| draft.pointer("bias", Slot::read(n)));
        let residual = product.residual_argument();
        let in_place = residual.is_some() && residual == product.in_place;
        let written = if in_place { Access::ReadWrite } else { Access::Write };
        let out = product.follower.as_ref().is_none_or(|f| f.stores).then(|| {
            let memory = Memory::Argument(product.result_argument);
            draft.pointer("out", Slot { memory, access: written })
        });
        let residual = match (residual, out) {
            (Some(_), Some(out)) if in_place => Some(out),
            (Some(n), _) => Some(draft.pointer("residual", Slot::read(n))),
            (None, _) => None,
        };
        let follower = product.follower.as_ref().map(|f| follower(draft, product, f, written));
        let number = Number(product.result);
        let strides = [0, product.out.batch, product.out.row];
        let aligned = (product.alignment / number.size() as usize).max(1);
        let mut vector = number.vector().min(product.sums().vector()).min(aligned);
        while strides.iter().chain([&(product.n as i64)]).any(|n| n % vector as i64 != 0) {
            vector /= 2;
        }
        let finishes = true;
        Destination { out, scales, bias, residual, finishes, follower, number, strides, vector }
    }

    /// The parts of a sum, in the workspace: `[part, batch, m, n]`.
    fn parts(draft: &mut Draft, product: &Product, parts: usize) -> Destination<'p> {
        let number = product.sums();
        let out = Some(draft.pointer("parts", product.parts_slot(parts, Access::Write)));
        let strides = [product.batch * product.m * product.n, product.m * product.n, product.n];
        let mut vector = number.vector();
        while !product.n.is_multiple_of(vector) {
            vector /= 2;
        }
        let strides = strides.map(|s| s as i64);
        let (scales, bias, residual, follower, finishes) = (None, None, None, None, false);
        Destination { out, scales, bias, residual, finishes, follower, number, strides, vector }
    }

    /// Byte offset of the first row of a batch's product.
    pub fn start(&self, code: &mut Code, part: Reg, batch: Reg) -> Reg {
        let zero = code.mov(Type::U64, 0);
        let start = advance(code, zero, part, self.strides[0] * self.number.size());
        advance(code, start, batch, self.strides[1] * self.number.size())
    }

    /// Byte offset of a row.
    pub fn row(&self, code: &mut Code, start: Reg, row: Reg) -> Reg {
        advance(code, start, row, self.strides[2] * self.number.size())
    }

    /// Byte offset of a column of a row.
    pub fn column(&self, code: &mut Code, row: Reg, column: Reg) -> Reg {
        advance(code, row, column, self.number.size())
    }

    /// The bias and the scales of `count` neighbouring columns, from `column` on.
    pub fn columns(
        &self,
        code: &mut Code,
        column: Reg,
        count: usize,
        valid: Option<Reg>,
    ) -> Columns {
        let scales = self.scales.as_ref();
        let scales = scales.map_or(vec![], |s| s.of_columns(code, column, count, valid));
        Columns { bias: self.bias(code, column, count, valid), scales }
    }

    fn bias(&self, code: &mut Code, column: Reg, count: usize, valid: Option<Reg>) -> Vec<Reg> {
        let Some(bias) = self.bias else { return vec![] };
        let address = advance(code, bias, column, self.number.size());
        let raw = self.number.load(code, Space::Global, Place { address, offset: 0, valid }, count);
        raw.into_iter().map(|raw| self.number.widen(code, raw)).collect()
    }

    /// Stores neighbouring elements of a row, and the follower's results for them.
    ///
    /// Errors: an instruction of the follower has no code for GPUs.
    pub fn store(
        &mut self,
        code: &mut Code,
        functions: &mut Functions,
        run: Run,
        sums: &[Reg],
        columns: &Columns,
    ) -> Result<()> {
        let Run { at, offset, valid } = run;
        let place = |code: &mut Code, base: Reg| {
            let address = code.binary(Binary::Add, Type::S64, base, offset);
            Place { address, offset: 0, valid }
        };
        let out = self.out.map(|base| place(code, base));
        if !self.finishes {
            out.into_iter().for_each(|out| self.number.store(code, Space::Global, out, sums));
            return Ok(());
        }
        let residual = self.residual.map(|base| {
            let place = if self.out == Some(base) { out } else { None }
                .unwrap_or_else(|| place(code, base));
            self.number.load(code, Space::Global, place, sums.len())
        });
        let row_scale = self.scales.as_mut().map(|scales| scales.of_row(code, at[1]));
        let mut values = vec![];
        for (n, sum) in sums.iter().enumerate() {
            let residual = residual.as_ref().map(|raw| self.number.widen(code, raw[n]));
            let bias = columns.bias.get(n).copied();
            let order = if self.number.0.is_half() { [residual, bias] } else { [bias, residual] };
            let mut value = *sum;
            for scale in row_scale.into_iter().chain(columns.scales.get(n).copied()) {
                value = code.binary(Binary::Mul, Type::F32, value, scale);
            }
            for addend in order.into_iter().flatten() {
                value = self.number.widened().add(code, value, addend);
            }
            values.push(self.number.narrow(code, value));
        }
        if let Some(out) = out {
            self.number.store(code, Space::Global, out, &values);
        }
        let Some(follower) = &mut self.follower else { return Ok(()) };
        if matches!(self.number.0, DType::I8 | DType::U8) {
            // Sums have 32 bits, and the upper ones are not an extension of the lower ones.
            for value in &mut values {
                let from = [self.number.widened().0];
                let cut = scalar::emit(
                    code,
                    functions,
                    ScalarOp::Convert,
                    &from,
                    self.number.0,
                    &[*value],
                );
                *value = cut?;
            }
        }
        follower.rows(code, functions, at, valid, &values)
    }
}

/// The code of a product's follower. `written` is the access of the product's result, in whose
/// place the follower's may be.
fn follower<'p>(
    draft: &mut Draft,
    product: &Product,
    follower: &'p Follower,
    written: Access,
) -> FollowerCode<'p> {
    let mut bases = vec![];
    for (n, role) in follower.parameters() {
        let aliases = follower.in_place.iter().any(|(_, result)| *result == n);
        let access = match role {
            BufferRole::In => Access::Read,
            _ if aliases => Access::ReadWrite,
            _ => written,
        };
        let memory = Memory::Argument(follower.arguments[n]);
        bases.push(draft.pointer(&format!("follower{n}"), Slot { memory, access }));
    }
    let elements = Elements {
        extents: [product.batch, product.m, product.n],
        strides: [product.out.batch, product.out.row],
    };
    FollowerCode::new(follower, &bases, elements, product.alignment)
}
