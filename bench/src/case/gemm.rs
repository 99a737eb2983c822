//! Products: of square matrices with common epilogues, and of the shapes of networks.
//!
//! A fused epilogue costs no time. An unfused one reads and writes the product once more, which
//! takes a third of the time at an extent of 512 and a negligible part at 8192. In f32, contenders
//! must not round operands to fewer bits.

use super::{Case, Float, Kind, Made, first, program, read, read_of_memory};
use crate::data::{sampled, uniform};
use crate::parity::{Comparison, Parity};
use crate::record::Work;
use crate::resident::Resident;
use serde::{Deserialize, Serialize};
use wengert::{DType, Literal, Result};

/// A product of matrices that are not square: x·w, or x·wᵀ as in the last layer of a network whose
/// weight is tied to the token embeddings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Product {
    /// Rows of x and of the result.
    pub rows: usize,
    /// Columns of x.
    pub inner: usize,
    /// Columns of the result.
    pub columns: usize,
    /// w is stored as `[columns, inner]`.
    pub transposed: bool,
}

/// The epilogue of the product x·w.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Epilogue {
    /// Nothing.
    None,
    /// `+ b`, a number for each column.
    Bias,
    /// `relu(… + b)`.
    BiasRelu,
    /// `gelu(… + b)`, the approximation by tanh.
    BiasGelu,
    /// `+ r`, a matrix.
    Residual,
}

impl Epilogue {
    const ALL: [Epilogue; 5] = [
        Epilogue::None,
        Epilogue::Bias,
        Epilogue::BiasRelu,
        Epilogue::BiasGelu,
        Epilogue::Residual,
    ];

    fn name(self) -> &'static str {
        match self {
            Epilogue::None => "gemm",
            Epilogue::Bias => "gemm+bias",
            Epilogue::BiasRelu => "gemm+bias+relu",
            Epilogue::BiasGelu => "gemm+bias+gelu",
            Epilogue::Residual => "gemm+residual",
        }
    }
}

pub(super) fn cases(small: bool) -> Vec<Case> {
    let extents: &[usize] = if small { &[40, 64] } else { &[512, 1024, 2048, 4096, 8192] };
    let mut cases = Vec::new();
    for dtype in Float::ALL {
        for extent in extents {
            cases.extend(Epilogue::ALL.map(|epilogue| case(epilogue, dtype, *extent)));
        }
    }
    cases
}

/// The work: n³ multiply-adds; x, w, and b or r are read, and y is written.
fn case(epilogue: Epilogue, dtype: Float, extent: usize) -> Case {
    let n = extent as u64;
    let operand = match epilogue {
        Epilogue::None => 0,
        Epilogue::Residual => n * n,
        _ => n,
    };
    Case {
        id: format!("{} {} {extent}", epilogue.name(), dtype.name()),
        group: format!("gemm {}", dtype.name()),
        kind: Kind::Gemm { extent, epilogue },
        dtype,
        work: Work {
            elements: n * n,
            bytes: dtype.bytes() * (3 * n * n + operand),
            flops: 2 * n * n * n,
        },
        reference: None,
    }
}

pub(super) fn make(epilogue: Epilogue, dtype: DType, extent: usize) -> Result<Made> {
    let square = [extent, extent];
    let program = program(|f| {
        let product = read(f, "x", dtype, &square).dot(&read(f, "w", dtype, &square));
        let mut biased = || &product + read(f, "b", dtype, &[extent]);
        let y = match epilogue {
            Epilogue::None => product.clone(),
            Epilogue::Bias => biased(),
            Epilogue::BiasRelu => biased().relu(),
            Epilogue::BiasGelu => biased().gelu_tanh(),
            Epilogue::Residual => &product + read(f, "r", dtype, &square),
        };
        f.create("y", &y);
    })?;
    let mut variables = Vec::new();
    for name in ["x", "w"] {
        variables.push((name.to_owned(), uniform(name, dtype, &square, -1.0, 1.0)?));
    }
    match epilogue {
        Epilogue::None => {}
        Epilogue::Residual => {
            variables.push(("r".into(), uniform("r", dtype, &square, -1.0, 1.0)?))
        }
        _ => variables.push(("b".into(), uniform("b", dtype, &[extent], -1.0, 1.0)?)),
    }
    Ok(Made { program, variables, init: None, check })
}

impl Product {
    fn of_w(&self) -> [usize; 2] {
        if self.transposed { [self.columns, self.inner] } else { [self.inner, self.columns] }
    }
}

/// Products of GPT's layers: of 1024 tokens and a width of 384, of 256 and 768. The last layer's
/// product is over the whole vocabulary.
pub(super) fn products(small: bool) -> Vec<Case> {
    let sizes: &[([usize; 3], bool)] = if small {
        &[([24, 40, 16], false), ([24, 16, 40], true)]
    } else {
        &[
            ([1024, 384, 1536], false),
            ([1024, 1536, 384], false),
            ([1024, 384, 4096], false),
            ([256, 768, 3072], false),
            ([256, 768, 50257], false),
            ([256, 768, 50257], true),
        ]
    };
    let of = |dtype, ([rows, inner, columns], transposed): &([usize; 3], bool)| {
        product(
            dtype,
            Product { rows: *rows, inner: *inner, columns: *columns, transposed: *transposed },
        )
    };
    Float::ALL.iter().flat_map(|dtype| sizes.iter().map(|size| of(*dtype, size))).collect()
}

/// Most rows of a product in C12.
pub(super) const FEW_ROWS: usize = 8;

