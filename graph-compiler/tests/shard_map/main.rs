//! Values and derivatives of collectives against JAX's `shard_map`, in double precision, on 4 and
//! on 2 × 2 ranks. `generate.py` wrote `jax.txt`, and draws points in the same way as this file.
//!
//! Types are compared with JAX's too: a result varies over the same axes. JAX's derivatives are
//! taken inside of `shard_map` with `check_vma=True`. There the conventions of both systems agree:
//!
//! - A cotangent varies over the axes of its primal. That of an invariant input is the sum over the
//!   ranks, and a cotangent of an invariant result counts once for all ranks.
//! - Without `check_vma`, JAX transposes `psum` to `psum`. The numbers then differ by a factor of
//!   the number of ranks. Nothing here follows that convention.
//! - JAX has no derivative of `pmax` and `pmin`, so only their values are compared. `ranks.rs`
//!   compares their derivatives with differences.
//! - JAX 0.10.2 fails to transpose an `all_to_all` that is not tiled and has different axes. The
//!   reference is the transpose of an equal function.
//! - The pairs of our `ppermute` number ranks along the axes that it names, as `axis_index` does
//!   in both systems. JAX 0.10.2 numbers them in the order of the mesh's axes, so the reference
//!   translates the pairs.
//!
//! Points are multiples of 1/32. So results of functions that are linear are exact in any order of
//! additions, and are compared bit for bit. Other results have errors of the order of 2⁻⁵²:
//! elementary functions and products of matrices are rounded differently.
#![allow(clippy::print_stdout)] // Prints the greatest error that was found.
#![allow(clippy::unwrap_used)] // Helpers outside of `#[test]` functions unwrap too.

mod cases;

use cases::{Case, Kind, cases};
use std::collections::{BTreeMap, BTreeSet};
use wengert_compiler::autodiff::operators::{jvp, vjp};
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::Function;
use wengert_core::interpret::run_ranks;
use wengert_core::{Literal, Mesh, Tensor, TensorType};
use wengert_testing::Random;

/// Greatest difference of results that are not exact, relative to the greatest element of a result,
/// or to 1 if all are less.
const TOLERANCE: f64 = 16.0 * f64::EPSILON;

/// Multiples of 1/32 in [−2, 2), as `generate.py` draws them.
fn draw(name: &str, count: usize) -> Vec<f64> {
    let hash = |state: u64, byte| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut random = Random(name.bytes().fold(0xcbf2_9ce4_8422_2325, hash));
    (0..count).map(|_| ((random.bits() >> 57) as f64 - 64.0) / 32.0).collect()
}

/// The position of each rank among the ranks that differ along the axes of a type.
fn places(mesh: &Mesh, ty: &TensorType) -> Vec<usize> {
    let other = mesh.axes().iter().map(|(axis, _)| &**axis);
    let other: Vec<&str> = other.filter(|axis| !ty.varying.contains(axis)).collect();
    let first = |rank| *mesh.group(rank, &other).iter().min().unwrap();
    let firsts: BTreeSet<usize> = (0..mesh.ranks()).map(first).collect();
    (0..mesh.ranks()).map(|rank| firsts.iter().position(|f| *f == first(rank)).unwrap()).collect()
}

/// Drawn tensors of a type on each rank; the same on ranks along other axes.
fn drawn(mesh: &Mesh, name: &str, ty: &TensorType) -> Vec<Literal> {
    let (places, shape) = (places(mesh, ty), ty.extents().unwrap());
    let size = shape.iter().product::<usize>();
    let all = draw(name, size * (places.iter().max().unwrap() + 1));
    let part = |place: &usize| all[place * size..][..size].to_vec();
    places.iter().map(|place| Literal::from_vec(&shape, part(place)).unwrap()).collect()
}

