//! Sums over many rows, in the kernel that computes the rows: totals of bands.

use super::run;
use super::shapes::{f32s, layer_norm};
use wengert_compiler::autodiff::operators::vjp;
use wengert_compiler::kernels::{Kernels, Work};
use wengert_compiler::pipeline::{Options, compile_kernels};
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::Function;
use wengert_core::{Literal, Target};
use wengert_testing::{Random, targets};

fn compiled(function: &Function, target: &Target, fuse: bool) -> Kernels {
    let options = Options { fuse, ..Options::default() };
    compile_kernels(function, target, &options).unwrap_or_else(|e| panic!("{e}")).kernels
}

fn nests(kernels: &Kernels) -> Vec<String> {
    let text = |work: &Work| match work {
        Work::Nest(nest) => nest.to_string(),
        Work::Call(_) | Work::Followed(_) | Work::Control(_) => panic!("a call:\n{kernels}"),
    };
    kernels.kernels.iter().map(|kernel| text(&kernel.work)).collect()
}

/// The gradients of a norm, and the sum over the rows of the gradient that goes on.
fn gradients(shape: &[usize]) -> Function {
    let columns = shape[shape.len() - 1];
    let rows: Vec<usize> = (0..shape.len() - 1).collect();
    FunctionBuilder::build("f", |f| {
        let x = f.input("x", f32s(shape));
        let (scale, bias) = (f.input("scale", f32s(&[columns])), f.input("bias", f32s(&[columns])));
        let (cotangent, beside) = (f.input("c", f32s(shape)), f.input("beside", f32s(shape)));
        let (_, back) = vjp(&(x, scale, bias), |(x, scale, bias)| layer_norm(x, scale, bias));
        let (dx, dscale, dbias) = back(&cotangent);
        let stream = dx + beside;
        f.output("sum", stream.sum_axes(&rows));
        f.output("stream", stream);
        f.output("dscale", dscale);
        f.output("dbias", dbias);
    })
    .unwrap()
}

fn random_inputs(function: &Function) -> Vec<Literal> {
    let mut random = Random(5);
    let types = (0..function.inputs.len()).map(|n| function.input_type(n));
    types.map(|ty| random.elements(ty)).collect()
}

#[test]
fn the_gradients_of_a_norm_are_totals_of_its_kernel() {
    let target = targets::gpu();
    for shape in [&[1024, 128][..], &[2, 512, 192], &[64, 6, 4, 130]] {
        let function = gradients(shape);
        let kernels = compiled(&function, &target, true);
        let nests = nests(&kernels);
        assert_eq!(nests[0].matches("total sum tree(4)").count(), 3, "{kernels}");
        // The sums over the bands.
        assert!(nests.len() <= 4, "{kernels}");
        assert!(nests[1..].iter().all(|nest| !nest.contains("total")), "{kernels}");
    }
}

#[test]
fn bits_do_not_depend_on_who_adds_the_rows() {
    let target = targets::gpu();
    for shape in [&[1024, 128][..], &[2, 516, 192]] {
        let function = gradients(shape);
        let inputs = random_inputs(&function);
        let fused = compiled(&function, &target, true);
        let alone = compiled(&function, &target, false);
        assert!(nests(&alone).iter().all(|nest| !nest.contains("total")), "{alone}");
        assert_eq!(run(&fused, &inputs), run(&alone, &inputs), "{fused}");
    }
}

#[test]
fn without_bands_there_are_no_totals() {
    let few_rows = gradients(&[512, 128]);
    let narrow = gradients(&[1024, 64]);
    let wide = gradients(&[1024, 1030]);
    let other = gradients(&[1022, 128]);
    for function in [few_rows, narrow, wide, other] {
        let kernels = compiled(&function, &targets::gpu(), true);
        assert!(nests(&kernels).iter().all(|nest| !nest.contains("total")), "{kernels}");
    }
    let invariant = Target { batch_invariant: true, ..targets::gpu() };
    let none = Target { band_rows: 0, ..targets::gpu() };
    for target in [invariant, none, Target::cpu()] {
        let kernels = compiled(&gradients(&[1024, 128]), &target, true);
        assert!(nests(&kernels).iter().all(|nest| !nest.contains("total")), "{kernels}");
    }
}

/// What reads a total waits for the kernel, even if it has an element for each of its rows.
#[test]
fn a_total_is_not_read_where_it_is_made() {
    let function = FunctionBuilder::build("f", |f| {
        // 1024 rows of 256 columns, in 256 bands of 4 rows: as many totals as 256 rows have
        // elements.
        let x = f.input("x", f32s(&[256, 4, 256]));
        let sums = x.sum_axes(&[2]);
        let scaled = &x * sums.restore_axes(x.shape(), &[2]);
        let totals = scaled.sum_axes(&[1]);
        f.output("y", &totals * 2.0);
        f.output("scaled", scaled);
    })
    .unwrap();
    let kernels = compiled(&function, &targets::gpu(), true);
    let nests = nests(&kernels);
    assert_eq!(nests.len(), 2, "{kernels}");
    assert!(nests[0].contains("total sum tree(4)"), "{kernels}");
    let inputs = random_inputs(&function);
    let alone = compiled(&function, &targets::gpu(), false);
    assert_eq!(run(&kernels, &inputs), run(&alone, &inputs));
}
