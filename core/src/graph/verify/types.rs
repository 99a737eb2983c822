//! Invariant G6: the shapes of types, wherever one is made.

use crate::diagnostic::{Diagnostic, Result, bail, ensure};
use crate::dim::{Dim, MAX_FACTORS, MAX_TERMS};
use crate::dtype::DType;
use crate::text::is_name;
use crate::ty::TensorType;

/// Most axes of a type: enough for every use, and few enough that a quadratic rule over axes is
/// harmless.
pub const MAX_RANK: usize = 32;

/// Most bytes of one value, if its extents are numbers: larger than any memory, and far below the
/// overflow of 64 bits.
pub const MAX_BYTES: u64 = 1 << 48;

/// True if `name` may be a dimension variable: a name that is neither a dtype nor a word of
/// attributes.
pub fn is_variable(name: &str) -> bool {
    is_name(name)
        && !["true", "false", "inf", "nan"].contains(&name)
        && DType::ALL.iter().all(|dtype| dtype.name() != name)
}

/// G6 for a type.
pub(crate) fn well_formed(ty: &TensorType) -> Result<()> {
    ensure!(ty.rank() <= MAX_RANK, "G6: {} axes; a type has at most {MAX_RANK}", ty.rank());
    let mut bytes = ty.dtype.size() as u64;
    for (axis, dim) in ty.shape.iter().enumerate() {
        well_formed_dim(dim)?;
        match dim.as_constant() {
            Some(c) if c < 0 => {
                bail!("G6: axis {axis} of {ty} has extent {c}, which is negative";
                    help "an extent is 0 or more");
            }
            // The nonzero extents of an empty tensor must satisfy the bound too, since strides
            // are computed from them.
            Some(c) if c > 0 => {
                bytes = bytes
                    .checked_mul(c.unsigned_abs())
                    .filter(|b| *b <= MAX_BYTES)
                    .ok_or_else(|| {
                        Diagnostic::new(format!("G6: {ty} is larger than any memory"))
                            .help(format!("a value has at most {MAX_BYTES} bytes"))
                    })?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// G6 for a dimension.
pub(crate) fn well_formed_dim(dim: &Dim) -> Result<()> {
    ensure!(
        dim.terms().len() <= MAX_TERMS,
        "G6: a dimension of {} terms; it may have {MAX_TERMS}",
        dim.terms().len()
    );
    let factors = dim.terms().iter().map(|(product, _)| product.factors().len()).max();
    ensure!(
        factors.is_none_or(|count| count <= MAX_FACTORS),
        "G6: a dimension has a product of {} variables; it may have {MAX_FACTORS}",
        factors.unwrap_or_default()
    );
    let mut names = dim.terms().iter().flat_map(|(product, _)| product.factors());
    match names.find(|name| !is_variable(name)) {
        Some(name) => Err(Diagnostic::new(format!(
            "G6: `{}` is no name for a dimension variable",
            name.escape_debug()
        ))
        .help(
            "use letters, digits and `_`; names of dtypes, `true`, `false`, `inf` and `nan` are \
             taken",
        )),
        None => Ok(()),
    }
}
