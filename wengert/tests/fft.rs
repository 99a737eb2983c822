//! Fourier transforms: identities, the cost of derivatives, batches, and mistakes. `oracles`
//! compares values and derivatives with JAX.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use wengert::core::Target;
use wengert::core::graph::{Body, Function, Program as Functions};
use wengert::fft::{Complex, fft, ifft, irfft, rfft};
use wengert::pipeline::{Options, compile_kernels};
use wengert::prelude::*;
use wengert::random::SplitMix64;

const LENGTHS: [usize; 12] = [1, 2, 3, 4, 5, 8, 12, 17, 60, 97, 128, 131];

fn random(shape: &[usize], dtype: DType, seed: u64) -> Literal {
    let mut random = SplitMix64::new(seed);
    let values =
        (0..shape.iter().product()).map(|_| random.unit_f64() * 2.0 - 1.0).collect::<Vec<f64>>();
    Literal::from_vec(shape, values).unwrap().convert(dtype)
}

fn build(types: &[TensorType], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Result<Function> {
    FunctionBuilder::build("f", |b| {
        let x: Vec<Tensor> =
            types.iter().enumerate().map(|(i, ty)| b.input(&format!("x{i}"), ty.clone())).collect();
        for (i, y) in f(&x).into_iter().enumerate() {
            b.output(&format!("y{i}"), y);
        }
    })
}

fn run(inputs: &[Literal], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Vec<Vec<f64>> {
    let types: Vec<TensorType> = inputs.iter().map(Literal::ty).collect();
    let program = Functions::from_functions(vec![build(&types, f).unwrap()]).unwrap();
    let names: Vec<String> = (0..inputs.len()).map(|i| format!("x{i}")).collect();
    let given: Vec<(&str, &Literal)> = names.iter().map(String::as_str).zip(inputs).collect();
    let mut session = Session::open(Device::Cpu).unwrap();
    let outputs = session.compile(&program, "f", bind!()).unwrap().run(&given).unwrap();
    outputs
        .into_values()
        .unwrap()
        .iter()
        .map(|l| l.scalars().map(|s| s.to_f64()).collect())
        .collect()
}

fn pair(x: &[Tensor]) -> Complex {
    (x[0].clone(), x[1].clone())
}

fn tensors((re, im): Complex) -> Vec<Tensor> {
    vec![re, im]
}

fn assert_close(a: &[f64], b: &[f64], tolerance: f64, what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    let scale = b.iter().fold(1f64, |s, v| s.max(v.abs()));
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= tolerance * scale, "{what}: {a} and {b}, scale {scale}");
    }
}

fn norm(parts: &[Vec<f64>]) -> f64 {
    parts.iter().flatten().map(|v| v * v).sum()
}

#[test]
fn transforms_are_inverses_and_keep_the_norm() {
    for (dtype, tolerance) in [(DType::F64, 1e-14), (DType::F32, 3e-6)] {
        for n in LENGTHS {
            let x = [random(&[2, n], dtype, 1), random(&[2, n], dtype, 2)];
            let given: Vec<Vec<f64>> =
                x.iter().map(|l| l.scalars().map(|s| s.to_f64()).collect()).collect();
            let found = run(&x, |x| {
                let spectrum = fft(&pair(x));
                let again = ifft(&spectrum);
                let half = rfft(&x[0]);
                [tensors(spectrum), tensors(again), vec![irfft(&half, n)], tensors(half)].concat()
            });
            let what = format!("length {n} of {dtype}");
            assert_close(&found[2], &given[0], tolerance, &what);
            assert_close(&found[3], &given[1], tolerance, &what);
            assert_close(&found[4], &given[0], tolerance, &what);
            let parseval = norm(&found[..2]) / n as f64;
            assert!(
                (parseval - norm(&given)).abs() <= tolerance * 10.0 * norm(&given),
                "{what}: {parseval}"
            );
        }
    }
}

#[test]
fn a_transform_is_the_sum_that_defines_it() {
    for n in LENGTHS {
        let x = [random(&[n], DType::F64, 3), random(&[n], DType::F64, 4)];
        let found = run(&x, |x| tensors(fft(&pair(x))));
        let part = |i: usize, j: usize| x[i].get(j).to_f64();
        let sum = |k: usize| {
            (0..n).fold((0.0, 0.0), |(re, im), j| {
                let (s, c) =
                    (-2.0 * std::f64::consts::PI * ((j * k % n) as f64 / n as f64)).sin_cos();
                (re + part(0, j) * c - part(1, j) * s, im + part(0, j) * s + part(1, j) * c)
            })
        };
        let (re, im): (Vec<f64>, Vec<f64>) = (0..n).map(sum).unzip();
        assert_close(&found[0], &re, 1e-13, &format!("length {n}"));
        assert_close(&found[1], &im, 1e-13, &format!("length {n}"));
    }
}

/// Multiplications of the products in a body, for bound shapes.
fn products(body: &Body) -> usize {
    let of = |e: &wengert::core::graph::Equation| match &e.op {
        wengert::core::Op::DotGeneral(op) => {
            let extents = body.ty(e.operands[0]).extents().unwrap();
            let summed: usize = op.contract.0.iter().map(|axis| extents[*axis]).product();
            summed * body.ty(e.results[0]).elements().unwrap()
        }
        _ => 0,
    };
    body.equations.iter().map(of).sum()
}

