//! Rows that are written into a cache in its place: the step of decoding that costs a row, or the
//! whole cache if it is copied.

use super::{Case, Float, Kind, Made, first, program, read, short};
use crate::data::uniform;
use crate::parity::{Comparison, Parity};
use crate::record::Work;
use crate::resident::Resident;
use serde::{Deserialize, Serialize};
use wengert::core::build::control::fori;
use wengert::{DType, Initializer, Literal, Result, Tensor, TensorType};

/// The cache, and who writes rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Rows of the cache.
    pub rows: usize,
    /// Elements of a row.
    pub columns: usize,
    /// Rows that are written. One row is written by the function; more are written by a loop whose
    /// carry is the cache.
    pub written: usize,
}

pub(super) fn cases(small: bool) -> Vec<Case> {
    let lengths: [usize; 2] = if small { [1 << 8, 1 << 10] } else { [1 << 14, 1 << 20] };
    let mut cases = vec![];
    for (dtype, written) in [(Float::F32, 1), (Float::Bf16, 1), (Float::F32, 64), (Float::Bf16, 64)]
    {
        cases.extend(lengths.map(|rows| case(dtype, Window { rows, columns: 64, written })));
    }
    cases
}

/// The work: each row is read and written.
fn case(dtype: Float, window: Window) -> Case {
    let Window { rows, columns, written } = window;
    let what = if written == 1 { "row".to_owned() } else { format!("loop of {written} rows") };
    let elements = (written * columns) as u64;
    Case {
        id: format!("{what} {} into {}x{columns}", dtype.name(), short(rows)),
        group: "updates".into(),
        kind: Kind::Window { window },
        dtype,
        work: Work { elements, bytes: 2 * dtype.bytes() * elements, flops: 0 },
        reference: None,
    }
}

pub(super) fn make(dtype: DType, window: Window) -> Result<Made> {
    let Window { rows, columns, written } = window;
    let program = program(|f| {
        let ty = TensorType::new(dtype, [rows, columns]);
        let cache = f.state("cache", Tensor::variable(ty, Initializer::Zeros));
        let new = read(f, "rows", dtype, &[written, columns]);
        let at = read(f, "at", DType::I32, &[]);
        let cache = if written == 1 {
            cache.dynamic_update_slice_in_dim(&new, &at, 0)
        } else {
            fori(written, &cache, |i, cache| {
                let row = new.dynamic_slice_in_dim(i, 1, 0);
                cache.dynamic_update_slice_in_dim(&row, &(&at + i), 0)
            })
        };
        f.update("cache", &cache);
    })?;
    let variables = vec![
        ("cache".to_owned(), uniform("cache", dtype, &[rows, columns], -1.0, 1.0)?),
        ("rows".to_owned(), uniform("rows", dtype, &[written, columns], -1.0, 1.0)?),
        ("at".to_owned(), Literal::from(start(&window) as i32)),
    ];
    Ok(Made { program, variables, init: None, check })
}

/// The first row that is written.
fn start(window: &Window) -> usize {
    window.rows / 3
}

/// Compares all elements. They must be equal.
fn check(resident: &mut Resident, case: &Case, variables: &[(String, Literal)]) -> Result<Parity> {
    resident.run()?;
    resident.finish()?;
    let Kind::Window { window } = &case.kind else {
        unreachable!("this is the check of updates of windows")
    };
    let (before, rows) = (first(variables, "cache"), first(variables, "rows"));
    let after = resident.variable("cache")?;
    let begin = start(window) * window.columns;
    let mut comparison = Comparison::default();
    for i in 0..after.len() {
        let new = i.checked_sub(begin).filter(|n| *n < rows.len());
        let expected = new.map_or_else(|| before.get(i), |n| rows.get(n));
        comparison.add(after.get(i).to_f64(), expected.to_f64(), 1.0);
    }
    comparison.finish(0.0)
}