fn build(case: &Case, types: &[TensorType], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Function {
    let built = FunctionBuilder::build("f", |b| {
        b.mesh(case.mesh.axes().iter().cloned());
        let inputs = types.iter().enumerate().map(|(i, ty)| b.input(&format!("x{i}"), ty.clone()));
        let inputs: Vec<Tensor> = inputs.collect();
        for (i, result) in f(&inputs).iter().enumerate() {
            b.output(&format!("y{i}"), result);
        }
    });
    built.unwrap_or_else(|e| panic!("{}: {e}", case.name))
}

/// The function of a case with its derivatives: (keys of the results, function, inputs by rank).
fn with_derivatives(case: &Case) -> (Vec<String>, Function, Vec<Vec<Literal>>) {
    let value = build(case, &case.inputs, |x| (case.function)(x));
    let results: Vec<TensorType> =
        (0..value.outputs.len()).map(|i| value.output_type(i).clone()).collect();
    let mut keys = Vec::new();
    let (mut types, mut given): (Vec<TensorType>, Vec<Vec<Literal>>) = (vec![], vec![]);
    let mut input = |key: &str, of: &[TensorType]| {
        for (i, ty) in of.iter().enumerate() {
            given.push(drawn(&case.mesh, &format!("{}.{key}{i}", case.name), ty));
            types.push(ty.clone());
        }
    };
    input("x", &case.inputs);
    if case.kind != Kind::Value {
        input("t", &case.inputs);
        input("c", &results);
    }
    let function = build(case, &types, |v| {
        let n = case.inputs.len();
        let mut all = Vec::new();
        let mut give = |key: &str, tensors: Vec<Tensor>| {
            keys.extend((0..tensors.len()).map(|i| format!("{key}{i}")));
            all.extend(tensors);
        };
        let f = |x: &Vec<Tensor>| (case.function)(x);
        let x = v[..n].to_vec();
        if case.kind == Kind::Value {
            give("y", f(&x));
            return all;
        }
        let (t, c) = (v[n..2 * n].to_vec(), v[2 * n..].to_vec());
        let pull = |x: &Vec<Tensor>| vjp(x, f).1(&c);
        let (y, ydot) = jvp(&x, &t, f);
        give("y", y);
        give("ydot", ydot);
        match case.kind {
            Kind::Curved => {
                let (xbar, second) = jvp(&x, &t, pull);
                give("xbar", xbar);
                give("second", second);
            }
            _ => give("xbar", pull(&x)),
        }
        all
    });
    let of_rank = |rank: usize| given.iter().map(|on| on[rank].clone()).collect();
    let given = (0..case.mesh.ranks()).map(of_rank).collect();
    (keys, function, given)
}

/// The results of the reference, by case and key: the text of a type, and the values of all ranks
/// that differ.
fn reference(text: &str) -> BTreeMap<String, (&str, Vec<f64>)> {
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let [case, key, ty] = [(); 3].map(|()| words.next().unwrap());
        let values = words.map(|word| word.parse().unwrap()).collect();
        all.insert(format!("{case} {key}"), (ty, values));
    }
    all
}

#[test]
fn collectives_have_the_values_and_derivatives_of_jax() {
    let mut wanted = reference(include_str!("jax.txt"));
    let (mut exact, mut worst) = (0, (0.0, String::new()));
    for case in cases() {
        let (keys, function, given) = with_derivatives(&case);
        let found = run_ranks(&function, &given).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        for (i, key) in keys.iter().enumerate() {
            let at = format!("{} {key}", case.name);
            let Some((ty, wanted)) = wanted.remove(&at) else {
                panic!("{at} is missing in jax.txt")
            };
            assert_eq!(function.output_type(i).to_string(), ty, "{at}");
            let size = function.output_type(i).extents().unwrap().iter().product::<usize>();
            let numerators = case.kind != Kind::Curved && ty.starts_with("f64");
            let scale = if numerators { 128.0 } else { 1.0 };
            let greatest = wanted.iter().fold(1.0f64, |greatest, x| greatest.max(x.abs()));
            let places = places(&case.mesh, function.output_type(i));
            assert_eq!(wanted.len(), size * (places.iter().max().unwrap() + 1), "{at}");
            for (rank, place) in places.into_iter().enumerate() {
                let scaled = found[rank][i].scalars().map(|s| s.to_f64() * scale);
                let numbers: Vec<f64> = scaled.collect();
                let wanted = &wanted[place * size..][..size];
                if case.kind != Kind::Curved {
                    assert_eq!(numbers, wanted, "{at} on rank {rank}");
                    exact += size;
                    continue;
                }
                for (a, b) in numbers.iter().zip(wanted) {
                    let error = (a - b).abs() / greatest;
                    assert!(error <= TOLERANCE, "{at} on rank {rank}: {a}, not {b}");
                    if error > worst.0 {
                        worst = (error, at.clone());
                    }
                }
            }
        }
    }
    assert!(wanted.is_empty(), "jax.txt has more: {:?}", wanted.keys().collect::<Vec<_>>());
    println!("{exact} numbers are equal; the greatest error of others is {worst:?}");
}
