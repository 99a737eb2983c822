//! Products of 8-bit floats, and the scales of their operands.
//!
//! A quantized tensor has an f32 by which its numbers are multiplied, or one for each row
//! ([`Tensor::quantize`](crate::build::Tensor::quantize)). A product of two such tensors is the
//! product of their numbers, times the scale of the row and that of the column.

use super::Gemm;
use crate::diagnostic::{Diagnostic, Result, ensure};
use crate::dtype::DType;
use crate::op::attribute::{Attribute, Field};
use crate::scalar::Scalar;

/// The scales of quantized operands, both in f32; in text such as `["rows", "whole"]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Scales {
    /// Of lhs.
    pub lhs: Scale,
    /// Of rhs.
    pub rhs: Scale,
}

/// How many scales an operand has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scale {
    /// One for the whole operand.
    Whole,
    /// One for each row of lhs, or for each column of rhs.
    Rows,
}

impl Scale {
    /// Number of scales of an operand with that many rows.
    pub(super) fn count(self, rows: usize) -> usize {
        match self {
            Scale::Whole => 1,
            Scale::Rows => rows,
        }
    }
}

impl Field for Scale {
    fn to_attribute(&self) -> Attribute {
        Attribute::Text(match self {
            Scale::Whole => "whole".into(),
            Scale::Rows => "rows".into(),
        })
    }
    fn from_attribute(attribute: Attribute) -> Result<Self> {
        let found = [Scale::Whole, Scale::Rows].into_iter().find(|s| s.to_attribute() == attribute);
        found.ok_or_else(|| Diagnostic::new("a scale is \"whole\" or \"rows\""))
    }
}

impl Field for Scales {
    fn to_attribute(&self) -> Attribute {
        Attribute::List(vec![self.lhs.to_attribute(), self.rhs.to_attribute()])
    }
    fn from_attribute(attribute: Attribute) -> Result<Self> {
        match Vec::from_attribute(attribute)?.as_slice() {
            [lhs, rhs] => Ok(Scales { lhs: *lhs, rhs: *rhs }),
            _ => Err(Diagnostic::new("there is a scale of lhs and one of rhs")),
        }
    }
}

impl Gemm {
    /// The rules of products of 8-bit floats. Both operands lie along the sum, which is how tensor
    /// cores read them: their elements are too small to be transposed in registers.
    pub(super) fn verify_float8(&self) -> Result<()> {
        let [lhs, rhs] = self.factors();
        ensure!(
            rhs.is_float8() && self.rhs_operand.is_none_or(|rhs| rhs != lhs),
            "gemm of {lhs} with a rhs of {rhs}"
        );
        ensure!(
            self.accumulate == DType::F32 && (self.result == DType::F32 || self.result.is_half()),
            "gemm of {lhs} with sums of {} and results of {}", self.accumulate, self.result;
            help "sums are f32, and results f32, f16 or bf16"
        );
        ensure!(
            self.k <= 1 || (self.lhs.column == 1 && self.rhs.row == 1),
            "gemm of {lhs} whose operands do not lie along the sum"
        );
        ensure!(
            self.scales.is_none() || self.batch == 1,
            "gemm with scales of a batch of {} products",
            self.batch
        );
        Ok(())
    }
}

/// A sum, known up to `error`, times two scales, multiplied in any order in f32.
pub(super) fn scaled(sum: f64, error: f64, scales: [f64; 2]) -> (Scalar, f64) {
    let factor = scales[0] * scales[1];
    let value = Scalar::from_f64(DType::F32, sum * factor);
    // Each order rounds twice, and the reference once. A partial result that leaves the normal
    // numbers can lose everything.
    let steps = [scales[0] * scales[1], sum * scales[0], sum * scales[1], sum * factor];
    let normal = |x: &f64| *x == 0.0 || (1e-37..1e38).contains(&x.abs());
    let bound = match (sum.is_finite(), steps.iter().all(normal)) {
        (false, _) => 0.0,
        (true, true) => {
            let roundoff = 4.0 * DType::F32.unit_roundoff() * value.to_f64().abs();
            error * factor.abs() * (1.0 + 1e-6) + roundoff
        }
        (true, false) => f64::INFINITY,
    };
    (value, bound)
}

#[cfg(test)]
mod tests {
    use super::super::Matrix;
    use super::*;
    use crate::call::{Addends, Call};
    use crate::literal::Literal;
    use crate::target::Target;

    fn product() -> Gemm {
        Gemm {
            batch: 1,
            m: 2,
            n: 2,
            k: 3,
            lhs: Matrix { batch: 6, row: 3, column: 1 },
            rhs: Matrix { batch: 6, row: 1, column: 3 },
            operand: DType::F8E4M3FN,
            rhs_operand: Some(DType::F8E5M2),
            scales: Some(Scales { lhs: Scale::Rows, rhs: Scale::Whole }),
            accumulate: DType::F32,
            result: DType::F32,
            addends: Addends { bias: true, residual: false },
            pitch: None,
        }
    }

    #[test]
    fn sums_of_numbers_are_multiplied_by_both_scales() {
        let bits = |dtype: DType, numbers: [f64; 6]| {
            let bits = numbers.map(|x| Scalar::from_f64(dtype, x).bits() as u8);
            Literal::from_vec(&[6], bits.to_vec()).unwrap()
        };
        let floats =
            |numbers: &[f32]| Literal::from_vec(&[numbers.len()], numbers.to_vec()).unwrap();
        let operands = [
            bits(DType::F8E4M3FN, [1.0, 2.0, 3.0, -1.0, 0.5, 448.0]),
            bits(DType::F8E5M2, [1.0, 1.0, 1.0, 57344.0, 0.0, -2.0]),
            floats(&[0.5, 2.0]),
            floats(&[4.0]),
            floats(&[1.0, -1.0]),
        ];
        let call = Call::Gemm(product());
        let types: Vec<String> = call.operands().iter().map(ToString::to_string).collect();
        assert_eq!(types, ["u8[6]", "u8[6]", "f32[2]", "f32[1]", "f32[2]"]);
        let found = call.reference(&operands).unwrap().literal();
        let wanted = [
            6.0 * 2.0 + 1.0,
            (57344.0 - 6.0) * 2.0 - 1.0,
            447.5 * 8.0 + 1.0,
            (-57344.0 - 896.0) * 8.0 - 1.0,
        ];
        assert_eq!(found.as_slice::<f32>().unwrap(), wanted);
    }

    #[test]
    fn what_has_no_kernel_is_refused() {
        let good = product();
        Call::Gemm(good.clone()).verify().unwrap();
        assert!(!Target::cpu().claims(&Call::Gemm(good.clone())));
        let across = Matrix { batch: 6, row: 2, column: 1 };
        let same = Some(DType::F8E4M3FN);
        for (bad, message) in [
            (Gemm { rhs: across, ..good.clone() }, "do not lie along the sum"),
            (Gemm { rhs_operand: same, ..good.clone() }, "with a rhs of f8e4m3fn"),
            (Gemm { rhs_operand: Some(DType::U8), ..good.clone() }, "with a rhs of u8"),
            (Gemm { accumulate: DType::F64, ..good.clone() }, "sums are f32"),
            (Gemm { result: DType::F64, ..good.clone() }, "f32, f16 or bf16"),
            (Gemm { batch: 2, ..good.clone() }, "of a batch of 2 products"),
            (Gemm { operand: DType::F32, ..good.clone() }, "those are of 8-bit floats"),
        ] {
            let error = Call::Gemm(bad).verify().unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
