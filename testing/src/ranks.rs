//! Functions for tests of ranks, and literals in parts.
//!
//! A part has the number `rank` of `ranks` equal parts of each of `blocks` equal blocks of an axis.
//! A rank's part of several blocks is side by side.

use crate::Random;
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::Function;
use wengert_core::{DType, Initializer, Literal, Tensor, TensorType};

/// A type in f32.
pub fn f32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape.iter().copied())
}

/// A type in i32.
pub fn i32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::I32, shape.iter().copied())
}

/// A variable in f32.
pub fn param(shape: &[usize]) -> Tensor {
    Tensor::variable(f32s(shape), Initializer::Zeros)
}

/// A function.
///
/// # Panics
///
/// With the error, if it is wrong.
pub fn build(name: &str, f: impl FnOnce(&mut FunctionBuilder)) -> Function {
    FunctionBuilder::build(name, f).unwrap_or_else(|e| panic!("{e}"))
}

/// Random inputs for a function; integers are below `classes`.
///
/// # Panics
///
/// If the function has dimension variables.
pub fn inputs(function: &Function, classes: i32, seed: u64) -> Vec<Literal> {
    let mut random = Random(seed);
    let input = |i: usize| {
        let ty = function.input_type(i);
        match ty.dtype {
            DType::I32 => {
                let shape = ty.extents().expect("a bound function");
                let count = shape.iter().product::<usize>();
                let label = |_| random.below(classes as usize) as i32;
                of(&shape, (0..count).map(label).collect())
            }
            DType::U32 => of(&[2], vec![3u32, seed as u32]),
            _ => random.literal(ty),
        }
    };
    (0..function.inputs.len()).map(input).collect()
}

fn of<T: wengert_core::Element>(shape: &[usize], elements: Vec<T>) -> Literal {
    Literal::from_vec(shape, elements).expect("as many elements as the shape has")
}

/// The elements.
pub fn numbers(x: &Literal) -> Vec<f64> {
    x.scalars().map(|s| s.to_f64()).collect()
}

/// Number of equations of an op, in regions too.
pub fn count(function: &Function, name: &str) -> usize {
    function.numbered().iter().filter(|n| n.equation.op.name() == name).count()
}

/// A part along an axis.
///
/// # Panics
///
/// If the axis does not fall into such parts.
pub fn part(x: &Literal, [axis, blocks]: [usize; 2], rank: usize, ranks: usize) -> Literal {
    let mut shape = x.shape().to_vec();
    assert!(shape[axis].is_multiple_of(blocks * ranks), "{shape:?}: axis {axis} has no parts");
    let rows = shape[..axis].iter().product::<usize>() * blocks;
    let bytes = x.to_bytes();
    let size = bytes.len() / rows.max(1) / ranks;
    shape[axis] /= ranks;
    let of_row = |row: usize| bytes[(row * ranks + rank) * size..][..size].iter().copied();
    let bytes: Vec<u8> = (0..rows).flat_map(of_row).collect();
    Literal::from_bytes(x.dtype(), &shape, &bytes).expect("a part of a literal")
}

/// The literal with these parts along an axis.
///
/// # Panics
///
/// If there is none.
pub fn join(parts: &[&Literal], [axis, blocks]: [usize; 2]) -> Literal {
    let mut shape = parts[0].shape().to_vec();
    let rows = shape[..axis].iter().product::<usize>() * blocks;
    let size = parts[0].to_bytes().len() / rows.max(1);
    let all: Vec<Vec<u8>> = parts.iter().map(|part| part.to_bytes().to_vec()).collect();
    let of_row = |row: usize| all.iter().flat_map(move |part| &part[row * size..][..size]);
    let bytes: Vec<u8> = (0..rows).flat_map(of_row).copied().collect();
    shape[axis] *= parts.len();
    Literal::from_bytes(parts[0].dtype(), &shape, &bytes).expect("the parts of a literal")
}

#[cfg(test)]
mod tests {
    use super::{join, of, part};

    #[test]
    fn parts_of_blocks_make_the_whole() {
        let x = of(&[2, 12, 2], (0..48).collect::<Vec<i32>>());
        for (split, ranks) in [([0, 1], 2), ([1, 1], 3), ([1, 3], 2), ([1, 2], 3), ([2, 1], 2)] {
            let parts: Vec<_> = (0..ranks).map(|rank| part(&x, split, rank, ranks)).collect();
            assert_eq!(join(&parts.iter().collect::<Vec<_>>(), split), x);
        }
        let columns = of(&[6], (0..6).collect::<Vec<i32>>());
        assert_eq!(part(&columns, [0, 3], 1, 2), of(&[3], vec![1, 3, 5]));
    }
}
