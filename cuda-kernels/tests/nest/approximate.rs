//! Approximate instructions: they are emitted on request alone, `ptxas` accepts them, and their
//! errors are within the stated bounds, which the certificate of a function counts.

use crate::emulate::run_on;
use crate::lowered::nests_for;
use crate::{assemble, sources};
use wengert_ci::gate::{Allowed, Source, assemble as run_ptxas};
use wengert_compiler::certificate::worst_case;
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::Function;
use wengert_core::interpret::Cell;
use wengert_core::nest::approximate::ErrorBound;
use wengert_core::nest::{Nest, ScalarOp};
use wengert_core::target::Approximations;
use wengert_core::{DType, Literal, Scalar, Target, Tensor, TensorType};
use wengert_cuda::nest::Options;
use wengert_cuda::target::target;
use wengert_emulator::{self as emulator, Emulator};

/// The instructions of PTX that stand for functions.
const PTX: [&str; 5] = ["ex2.approx", "lg2.approx", "tanh.approx", "sqrt.approx", "div.full"];

fn approximate_instructions() -> impl Iterator<Item = ScalarOp> {
    ScalarOp::ALL.iter().copied().filter(|op| op.is_approximate())
}

/// Emulators that round approximate results to the nearest number, and that do not.
fn emulators() -> Vec<(Emulator, &'static str)> {
    [
        (emulator::Approximations::Nearest, "nearest"),
        (emulator::Approximations::Seeded(1), "seed 1"),
        (emulator::Approximations::Seeded(2), "seed 2"),
    ]
    .map(|(approximations, name)| {
        let options = emulator::Options { approximations, ..emulator::Options::default() };
        (Emulator::new(options), name)
    })
    .into()
}

/// A function of one tensor.
fn function(name: &str, shape: [usize; 2], of: impl Fn(&Tensor) -> Tensor) -> Function {
    let built = FunctionBuilder::build(name, |f| {
        let x = f.input("x", TensorType::new(DType::F32, shape));
        f.output("y", of(&x));
    });
    built.unwrap()
}

/// Functions of one nest each.
fn functions() -> Vec<Function> {
    let shape = [3, 40];
    let norm = |x: &Tensor| {
        let back = |t: Tensor| t.restore_axes(x.shape(), &[1]);
        let centred = x - &back(x.mean_axes(&[1]));
        let deviation = (&(&centred * &centred).mean_axes(&[1]) + 1e-5).sqrt();
        &centred / &back(deviation)
    };
    vec![
        function("softmax", shape, |x| x.softmax(1)),
        function("log_softmax", shape, |x| x.log_softmax(1)),
        function("gelu", shape, Tensor::gelu_tanh),
        function("norm", shape, norm),
        function("tanh", shape, Tensor::tanh),
        function("logistic", shape, Tensor::logistic),
        function("log", shape, |x| (x.square() + 0.25).log()),
        function("rsqrt", shape, |x| (x.square() + 0.25).rsqrt()),
    ]
}

fn targets(architecture: &str) -> [Target; 2] {
    let exact = target(architecture);
    [exact.clone(), exact.with_approximate_functions()]
}

fn text(nests: &[Nest]) -> String {
    let nests: Vec<_> = nests.iter().map(|nest| (nest.clone(), Options::default())).collect();
    assemble::module(&nests).to_string()
}

#[test]
fn are_emitted_on_request_alone() {
    let mut found = [false; PTX.len()];
    for function in functions() {
        let [exact, approximate] =
            targets("sm_80").map(|target| text(&nests_for(function.clone(), &target)));
        assert!(!PTX.iter().any(|name| exact.contains(name)), "{exact}");
        let mut has_one = false;
        for (name, found) in PTX.iter().zip(&mut found) {
            has_one |= approximate.contains(name);
            *found |= approximate.contains(name);
        }
        assert!(has_one, "@{} has no approximate instruction", function.name);
    }
    assert_eq!(found, [true; PTX.len()]);
}

/// Halves are computed in f32, and f64 has no such instruction.
#[test]
fn halves_have_them_and_f64_does_not() {
    let [_, approximate] = targets("sm_90");
    for (dtype, has) in [(DType::F16, true), (DType::BF16, true), (DType::F64, false)] {
        let function = function("f", [4, 4], |x| {
            let x = x.convert(dtype);
            (x.exp() / (x.square() + 1.0)).tanh().convert(DType::F32)
        });
        let text = text(&nests_for(function, &approximate));
        assert_eq!(PTX.iter().any(|name| text.contains(name)), has, "{dtype}\n{text}");
    }
}

#[test]
fn are_accepted_by_ptxas() {
    let mut nests: Vec<Nest> = approximate_instructions().map(nest_of).collect();
    for architecture in ["sm_80", "sm_90"] {
        let [_, approximate] = targets(architecture);
        nests.extend(functions().into_iter().flat_map(|f| nests_for(f, &approximate)));
    }
    let architectures = ["sm_80", "sm_90"]
        .map(|name| wengert_cuda::architecture::Architecture::from_name(name).unwrap());
    let source =
        Source { architectures: architectures.into(), ..Source::new("approximate", text(&nests)) };
    let report = run_ptxas(&[source], &Allowed::of_the_repository().unwrap()).unwrap();
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
    assert!(!report.measures.is_empty());
}