/// Products of few rows, as in decoding: bandwidth-bound, since each element of w is multiplied
/// with few elements.
pub(super) fn products_of_few_rows(small: bool) -> Vec<Case> {
    let [inner, columns] = if small { [40, 24] } else { [2048, 8192] };
    let mut cases = Vec::new();
    for dtype in Float::ALL {
        for transposed in [false, true] {
            for rows in [1, 2, 4, FEW_ROWS] {
                let found = product(dtype, Product { rows, inner, columns, transposed });
                cases.push(Case {
                    group: format!("few rows {}", dtype.name()),
                    reference: Some(read_of_memory(small)),
                    ..found
                });
            }
        }
    }
    cases
}

fn product(dtype: Float, product: Product) -> Case {
    let Product { rows, inner, columns, transposed } = product;
    let [m, k, n] = [rows, inner, columns].map(|n| n as u64);
    Case {
        id: format!(
            "gemm {} {m}x{k}x{n}{}",
            dtype.name(),
            if transposed { " transposed" } else { "" }
        ),
        group: format!("gemm {}", dtype.name()),
        kind: Kind::Product { product },
        dtype,
        work: Work {
            elements: m * n,
            bytes: dtype.bytes() * (m * k + k * n + m * n),
            flops: 2 * m * k * n,
        },
        reference: None,
    }
}

pub(super) fn make_product(dtype: DType, product: &Product) -> Result<Made> {
    let (of_x, of_w) = ([product.rows, product.inner], product.of_w());
    let program = program(|f| {
        let (x, w) = (read(f, "x", dtype, &of_x), read(f, "w", dtype, &of_w));
        f.create("y", &x.dot(&if product.transposed { w.matrix_transpose() } else { w }));
    })?;
    let variables = vec![
        ("x".to_owned(), uniform("x", dtype, &of_x, -1.0, 1.0)?),
        ("w".to_owned(), uniform("w", dtype, &of_w, -1.0, 1.0)?),
    ];
    Ok(Made { program, variables, init: None, check: check_product })
}

/// Compares as [`check`] does.
fn check_product(
    resident: &mut Resident,
    case: &Case,
    variables: &[(String, Literal)],
) -> Result<Parity> {
    resident.run()?;
    resident.finish()?;
    let Kind::Product { product } = case.kind else {
        unreachable!("this is the check of products")
    };
    let (x, w, y) = (first(variables, "x"), first(variables, "w"), resident.variable("y")?);
    let [_, stride] = product.of_w();
    let mut comparison = Comparison::default();
    for i in sampled(product.rows * product.columns, 256) {
        let (row, column) = (i / product.columns, i % product.columns);
        let (mut sum, mut size) = (0.0, 1.0);
        for k in 0..product.inner {
            let at = if product.transposed { column * stride + k } else { k * stride + column };
            let term = x.get(row * product.inner + k).to_f64() * w.get(at).to_f64();
            sum += term;
            size += term.abs();
        }
        let scale = if case.dtype == Float::F32 { size } else { sum.abs() + 1.0 };
        comparison.add(y.get(i).to_f64(), sum, scale);
    }
    comparison.finish(bound(case.dtype))
}

/// Compares up to 256 elements.
///
/// In f32 deviations are relative to Σ|x·w|, each term of which may be rounded. A product of
/// operands rounded to fewer bits (TF32) is detected up to an extent of about 2048. In bf16,
/// the roundings of the product and of the epilogue count.
fn check(resident: &mut Resident, case: &Case, variables: &[(String, Literal)]) -> Result<Parity> {
    resident.run()?;
    resident.finish()?;
    let Kind::Gemm { extent, epilogue } = case.kind else {
        unreachable!("this is the check of products")
    };
    let (x, w, y) = (first(variables, "x"), first(variables, "w"), resident.variable("y")?);
    let mut comparison = Comparison::default();
    for i in sampled(extent * extent, 256) {
        let (row, column) = (i / extent, i % extent);
        let (mut product, mut size) = (0.0, 1.0);
        for k in 0..extent {
            let term = x.get(row * extent + k).to_f64() * w.get(k * extent + column).to_f64();
            product += term;
            size += term.abs();
        }
        let bias = || first(variables, "b").get(column).to_f64();
        let expected = match epilogue {
            Epilogue::None => product,
            Epilogue::Bias => product + bias(),
            Epilogue::BiasRelu => (product + bias()).max(0.0),
            Epilogue::BiasGelu => gelu_tanh(product + bias()),
            Epilogue::Residual => product + first(variables, "r").get(i).to_f64(),
        };
        let scale = if case.dtype == Float::F32 { size } else { product.abs() + 1.0 };
        comparison.add(y.get(i).to_f64(), expected, scale);
    }
    comparison.finish(bound(case.dtype))
}

/// Deviations within rounding, relative to the scale of [`check`].
fn bound(dtype: Float) -> f64 {
    match dtype {
        Float::F32 => 32.0 * DType::F32.unit_roundoff(),
        Float::Bf16 | Float::Mixed => 8.0 * DType::BF16.unit_roundoff(),
    }
}

fn gelu_tanh(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_counted_by_hand() {
        let work = case(Epilogue::Residual, Float::Bf16, 512).work;
        assert_eq!((work.flops, work.bytes), (268_435_456, 4 * 512 * 512 * 2));
        assert_eq!(case(Epilogue::Bias, Float::F32, 512).work.bytes, 3 * 512 * 512 * 4 + 2048);
        let head = product(
            Float::F32,
            Product { rows: 256, inner: 768, columns: 50257, transposed: true },
        );
        assert_eq!(head.id, "gemm f32 256x768x50257 transposed");
        assert_eq!(head.work.flops, 19_761_856_512);
        assert_eq!(head.work.bytes, 4 * (256 * 768 + 768 * 50257 + 256 * 50257));
    }
}
