//! Conformance of calls: suites of cases, which every device runs.
//!
//! A device implements [`Device`]. The macro [`conformance`](crate::conformance) makes a test of
//! each function of the suites. A case is a call with operands; its result is compared with the
//! call's reference, within the bound that the reference states.

pub mod attention;
pub mod convolution;
pub mod gemm;
pub mod scatter;
pub mod sort;

use crate::random::{extents, literal};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use wengert_core::call::Call;
use wengert_core::{DType, Literal, Scalar};

/// A device that executes calls.
pub trait Device {
    /// The number of random cases, for a suite that usually has `usual`.
    fn cases(usual: u32) -> u32 {
        usual
    }

    /// Whether the device has a kernel for the call, and executes it in reasonable time. Cases
    /// that do not fit are left out.
    fn fits(call: &Call) -> bool;

    /// The results of a call.
    fn run(call: &Call, operands: &[Literal]) -> Vec<Literal>;

    /// Executes a call in every way that the device has, and compares each with the references.
    ///
    /// # Errors
    ///
    /// If a result is beyond the bound of its reference.
    fn check(call: &Call, operands: &[Literal]) -> Result<(), TestCaseError>;
}

/// Makes the tests of all suites for a [`Device`].
#[macro_export]
macro_rules! conformance {
    ($device:ty) => {
        /// Cases that every device runs.
        mod conformance {
            use super::*;
            $crate::conformance!($device, gemm: small_products large_products tiles_and_edges
                long_sums few_rows addends_have_the_bits_of_their_ops halves_are_summed_in_f32
                products_of_float8);
            $crate::conformance!($device, convolution: small_convolutions images_in_place images
                pointwise depthwise depthwise_windows many_channels);
            $crate::conformance!($device, scatter: small_scatters rows_of_a_table
                windows_that_overlap);
            $crate::conformance!($device, attention: small_attentions many_blocks decoding widths
                a_bias_hides_keys prefixes queries_without_keys maxima_grow
                special_scores);
            $crate::conformance!($device, sort: small_sorts small_top_ks every_form
                many_and_long_rows);
        }
    };
    ($device:ty, $suite:ident: $($test:ident)*) => {
        mod $suite {
            use super::*;
            $(
                #[test]
                fn $test() {
                    $crate::calls::$suite::$test::<$device>();
                }
            )*
        }
    };
}

/// The dtypes that calls compute with.
pub const DTYPES: [DType; 10] = [
    DType::F32,
    DType::F64,
    DType::F16,
    DType::BF16,
    DType::U8,
    DType::I8,
    DType::I32,
    DType::I64,
    DType::U32,
    DType::U64,
];

/// The floats.
pub const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

/// Numbers of a few digits, between −8 and 8, or integers of all sizes.
pub fn numbers(dtype: DType, shape: &[usize], seed: u64) -> Literal {
    let mut state = seed;
    literal(dtype, shape, |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let bits = (state >> 20) as i64;
        if dtype.is_float() {
            Scalar::from_f64(dtype, (bits % (1 << 20)) as f64 / (1 << 17) as f64)
        } else {
            Scalar::from_i64(dtype, bits >> (state % 40))
        }
    })
}

/// [`numbers`] for every operand.
pub fn operands(call: &Call, seed: u64) -> Vec<Literal> {
    let types = call.operands().into_iter().enumerate();
    types.map(|(k, ty)| numbers(ty.dtype, &extents(&ty), seed ^ (k as u64) << 50)).collect()
}

/// Compares results with the references of a call.
///
/// # Errors
///
/// If a result is beyond the bound of its reference.
pub fn compare(call: &Call, operands: &[Literal], found: &[Literal]) -> Result<(), TestCaseError> {
    let references = call.references(operands).expect("the call is valid");
    prop_assert_eq!(found.len(), references.len());
    for (n, (reference, found)) in references.iter().zip(found).enumerate() {
        let failed = |e| TestCaseError::fail(format!("{call:?}, result {n}: {e}"));
        reference.check(found).map_err(failed)?;
    }
    Ok(())
}

/// Checks a case, if it fits the device.
fn check<D: Device>(call: &Call, operands: impl FnOnce() -> Vec<Literal>) {
    if D::fits(call) {
        D::check(call, &operands()).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// Checks random cases, each with a seed for the operands.
fn check_random<D: Device>(
    usual: u32,
    calls: impl Strategy<Value = Call>,
    operands: impl Fn(&Call, u64) -> Vec<Literal>,
) {
    let config = ProptestConfig {
        cases: D::cases(usual),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let case = (calls.prop_filter("it does not fit", D::fits), 0u64..1 << 60);
    TestRunner::new(config)
        .run(&case, |(call, seed)| D::check(&call, &operands(&call, seed)))
        .unwrap_or_else(|e| panic!("{e}"));
}
