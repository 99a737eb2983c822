//! Test operands of an op.

use super::catalogue;
use std::collections::BTreeMap;
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::{Body, Function, Region};
use wengert_core::{DType, Element, Literal, LocationId, Op, Result, Scalar, Tensor, TensorType};

/// An op with attributes, and operands to test it with.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The op.
    pub op: Op,
    /// One per operand.
    pub operands: Vec<SampleOperand>,
    regions: RegionRule,
}

/// Makes the regions of an op for operands of given types.
pub type RegionRule = fn(&[TensorType]) -> Vec<Region>;

/// A region for a sample: `f` applied to inputs of these types. If `f` does not take these types,
/// the region is an empty body, which no op takes.
pub fn region(inputs: &[TensorType], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Region {
    let built = FunctionBuilder::build("region", |b| {
        let inputs: Vec<Tensor> = inputs
            .iter()
            .enumerate()
            .map(|(i, ty)| b.input(&format!("x{i}"), ty.clone()))
            .collect();
        for (i, result) in f(&inputs).iter().enumerate() {
            b.output(&format!("y{i}"), result);
        }
    });
    let Ok(mut function) = built else { return Region::default() };
    unlocate(&mut function.body);
    function.body.into()
}

/// Clears the locations, which refer to another function.
fn unlocate(body: &mut Body) {
    for equation in &mut body.equations {
        equation.location = LocationId(0);
        equation.regions.iter_mut().for_each(|region| unlocate(region));
    }
}

/// An operand of a sample.
#[derive(Clone, Debug)]
pub enum SampleOperand {
    /// Random floats of any dtype, evenly distributed over an interval on which the op is smooth.
    /// All are distinct, so there are no ties.
    Float {
        /// Extents.
        shape: Vec<usize>,
        /// Least value.
        low: f64,
        /// Greatest value.
        high: f64,
    },
    /// The same, but f32 if the other floats are halves: for values that an op keeps in the dtype
    /// it computes in.
    Wide {
        /// Extents.
        shape: Vec<usize>,
        /// Least value.
        low: f64,
        /// Greatest value.
        high: f64,
    },
    /// Exactly these values.
    Values(Literal),
    /// Exactly these values along one axis, which ascend, as the op requires.
    Ascending(Literal),
}

impl Sample {
    /// A sample of an op without regions.
    pub fn new(op: impl Into<Op>, operands: Vec<SampleOperand>) -> Self {
        Sample::with_regions(op, operands, |_| vec![])
    }

    /// A sample of an op with regions, which are made for the types of the operands.
    pub fn with_regions(
        op: impl Into<Op>,
        operands: Vec<SampleOperand>,
        regions: RegionRule,
    ) -> Self {
        Sample { op: op.into(), operands, regions }
    }

    /// The types of the results for operands of these types, as the op infers them.
    pub fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>> {
        self.op.infer(operands, &self.regions(operands))
    }

    /// The regions for operands of these types; empty for most ops.
    pub fn regions(&self, operands: &[TensorType]) -> Vec<Region> {
        (self.regions)(operands)
    }

    /// The operands, with `dtype` for the floats.
    pub fn literals(&self, dtype: DType, seed: u64) -> Vec<Literal> {
        self.operands
            .iter()
            .enumerate()
            .map(|(i, o)| o.literal(dtype, seed ^ (i as u64) << 32))
            .collect()
    }
}

impl Sample {
    /// A function `@f` that applies the op to inputs of the operands' types, `x0` and so on, and
    /// outputs its results, `y0` and so on. `None` if the op does not take these types.
    pub fn function(&self, operands: &[Literal]) -> Option<Function> {
        let types: Vec<_> = operands.iter().map(Literal::ty).collect();
        let regions = self.regions(&types);
        self.op.infer(&types, &regions).ok()?;
        let built = FunctionBuilder::build("f", |f| {
            let inputs =
                types.iter().enumerate().map(|(i, ty)| f.input(&format!("x{i}"), ty.clone()));
            let inputs: Vec<Tensor> = inputs.collect();
            let results =
                Tensor::apply_with(self.op.clone(), &inputs.iter().collect::<Vec<_>>(), regions);
            for (i, result) in results.iter().enumerate() {
                f.output(&format!("y{i}"), result);
            }
        });
        Some(built.expect("the op takes these types"))
    }
}

/// Several samples as one function, so that a device compiles them as one module. Sample n's
/// operands are the inputs `sn.x0` and so on, its results the outputs `sn.y0` and so on. Samples
/// share no values.
#[derive(Clone, Debug)]
pub struct Batch {
    /// A name for each sample: `softmax sample 2 in f16`.
    pub names: Vec<String>,
    /// The function, `@f`.
    pub function: Function,
    /// Values for its inputs.
    pub operands: Vec<Literal>,
}

/// All samples of the catalogue that are valid with `dtype` for the floats, at most `most` in a
/// batch; for an 8-bit float those that have such an operand. A batch holds samples of one `kind`
/// only, where `kind` is applied to the function of the sample by itself.
pub fn batches<K: Ord + Clone>(
    dtype: DType,
    most: usize,
    mut kind: impl FnMut(&Function) -> K,
) -> Vec<(K, Batch)> {
    let mut by_kind: BTreeMap<K, Vec<_>> = BTreeMap::new();
    for entry in catalogue() {
        for (number, sample) in entry.samples.into_iter().enumerate() {
            let operands = sample.literals(dtype, number as u64 + 1);
            if dtype.is_float8() && operands.iter().all(|o| o.dtype() != dtype) {
                continue;
            }
            let Some(function) = sample.function(&operands) else { continue };
            let name = format!("{} sample {number} in {dtype}", entry.name);
            by_kind.entry(kind(&function)).or_default().push((name, sample, operands));
        }
    }
    let of_kind = |(kind, samples): (K, Vec<_>)| {
        samples.chunks(most).map(|chunk| (kind.clone(), batch(chunk))).collect::<Vec<_>>()
    };
    by_kind.into_iter().flat_map(of_kind).collect()
}

fn batch(samples: &[(String, Sample, Vec<Literal>)]) -> Batch {
    let built = FunctionBuilder::build("f", |f| {
        for (n, (_, sample, operands)) in samples.iter().enumerate() {
            let types: Vec<TensorType> = operands.iter().map(Literal::ty).collect();
            let inputs =
                types.iter().enumerate().map(|(i, ty)| f.input(&format!("s{n}.x{i}"), ty.clone()));
            let inputs: Vec<Tensor> = inputs.collect();
            let inputs: Vec<&Tensor> = inputs.iter().collect();
            let results = Tensor::apply_with(sample.op.clone(), &inputs, sample.regions(&types));
            for (i, result) in results.iter().enumerate() {
                f.output(&format!("s{n}.y{i}"), result);
            }
        }
    });
    Batch {
        names: samples.iter().map(|(name, ..)| name.clone()).collect(),
        function: built.expect("the ops take these types"),
        operands: samples.iter().flat_map(|(.., operands)| operands.clone()).collect(),
    }
}

/// Random floats of a shape in an interval.
pub fn floats(shape: &[usize], low: f64, high: f64) -> SampleOperand {
    SampleOperand::Float { shape: shape.to_vec(), low, high }
}

/// Random floats, f32 if the other floats are halves.
pub fn wide_floats(shape: &[usize], low: f64, high: f64) -> SampleOperand {
    SampleOperand::Wide { shape: shape.to_vec(), low, high }
}

/// Given values of any dtype, in row-major order.
pub fn values<T: Element>(shape: &[usize], values: impl IntoIterator<Item = T>) -> SampleOperand {
    let literal = Literal::from_vec(shape, values.into_iter().collect());
    SampleOperand::Values(literal.expect("a sample has as many values as its shape says"))
}

impl SampleOperand {
    /// Fixed values that ascend, as the op requires.
    pub fn ascending(self) -> Self {
        match self {
            SampleOperand::Values(literal) => SampleOperand::Ascending(literal),
            random => random,
        }
    }

    /// The values.
    pub fn literal(&self, dtype: DType, seed: u64) -> Literal {
        match self {
            SampleOperand::Values(literal) | SampleOperand::Ascending(literal) => literal.clone(),
            SampleOperand::Wide { shape, low, high } => {
                let dtype = if dtype.is_half() { DType::F32 } else { dtype };
                floats(shape, *low, *high).literal(dtype, seed)
            }
            SampleOperand::Float { shape, low, high } => {
                let count = shape.iter().product::<usize>();
                // A permuted, jittered grid: the values are distinct in every float dtype.
                let mut order: Vec<usize> = (0..count).collect();
                let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d;
                let mut next = || {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state
                };
                (1..count).rev().for_each(|i| order.swap(i, (next() % (i as u64 + 1)) as usize));
                let values: Vec<_> = order
                    .into_iter()
                    .map(|i| {
                        let jitter = (next() >> 11) as f64 / (1u64 << 53) as f64 * 0.5 + 0.25;
                        Scalar::from_f64(
                            dtype,
                            low + (high - low) * (i as f64 + jitter) / count as f64,
                        )
                    })
                    .collect();
                Literal::from_scalars(dtype, shape, &values)
                    .expect("every value was made with the dtype")
            }
        }
    }
}
