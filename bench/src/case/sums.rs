//! Sums: of columns, as the gradient of a bias, and of all elements. bf16 elements are widened
//! and summed in f32.

use super::{Case, Float, Kind, Made, copy_of_memory, first, program, read, read_of_memory, short};
use crate::data::uniform;
use crate::parity::{Comparison, Parity};
use crate::record::Work;
use crate::resident::Resident;
use wengert::{DType, Literal, Result};

pub(super) fn cases(small: bool) -> Vec<Case> {
    let (rows, columns) = if small { (65, 48) } else { (8192, 768) };
    let elements = if small { 1 << 16 } else { 1 << 26 };
    let mut cases = Vec::new();
    for dtype in Float::ALL {
        let mut add = |id: String, kind: Kind, elements: usize, results: usize| {
            // Each element is read; each sum, an f32, is written.
            let bytes = dtype.bytes() * elements as u64 + 4 * results as u64;
            let work = Work { elements: elements as u64, bytes, flops: 0 };
            let reference = copy_of_memory(dtype, small);
            cases.push(Case { id, group: "memory".into(), kind, dtype, work, reference });
        };
        let kind = Kind::ColumnSum { rows, columns };
        add(format!("column sum {} {rows}x{columns}", dtype.name()), kind, rows * columns, columns);
        add(
            format!("sum {} {}", dtype.name(), short(elements)),
            Kind::Sum { elements },
            elements,
            1,
        );
    }
    cases
}

/// The sum that measures the bandwidth of reading, the reference of C12 and its own.
pub(super) fn reading(small: bool) -> Case {
    let id = read_of_memory(small);
    let found = cases(small).into_iter().find(|case| case.id == id);
    let found = found.expect("the reference of reads is one of the sums");
    Case { reference: Some(id), ..found }
}

/// Sums along the first axis.
pub(super) fn make(dtype: DType, shape: &[usize]) -> Result<Made> {
    let program = program(|f| {
        let x = read(f, "x", dtype, shape);
        f.create("y", &x.convert(DType::F32).sum_axes(&[0]));
    })?;
    let variables = vec![("x".to_owned(), uniform("x", dtype, shape, -1.0, 1.0)?)];
    Ok(Made { program, variables, init: None, check })
}

/// Compares all sums, relative to the sums of magnitudes.
fn check(resident: &mut Resident, _: &Case, variables: &[(String, Literal)]) -> Result<Parity> {
    resident.run()?;
    resident.finish()?;
    let (x, y) = (first(variables, "x"), resident.variable("y")?);
    let (mut sums, mut sizes) = (vec![0.0; y.len()], vec![0.0; y.len()]);
    for (i, value) in x.scalars().enumerate() {
        let value = value.to_f64();
        sums[i % y.len()] += value;
        sizes[i % y.len()] += value.abs();
    }
    let mut comparison = Comparison::default();
    for (i, (sum, size)) in sums.into_iter().zip(sizes).enumerate() {
        comparison.add(y.get(i).to_f64(), sum, size);
    }
    // A sequential sum in f32 would exceed the bound; a sum in lanes and parts does not.
    comparison.finish(64.0 * DType::F32.unit_roundoff())
}
