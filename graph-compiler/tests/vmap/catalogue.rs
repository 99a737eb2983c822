//! Every op × sample of the catalogue × every choice of batched operands. The op, its jvp and its
//! vjp equal the stack of the loop over examples bit for bit. So do two nested maps.

use super::examples::*;
use wengert_compiler::autodiff::operators::{jvp, vjp};
use wengert_compiler::vmap::operators::vmap_axes;
use wengert_core::{DType, Literal, Tensor, TensorType};
use wengert_testing::Random;
use wengert_testing::derivative::*;
use wengert_testing::samples::{self, Sample};

/// A function of the operands of a sample and of further tensors.
type Program<'a> = dyn Fn(&[Tensor]) -> Vec<Tensor> + 'a;

/// The number of examples.
const COUNT: usize = 3;

fn apply(sample: &Sample, operands: &[Tensor]) -> Vec<Tensor> {
    let types: Vec<TensorType> = operands.iter().map(|t| t.ty().clone()).collect();
    Tensor::apply_with(
        sample.op.clone(),
        &operands.iter().collect::<Vec<_>>(),
        sample.regions(&types),
    )
}

/// Compares the map of a program with the loop. The batch axis is the first; if there is another
/// axis, also the last.
fn compare(what: &str, inputs: &[Vec<Literal>], program: &Program<'_>) {
    let single: Vec<Literal> = inputs.iter().map(|i| i[0].clone()).collect();
    let function = build(&types(&single), program);
    for last in [false, true] {
        let axis = |l: &Literal| if last { l.shape().len() } else { 0 };
        let axes: Vec<Option<usize>> =
            inputs.iter().map(|i| (i.len() > 1).then(|| axis(&i[0]))).collect();
        let stacked: Vec<Literal> = inputs
            .iter()
            .zip(&axes)
            .map(|(i, axis)| axis.map_or(i[0].clone(), |axis| stack(i, axis)))
            .collect();
        let outputs: Vec<Option<usize>> = (0..function.outputs.len())
            .map(|i| Some(if last { function.output_type(i).rank() } else { 0 }))
            .collect();
        let mapped = build(&types(&stacked), |values| {
            vmap_axes(&values.to_vec(), axes.as_slice(), outputs.as_slice(), |x: &Vec<Tensor>| {
                program(x)
            })
        });
        let wanted = looped(&function, inputs, COUNT, if last { usize::MAX } else { 0 });
        let given = run(&mapped, &stacked);
        assert_eq!(wanted.len(), given.len(), "{what}");
        for (w, g) in wanted.iter().zip(&given) {
            assert_eq!(w, g, "{what}, batched {axes:?}\n{mapped:?}");
        }
    }
}

/// Every non-empty choice of batched operands.
fn choices(count: usize) -> impl Iterator<Item = Vec<bool>> {
    (1..1usize << count).map(move |bits| (0..count).map(|i| bits >> i & 1 == 1).collect())
}

fn inputs_of(sample: &Sample, batched: &[bool], dtype: DType, seed: u64) -> Vec<Vec<Literal>> {
    let count = |i: usize| if batched[i] { COUNT } else { 1 };
    (0..batched.len())
        .map(|i| examples(sample, i, dtype, seed ^ (i as u64) << 32, count(i)))
        .collect()
}

/// Random directions for the float types of `types`, one for each example.
fn directions(types: &[TensorType], random: &mut Random) -> Vec<Vec<Literal>> {
    let floats = types.iter().filter(|t| t.dtype.is_float());
    floats.map(|ty| (0..COUNT).map(|_| random.literal(ty)).collect()).collect()
}

fn floats(tensors: &[Tensor]) -> Vec<Tensor> {
    tensors.iter().filter(|t| t.dtype().is_float()).cloned().collect()
}

/// `operands` with the floats replaced.
fn refilled(operands: &[Tensor], floats: &[Tensor]) -> Vec<Tensor> {
    let mut floats = floats.iter();
    let fill =
        |t: &Tensor| if t.dtype().is_float() { floats.next().unwrap().clone() } else { t.clone() };
    operands.iter().map(fill).collect()
}

