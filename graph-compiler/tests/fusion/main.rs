//! Kernels compute the same as the graph, and the same bits with and without fusion.

#![allow(clippy::unwrap_used)]

mod attention;
mod bands;
mod followed;
mod random;
mod shapes;

use wengert_compiler::kernels::{Kernels, interpret};
use wengert_compiler::pipeline::{Options, compile_kernels};
use wengert_core::graph::{Function, InputRole, Output, OutputRole, verify};
use wengert_core::{Binding, DType, Literal, LocationTable, Mesh, Op, Scalar, Target, TensorType};
use wengert_testing::programs::random_program;
use wengert_testing::samples::{self, SampleOperand};
use wengert_testing::{Random, naive};

/// The kernels of a function, with or without fusion.
fn compiled(function: &Function, fuse: bool) -> Kernels {
    let options = Options { fuse, ..Options::default() };
    compile_kernels(function, &Target::cpu(), &options).unwrap_or_else(|e| panic!("{e}")).kernels
}

/// The kernels of a function without passes, one for each equation.
fn plain(function: &Function) -> Kernels {
    let fuel = ["simplify", "cse", "dce"].map(|pass| (pass.to_string(), 0)).into();
    let options = Options { fuse: false, fuel, ..Options::default() };
    compile_kernels(function, &Target::cpu(), &options).unwrap_or_else(|e| panic!("{e}")).kernels
}

fn run(kernels: &Kernels, inputs: &[Literal]) -> Vec<Literal> {
    interpret::interpret(kernels, inputs, &mut |c, o| naive::execute(c, o))
        .unwrap_or_else(|e| panic!("{e}\n{kernels}"))
}

/// Asserts that results agree within the bounds of functions, and of sums in different orders.
fn assert_close(a: &Literal, b: &Literal, what: &str) {
    assert_eq!(a.ty(), b.ty(), "{what}");
    let tolerance = match a.dtype() {
        DType::F64 => 1e-11,
        DType::F32 => 2e-5,
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        _ => 0.0,
    };
    for (n, (x, y)) in a.scalars().zip(b.scalars()).enumerate() {
        let (p, q) = (x.to_f64(), y.to_f64());
        let same = p == q
            || (p.is_nan() && q.is_nan())
            || (p - q).abs() <= tolerance * (1.0 + p.abs().max(q.abs()));
        assert!(same, "{what}: element {n} is {x}, expected {y}");
    }
}

/// A function of one equation. Its operands are inputs.
fn one_equation(op: &Op, operands: &[TensorType]) -> Function {
    use wengert_core::graph::{Body, Equation, Input};
    let mut body = Body::default();
    let mut inputs = Vec::new();
    for (n, ty) in operands.iter().enumerate() {
        let value = body.values.push(ty.clone());
        body.inputs.push(value);
        let location = wengert_core::LocationId(0);
        inputs.push(Input { name: format!("x{n}"), role: InputRole::Input, location });
    }
    let results: Vec<_> =
        op.infer(operands, &[]).unwrap().into_iter().map(|ty| body.values.push(ty)).collect();
    let outputs = (0..results.len())
        .map(|n| Output { name: n.to_string(), role: OutputRole::Output })
        .collect();
    body.outputs = results.clone();
    body.equations.push(Equation {
        op: op.clone(),
        operands: body.inputs.clone(),
        results,
        regions: vec![],
        location: wengert_core::LocationId(0),
    });
    let (name, mesh, locations) = ("f".into(), Mesh::default(), LocationTable::default());
    let function = Function { name, mesh, inputs, outputs, body, locations };
    verify(&function).unwrap();
    function
}

