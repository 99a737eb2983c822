//! Stacks of examples, and the loop over them.

use wengert_core::graph::Function;
use wengert_core::{DType, Literal, Scalar};
use wengert_testing::derivative::run;
use wengert_testing::samples::{Sample, SampleOperand};

/// Examples of operand `i` of a sample. Random floats are drawn anew for each example. Fixed values
/// are rotated, or shifted if they must ascend.
pub fn examples(sample: &Sample, i: usize, dtype: DType, seed: u64, count: usize) -> Vec<Literal> {
    let operand = &sample.operands[i];
    let example = |n: usize| match operand {
        SampleOperand::Float { .. } | SampleOperand::Wide { .. } => {
            operand.literal(dtype, seed + 977 * n as u64)
        }
        SampleOperand::Values(literal) | SampleOperand::Ascending(literal) => {
            let mut scalars: Vec<Scalar> = literal.scalars().collect();
            let by = if scalars.is_empty() { 0 } else { n % scalars.len() };
            scalars.rotate_left(by);
            if let (SampleOperand::Ascending(_), Some(last)) = (operand, literal.scalars().last()) {
                let end = scalars.len() - by;
                scalars[end..].fill(last);
            }
            Literal::from_scalars(literal.dtype(), literal.shape(), &scalars).unwrap()
        }
    };
    (0..count).map(example).collect()
}

/// Literals of one type, stacked along a new axis.
pub fn stack(parts: &[Literal], axis: usize) -> Literal {
    let first = &parts[0];
    let mut shape = first.shape().to_vec();
    let inner: usize = shape[axis..].iter().product();
    let outer: usize = shape[..axis].iter().product();
    shape.insert(axis, parts.len());
    let parts: Vec<Vec<Scalar>> = parts.iter().map(|p| p.scalars().collect()).collect();
    let scalars: Vec<Scalar> = (0..outer)
        .flat_map(|o| parts.iter().flat_map(move |p| p[o * inner..(o + 1) * inner].to_vec()))
        .collect();
    Literal::from_scalars(first.dtype(), &shape, &scalars).unwrap()
}

/// Runs a function on each example, and stacks the results along `axis`. An unbatched input has one
/// literal for all examples.
pub fn looped(
    function: &Function,
    inputs: &[Vec<Literal>],
    count: usize,
    axis: usize,
) -> Vec<Literal> {
    let example = |n: usize| {
        let inputs: Vec<Literal> = inputs.iter().map(|i| i[n % i.len()].clone()).collect();
        run(function, &inputs)
    };
    let results: Vec<Vec<Literal>> = (0..count).map(example).collect();
    (0..results[0].len())
        .map(|i| {
            stack(
                &results.iter().map(|r| r[i].clone()).collect::<Vec<_>>(),
                axis.min(results[0][i].shape().len()),
            )
        })
        .collect()
}