/// Numbers of every sign and exponent, and many between 2⁻⁶ and 2⁷.
fn operands() -> Vec<f32> {
    let wide = (0..=255u32).flat_map(|exponent| {
        [0, 1, 0x2a_aaaa, 0x7f_ffff]
            .into_iter()
            .flat_map(move |part| [0, 1 << 31].map(|sign| sign | exponent << 23 | part))
            .map(f32::from_bits)
    });
    let near = (0..4000).map(|n| (n as f32 * 0.003_257 - 6.0).exp2());
    let near = near.flat_map(|x| [x, -x]);
    wide.chain(near).collect()
}

fn nest_of(op: ScalarOp) -> Nest {
    let dtypes = vec![DType::F32; op.arity()];
    let count = operands().len();
    sources::scalar_nest(op, &dtypes, DType::F32, count)
}

fn exact(op: ScalarOp, [x, y]: [f64; 2]) -> f64 {
    match op {
        ScalarOp::ApproxExp => x.exp(),
        ScalarOp::ApproxLog => x.ln(),
        ScalarOp::ApproxTanh => x.tanh(),
        ScalarOp::ApproxSqrt => x.sqrt(),
        ScalarOp::ApproxDiv => x / y,
        _ => unreachable!("`{}` is not approximate", op.name()),
    }
}

/// Whatever the errors of the machine's instructions, within those that the PTX ISA states, the
/// results are within the bounds. Those of the seeded emulator are not within half of them.
#[test]
fn results_are_within_the_bounds() {
    let left = operands();
    let right: Vec<f32> = (0..left.len()).map(|n| left[(n * 7919 + 11) % left.len()]).collect();
    let columns =
        [&left, &right].map(|column| Literal::from_vec(&[column.len()], column.clone()).unwrap());
    for op in approximate_instructions() {
        let bound = ErrorBound::of(op).unwrap();
        for (emulator, name) in emulators() {
            let options = Options::default();
            let inputs = &columns[..op.arity()];
            let results = run_on(&emulator, &nest_of(op), &options, inputs, &[]);
            let mut greatest = 0.0f64;
            for (n, (x, y)) in left.iter().zip(&right).enumerate() {
                let (x, y) = (f64::from(*x), f64::from(*y));
                let (exact, found) = (exact(op, [x, y]), results[0].get(n).to_f64());
                let what = format!("{} of {x:e}, {y:e} ({name}): {found:e}", op.name());
                if !exact.is_finite() {
                    let is_same = found == exact || found.is_nan() && exact.is_nan();
                    assert!(is_same, "{what}, not {exact:e}");
                    continue;
                }
                let most = bound.at(x, exact);
                if exact.abs() + most > f32::MAX.into() && found.is_infinite() {
                    assert_eq!(found.signum(), exact.signum(), "{what}");
                    continue;
                }
                let error = (found - exact).abs();
                assert!(error <= most, "{what}, not {exact:e}: {error:e} > {most:e}");
                if most > 0.0 {
                    greatest = greatest.max(error / most);
                }
            }
            assert!(name == "nearest" || greatest > 0.5, "{}: {greatest}", op.name());
        }
    }
}

/// Random numbers of a few units.
fn input(seed: usize) -> Literal {
    let values = (0..120usize)
        .map(|n| (((n * 7919 + seed * 104_729 + 13) % 1009) as f32 / 1009.0 - 0.5) * 8.0)
        .collect();
    Literal::from_vec(&[3, 40], values).unwrap()
}

/// With the option, the bound of the certificate holds on emulators that err as much as the PTX ISA
/// allows. Without it, some result exceeds the bound, which is smaller.
#[test]
fn certificates_count_their_errors() {
    let mut exceeds = 0;
    for function in functions() {
        let [_, approximate] = targets("sm_90");
        let nests = nests_for(function.clone(), &approximate);
        assert_eq!(nests.len(), 1, "@{}", function.name);
        for seed in 0..2 {
            let inputs = [input(seed)];
            let [without, with] = [Approximations::None, Approximations::Used]
                .map(|used| worst_case(&function, &inputs, used).unwrap());
            let [least, most] = [&without, &with].map(|bounds| bounds.error(0).unwrap());
            assert!(least < most, "@{}: {least:e}, not below {most:e}", function.name);
            for (emulator, name) in emulators() {
                let results = run_on(&emulator, &nests[0], &Options::default(), &inputs, &[]);
                for (n, cell) in with.outputs[0].cells.iter().enumerate() {
                    let Cell::Real(number) = cell else { panic!("an output of f32") };
                    let Cell::Real(narrow) = &without.outputs[0].cells[n] else {
                        panic!("an output of f32")
                    };
                    let found: Scalar = results[0].get(n);
                    let error = (found.to_f64() - number.value).abs();
                    assert!(
                        error <= number.error(),
                        "@{} {name}, element {n}: {error:e} > {:e}",
                        function.name,
                        number.error()
                    );
                    exceeds += u32::from(error > narrow.error());
                }
            }
        }
    }
    assert!(exceeds > 0, "no error is beyond the bounds of exact functions");
}
