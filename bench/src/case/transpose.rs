//! The transposition of a matrix: a copy with strided access.

use super::{Case, Float, Kind, Made, copy_of_memory, first, program, read};
use crate::data::{sampled, uniform};
use crate::parity::{Comparison, Parity};
use crate::record::Work;
use crate::resident::Resident;
use wengert::{DType, Literal, Result};

pub(super) fn cases(small: bool) -> Vec<Case> {
    let extent: usize = if small { 96 } else { 8192 };
    let elements = (extent * extent) as u64;
    let case = |dtype: Float| Case {
        id: format!("transpose {} {extent}x{extent}", dtype.name()),
        group: "memory".into(),
        kind: Kind::Transpose { extent },
        dtype,
        // Each element is read once and written once.
        work: Work { elements, bytes: 2 * dtype.bytes() * elements, flops: 0 },
        reference: copy_of_memory(dtype, small),
    };
    Float::ALL.map(case).into()
}

pub(super) fn make(dtype: DType, extent: usize) -> Result<Made> {
    let program = program(|f| {
        let x = read(f, "x", dtype, &[extent, extent]);
        f.create("y", &x.permute(&[1, 0]));
    })?;
    let variables = vec![("x".to_owned(), uniform("x", dtype, &[extent, extent], -1.0, 1.0)?)];
    Ok(Made { program, variables, init: None, check })
}

/// Compares at most 64K elements. They must be equal.
fn check(resident: &mut Resident, case: &Case, variables: &[(String, Literal)]) -> Result<Parity> {
    resident.run()?;
    resident.finish()?;
    let Kind::Transpose { extent } = case.kind else {
        unreachable!("this is the check of transpositions")
    };
    let (x, y) = (first(variables, "x"), resident.variable("y")?);
    let mut comparison = Comparison::default();
    for i in sampled(y.len(), 1 << 16) {
        let (row, column) = (i / extent, i % extent);
        comparison.add(y.get(i).to_f64(), x.get(column * extent + row).to_f64(), 1.0);
    }
    comparison.finish(0.0)
}