#[test]
fn every_sample_of_every_op() {
    for entry in samples::catalogue() {
        for (n, sample) in
            entry.samples.iter().enumerate().filter(|(_, s)| *s.op.region_count().end() == 0)
        {
            let has_floats =
                sample.operands.iter().any(|o| matches!(o, SampleOperand::Float { .. }));
            let dtypes = [DType::F32, DType::F64, DType::F16, DType::BF16];
            for dtype in if has_floats { &dtypes[..] } else { &dtypes[..1] } {
                let operands = sample.literals(*dtype, n as u64);
                let types: Vec<TensorType> = operands.iter().map(Literal::ty).collect();
                if sample.infer(&types).is_err() {
                    continue;
                }
                let function = one_equation(&sample.op, &types);
                let wanted = wengert_core::interpret::run(&function, &operands).unwrap();
                let found = run(&compiled(&function, false), &operands);
                for (f, w) in found.iter().zip(&wanted) {
                    assert_close(f, w, &format!("{} sample {n} of {dtype}", entry.name));
                }
                assert_eq!(
                    run(&compiled(&function, true), &operands),
                    found,
                    "{} sample {n} of {dtype}",
                    entry.name
                );
            }
        }
    }
}

#[test]
fn random_programs_have_the_same_bits_however_they_are_compiled() {
    let binding = Binding::new().with("B", 3).with("T", 2);
    for seed in 0..150 {
        let program = random_program(seed, 3 + seed as usize % 25);
        for function in program.functions() {
            // A shape rule may fail for a binding although it holds for the dimension variables.
            let Ok(function) = function.bind(&binding) else { continue };
            let mut random = Random(seed);
            let inputs: Vec<Literal> = (0..function.inputs.len())
                .map(|n| random.elements(function.input_type(n)))
                .collect();
            let unfused = run(&compiled(&function, false), &inputs);
            let fused = run(&compiled(&function, true), &inputs);
            assert_eq!(unfused, fused, "seed {seed}");
            // Rewriting changes no bit either, except those of NaNs.
            for (plain, fused) in run(&plain(&function), &inputs).iter().zip(&fused) {
                let same = |(a, b): (Scalar, Scalar)| {
                    a == b || (a.to_f64().is_nan() && b.to_f64().is_nan())
                };
                assert!(
                    plain.scalars().zip(fused.scalars()).all(same),
                    "seed {seed}: {plain}, rewritten {fused}"
                );
            }
        }
    }
}

/// As the gates of a recurrent network: values that are concatenated for a product form one kernel.
/// Each element of a part has one use, regardless of the other part.
#[test]
fn what_is_put_side_by_side_for_a_product_is_one_kernel() {
    let part = "f32[32,64]";
    let mut text =
        format!("func @f(%x: {part}, %y: {part}, %w: f32[128,8]) -> (z: f32[32,8]) {{\n");
    text += &format!(
        "%0: f32[] = constant {{value=f32[] 1.0}}\n\
         %1: {part} = broadcast_in_dim %0 {{shape=[32,64]}}\n"
    );
    for (n, [a, b]) in [["%x", "%y"], ["%y", "%x"]].iter().enumerate() {
        let at = |k: usize| 2 + 5 * n + k;
        text += &format!("%{}: {part} = sub %1, {a}\n", at(0));
        text += &format!("%{}: {part} = mul {a}, %{}\n", at(1), at(0));
        text += &format!("%{}: {part} = mul %{}, {b}\n", at(2), at(1));
        text += &format!("%{}: {part} = add %{}, {a}\n", at(3), at(2));
        text += &format!("%{}: {part} = mul %{}, {b}\n", at(4), at(3));
    }
    text += "%12: f32[32,128] = concatenate %6, %11 {axis=1}
             %13: f32[32,8] = dot_general %12, %w {contract=[[1],[0]]}
             return %13 }";
    let program =
        wengert_core::graph::parse_program(&text, "test.ir").unwrap_or_else(|e| panic!("{e}"));
    let kernels = compiled(&program.functions()[0], true);
    assert_eq!(kernels.kernels.len(), 2, "{kernels}");
}

/// The same function of several parts of one tensor, in one place of the source. The parts are
/// different values, not one value computed twice.
#[test]
fn functions_of_several_parts_of_a_tensor_are_one_kernel() {
    let function = wengert_core::build::FunctionBuilder::build("f", |f| {
        let x = f.input("x", TensorType::new(DType::F32, [32usize, 128]));
        let [a, b] = [0, 64].map(|from| x.slice_axis(1, from, from + 64).tanh());
        f.output("a", a.clone());
        f.output("b", b.clone());
        f.output("ab", a * b);
    })
    .unwrap();
    assert_eq!(compiled(&function, true).kernels.len(), 1);
}