fn compiled(function: &Function) -> Function {
    compile_kernels(function, &Target::cpu(), &Options::default()).unwrap().function
}

#[test]
fn a_derivative_costs_what_the_transform_costs_and_keeps_nothing() {
    for n in [64, 60, 4096, 97] {
        let ty = TensorType::new(DType::F64, [8, n]);
        let two = [ty.clone(), ty.clone()];
        let four = [two.clone(), two.clone()].concat();
        let forward = compiled(&build(&two, |x| tensors(fft(&pair(x)))).unwrap());
        let tangent =
            compiled(&build(&four, |x| tensors(jvp(&pair(x), &pair(&x[2..]), fft).1)).unwrap());
        let cotangent =
            compiled(&build(&four, |x| tensors(vjp(&pair(x), fft).1(&pair(&x[2..])))).unwrap());
        for (what, derivative) in [("forward", &tangent), ("reverse", &cotangent)] {
            let what = format!("{what} mode of length {n}");
            assert_eq!(products(&derivative.body), products(&forward.body), "{what}");
            let (more, few) = (derivative.body.equations.len(), forward.body.equations.len());
            assert!(more <= few + few / 10 + 2, "{what}: {more} equations, {few}\n{derivative}");
            let uses = |v| derivative.body.equations.iter().any(|e| e.operands.contains(&v));
            assert!(!uses(derivative.body.inputs[0]) && !uses(derivative.body.inputs[1]), "{what}");
        }
    }
}

#[test]
fn work_grows_little_faster_than_the_length() {
    let work = |n: usize| {
        let ty = TensorType::new(DType::F64, [n]);
        products(&build(&[ty.clone(), ty], |x| tensors(fft(&pair(x)))).unwrap().body) as f64
            / n as f64
    };
    assert!(work(1 << 16) <= 4.0 * work(16), "{}", work(1 << 16));
    assert!(work(3 * 5 * 7 * 11 * 13) <= 5.0 * work(16), "{}", work(15015));
    // A prime extent, for which a DFT matrix alone would have 10¹⁰ numbers.
    assert!(work(100_003) <= 40.0 * work(16), "{}", work(100_003));
}

#[test]
fn leading_axes_maps_and_variables_are_batches() {
    let x = [random(&[3, 2, 12], DType::F64, 5), random(&[3, 2, 12], DType::F64, 6)];
    let whole = run(&x, |x| tensors(fft(&pair(x))));
    let mapped = run(&x, |x| {
        let outer = |z: &Complex| vmap(z, fft);
        tensors(vmap(&pair(x), outer))
    });
    for (a, b) in whole.iter().zip(&mapped) {
        assert_close(a, b, 1e-15, "vmap");
    }
    let mut program = Program::new();
    program
        .function("f", |f| {
            let z = (f.input("re", f64("B,12")), f.input("im", f64("B,12")));
            f.output("re", fft(&z).0);
        })
        .unwrap();
    let flat =
        |l: &Literal| Literal::from_vec(&[6, 12], l.as_slice::<f64>().unwrap().to_vec()).unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    let mut f = session.compile(&program, "f", bind!(B = 6)).unwrap();
    let found = f.run(&[("re", flat(&x[0])), ("im", flat(&x[1]))]).unwrap();
    let found: Vec<f64> = found.get("re").unwrap().scalars().map(|s| s.to_f64()).collect();
    assert_close(&found, &whole[0], 1e-15, "a variable");
}

#[test]
fn per_example_gradients_go_through_a_transform() {
    let x = [random(&[4, 12], DType::F64, 7)];
    let power = |x: &Tensor| {
        let (re, im) = rfft(x);
        (re.square() + im.square()).sin().sum()
    };
    let all = run(&x, |x| vec![grad(&x[0], power)]);
    let each = run(&x, |x| vec![vmap(&x[0], |row| grad(row, power))]);
    assert_close(&each[0], &all[0], 1e-13, "vmap of grad");
}

#[test]
fn mistakes_are_explained() {
    let error = |ty: TensorType, f: fn(&Tensor) -> Tensor| {
        build(&[ty], |x| vec![f(&x[0])]).unwrap_err().to_string()
    };
    let doubles = |shape: &[usize]| TensorType::new(DType::F64, shape.iter().copied());
    let text = error(TensorType::new(DType::F16, [4usize]), |x| rfft(x).0);
    assert!(text.contains("f16") && text.contains("f32 or f64"), "{text}");
    assert!(text.contains("fft.rs"), "{text}");
    let text = error(doubles(&[]), |x| rfft(x).0);
    assert!(text.contains("along axis 0"), "{text}");
    let text = error(doubles(&[0]), |x| rfft(x).0);
    assert!(text.contains("of no elements"), "{text}");
    let text = error(doubles(&[4]), |x| fft(&(x.clone(), x.slice_axis(0, 0, 2))).0);
    assert!(text.contains("one dtype and shape"), "{text}");
    let text = error(doubles(&[4]), |x| irfft(&(x.clone(), x.clone()), 8));
    assert!(text.contains("not 5 as for a series of length 8"), "{text}");
    let text = error(TensorType::new(DType::F64, [Dim::variable("N")]), |x| rfft(x).0);
    assert!(text.contains("has to be a number"), "{text}");
}
