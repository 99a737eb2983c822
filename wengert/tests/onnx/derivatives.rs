//! Derivatives of the models of ONNX's node tests: in forward and in reverse mode, against each
//! other and against differences in f64.

use super::case::Case;
use wengert::check::{Finding, derivatives};
use wengert::core::{Literal, Scalar};
use wengert::random::SplitMix64;

/// Distances of these numbers from the inputs of a test.
const MOVES: [f64; 3] = [1e-2, 3e-2, 1e-1];

/// Checks the derivatives of a case. The inputs of many tests are integers, zeros or equal numbers,
/// where functions have kinks and jumps; some are infinite. Then greater numbers are tried: a wrong
/// derivative is wrong there, too.
pub fn check(case: &Case) -> Result<Finding, String> {
    let of = |given: &[Literal]| {
        derivatives(&case.function, given, 1).map_err(|e| e.to_string().replace('\n', " "))
    };
    let first = of(&case.given)?;
    let known = matches!(&first, Finding::Good(_))
        || matches!(&first, Finding::Skipped(why) if why.starts_with("no float"));
    if known {
        return Ok(first);
    }
    for distance in MOVES {
        if let Ok(Finding::Good(text)) = of(&moved(&case.given, distance)) {
            return Ok(Finding::Good(text));
        }
    }
    Ok(first)
}

/// The floats of literals, each greater by half a distance to one and a half, and finite.
fn moved(given: &[Literal], distance: f64) -> Vec<Literal> {
    let mut random = SplitMix64::new(7);
    let mut step = |x: Scalar| {
        let by = distance * (0.5 + random.unit_f64());
        let from = if x.to_f64().is_finite() { x.to_f64() } else { 1.0 };
        Scalar::from_f64(x.dtype(), from + by)
    };
    let mut of = |x: &Literal| {
        let cells: Vec<Scalar> = x.scalars().map(&mut step).collect();
        Literal::from_scalars(x.dtype(), x.shape(), &cells).expect("as many as before")
    };
    given.iter().map(|x| if x.dtype().is_float() { of(x) } else { x.clone() }).collect()
}