fn check(name: &str, sample: &Sample, dtype: DType, random: &mut Random) -> usize {
    let single = sample.literals(dtype, 1);
    let Ok(results) = sample.infer(&types(&single)) else { return 0 };
    let count = single.len();
    for batched in choices(count) {
        let inputs = inputs_of(sample, &batched, dtype, random.bits());
        let what = format!("{name} {:?} in {dtype}", sample.op);
        compare(&what, &inputs, &|x| apply(sample, x));

        if !types(&single).iter().any(|t| t.dtype.is_float())
            || !results.iter().any(|t| t.dtype.is_float())
        {
            continue;
        }
        let tangents: Vec<Vec<Literal>> =
            inputs.iter().cloned().chain(directions(&types(&single), random)).collect();
        compare(&format!("jvp of {what}"), &tangents, &|x| {
            let (x, t) = x.split_at(count);
            let f = |y: &Vec<Tensor>| floats(&apply(sample, &refilled(x, y)));
            jvp(&floats(x), &t.to_vec(), f).1
        });
        let cotangents: Vec<Vec<Literal>> =
            inputs.iter().cloned().chain(directions(&results, random)).collect();
        compare(&format!("vjp of {what}"), &cotangents, &|x| {
            let (x, c) = x.split_at(count);
            let f = |y: &Vec<Tensor>| floats(&apply(sample, &refilled(x, y)));
            vjp(&floats(x), f).1(&c.to_vec())
        });
    }
    1
}

#[test]
fn every_op_is_its_loop() {
    let mut random = Random(0xba7c4);
    let mut samples = 0;
    for entry in samples::catalogue() {
        for sample in &entry.samples {
            samples += check(entry.name, sample, DType::F64, &mut random);
        }
    }
    assert!(samples > 300, "{samples}");
}

/// In the narrower floats, where each result is rounded.
#[test]
fn every_op_is_its_loop_in_every_float_dtype() {
    let mut random = Random(0xf10a7);
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        for entry in samples::catalogue() {
            for sample in &entry.samples {
                let single = sample.literals(dtype, 1);
                if sample.infer(&types(&single)).is_err() {
                    continue;
                }
                for batched in choices(single.len()) {
                    let inputs = inputs_of(sample, &batched, dtype, random.bits());
                    compare(&format!("{} {:?} in {dtype}", entry.name, sample.op), &inputs, &|x| {
                        apply(sample, x)
                    });
                }
            }
        }
    }
}

/// A map within a map, each over its own choice of operands. The outer map equals the loop of the
/// inner one.
#[test]
fn every_op_is_its_loop_in_a_map_of_maps() {
    let mut random = Random(0x2ba7c4);
    for entry in samples::catalogue() {
        for sample in &entry.samples {
            let single = sample.literals(DType::F64, 1);
            if sample.infer(&types(&single)).is_err() {
                continue;
            }
            for inner in choices(single.len()) {
                let outer: Vec<Vec<bool>> = choices(single.len()).collect();
                let outer = &outer[random.below(outer.len())];
                let seed = random.bits();
                let inputs: Vec<Vec<Literal>> = (0..single.len())
                    .map(|i| {
                        // Two examples of the inner map in each example of the outer one.
                        let each =
                            examples(sample, i, DType::F64, seed ^ (i as u64) << 32, 2 * COUNT);
                        let pairs = each
                            .chunks(2)
                            .map(|p| if inner[i] { stack(p, 0) } else { p[0].clone() });
                        pairs.take(if outer[i] { COUNT } else { 1 }).collect()
                    })
                    .collect();
                let axes: Vec<Option<usize>> = inner.iter().map(|b| b.then_some(0)).collect();
                let what = format!(
                    "a map of {inner:?} in one of {outer:?} of {} {:?}",
                    entry.name, sample.op
                );
                compare(&what, &inputs, &|x| {
                    vmap_axes(&x.to_vec(), axes.as_slice(), 0, |x: &Vec<Tensor>| apply(sample, x))
                });
            }
        }
    }
}
