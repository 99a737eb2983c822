//! The kernels of real models and their gradients, at sizes of several thread blocks with
//! remainders: a device against the CPU.
//!
//! The samples of ops are one to four elements wide, so they never reach the second block, the
//! second tile or the second stage of a pipeline. These cases do. Each is a separate test, because
//! a fault on a GPU ends all other work in its process.
//!
//! Devices are the emulated GPU with all its sanitizers, and the device that `WENGERT_TEST_DEVICE`
//! names, such as `cuda:0`. There each function runs in three ways, to the same bits: step by step,
//! captured at the second run, and captured at the first.

use wengert::autodiff::function::{Grad, grad};
use wengert::core::graph::{Function, Program, parse_program};
use wengert::prelude::*;
use wengert::{DeviceOptions, Outputs};
use wengert_testing::Random;
use wengert_testing::random::floats;

/// A function, and whether its gradient is taken too.
struct Case {
    name: &'static str,
    text: &'static str,
    gradient: bool,
}

const fn case(name: &'static str, text: &'static str) -> Case {
    Case { name, text, gradient: false }
}

const fn with_gradient(name: &'static str, text: &'static str) -> Case {
    Case { name, text, gradient: true }
}

/// Defines the list of cases, and a test for each on the requested device.
macro_rules! cases {
    ($($make:ident $name:ident $text:literal)*) => {
        const CASES: &[Case] = &[$($make(stringify!($name), $text)),*];

        mod on_the_device_that_is_asked_for {
            $(#[test]
            fn $name() {
                super::on_the_device_that_is_asked_for(stringify!($name));
            })*
        }
    };
}

// The cheapest and most informative cases first.
cases! {
    case elementwise "func @f(%x: f32[1000,130], %y: f32[130]) -> (z: f32[1000,130]) {
        %0: f32[1000,130] = broadcast_in_dim %y {dims=[1], shape=[1000,130]}
        %1: f32[1000,130] = mul %x, %0
        %2: f32[1000,130] = tanh %1
        return %2
    }"
    with_gradient softmax "func @f(%x: f32[300,1000]) -> (y: f32[300,1000]) {
        %0: f32[300,1000] = softmax %x {axis=1}
        return %0
    }"
    with_gradient norm "func @f(%x: bf16[257,768]) -> (y: bf16[257,768]) {
        %0: bf16[257,768] = standardize %x {axis=1, epsilon=f64(1e-5)}
        return %0
    }"
    case column_sums "func @f(%x: bf16[2100,520]) -> (y: bf16[520]) {
        %0: bf16[520] = reduce_sum %x {axes=[0]}
        return %0
    }"
    case total "func @f(%x: f32[700,900]) -> (y: f32[]) {
        %0: f32[] = reduce_sum %x {axes=[0,1]}
        return %0
    }"
    case turned "func @f(%x: bf16[3,130,517]) -> (y: bf16[3,517,130]) {
        %0: bf16[3,517,130] = permute %x {permutation=[0,2,1]}
        return %0
    }"
    with_gradient cross_entropy "func @f(%x: f32[70,3000], %y: i32[70]) -> (loss: f32[]) {
        %0: f32[70] = softmax_cross_entropy %x, %y
        %1: f32[] = reduce_sum %0 {axes=[0]}
        return %1
    }"
    with_gradient embedding "func @f(%w: f32[300,96], %i: i32[400,1]) -> (y: f32[400,96]) {
        %0: f32[400,96] = gather %w, %i {collapsed_slice_dims=[0], offset_dims=[1], \
            slice_sizes=[1,96], start_index_map=[0]}
        return %0
    }"
    with_gradient product "func @f(%x: bf16[260,144], %w: bf16[144,392], %b: bf16[392], \
        %r: bf16[260,392]) -> (y: bf16[260,392]) {
        %0: bf16[260,392] = dot_general %x, %w {contract=[[1],[0]]}
        %1: bf16[260,392] = broadcast_in_dim %b {dims=[1], shape=[260,392]}
        %2: bf16[260,392] = add %0, %1
        %3: bf16[260,392] = add %2, %r
        return %3
    }"
    with_gradient product_f32 "func @f(%x: f32[260,144], %w: f32[144,392], %b: f32[392]) \
        -> (y: f32[260,392]) {
        %0: f32[260,392] = dot_general %x, %w {contract=[[1],[0]]}
        %1: f32[260,392] = broadcast_in_dim %b {dims=[1], shape=[260,392]}
        %2: f32[260,392] = add %0, %1
        %3: f32[260,392] = tanh %2
        return %3
    }"
    case product_odd "func @f(%x: f16[133,77], %w: f16[77,201]) -> (y: f16[133,201]) {
        %0: f16[133,201] = dot_general %x, %w {contract=[[1],[0]]}
        return %0
    }"
    case product_f64 "func @f(%x: f64[150,90], %w: f64[90,70]) -> (y: f64[150,70]) {
        %0: f64[150,70] = dot_general %x, %w {contract=[[1],[0]]}
        return %0
    }"
    case products "func @f(%q: bf16[5,150,64], %k: bf16[5,140,64]) -> (y: bf16[5,150,140]) {
        %0: bf16[5,150,140] = dot_general %q, %k {batch=[[0],[0]], contract=[[2],[2]]}
        return %0
    }"
    case product_float8 "func @f(%x: f8e4m3fn[260,144], %s: f32[260,1], %w: f8e5m2[144,400], \
        %t: f32[1,400], %v: f8e4m3fn[33,144], %u: f32[]) -> (y: f32[260,400], z: bf16[260,33]) {
        %0: bf16[260,144] = convert_element_type %x {dtype=bf16}
        %1: bf16[144,400] = convert_element_type %w {dtype=bf16}
        %2: f32[260,400] = dot_general %0, %1 {contract=[[1],[0]], result=f32}
        %3: f32[260,400] = broadcast_in_dim %s {dims=[0,1], shape=[260,400]}
        %4: f32[260,400] = mul %2, %3
        %5: f32[260,400] = broadcast_in_dim %t {dims=[0,1], shape=[260,400]}
        %6: f32[260,400] = mul %4, %5
        %7: bf16[33,144] = convert_element_type %v {dtype=bf16}
        %8: f32[260,33] = dot_general %0, %7 {contract=[[1],[1]], result=f32}
        %9: f32[260,33] = broadcast_in_dim %u {dims=[], shape=[260,33]}
        %10: f32[260,33] = mul %8, %9
        %11: bf16[260,33] = convert_element_type %10 {dtype=bf16}
        return %6, %11
    }"
    with_gradient attention "func @f(%q: bf16[1,200,3,2,64]) -> (y: bf16[1,200,2,64]) {
        %0: bf16[1,200,2,64], %1: f32[1,2,200] = dot_product_attention %q \
            {causal=true, scale=f64(0.125)}
        return %0
    }"
    with_gradient attention_wide "func @f(%q: bf16[2,150,3,1,128]) -> (y: bf16[2,150,1,128]) {
        %0: bf16[2,150,1,128], %1: f32[2,1,150] = dot_product_attention %q {scale=f64(0.088)}
        return %0
    }"
    with_gradient attention_f32 "func @f(%q: f32[1,150,3,2,64]) -> (y: f32[1,150,2,64]) {
        %0: f32[1,150,2,64], %1: f32[1,2,150] = dot_product_attention %q \
            {causal=true, scale=f64(0.125)}
        return %0
    }"
    case attention_decoding "func @f(%q: bf16[2,2,12,64], %k: bf16[2,700,3,64], \
        %v: bf16[2,700,3,64], %n: i32[2]) -> (y: bf16[2,2,12,64], l: f32[2,12,2]) {
        %0: bf16[2,2,12,64], %1: f32[2,12,2] = dot_product_attention %q, %k, %v, %n \
            {causal=true, prefix=true, scale=f64(0.125)}
        return %0, %1
    }"
    with_gradient convolution "func @f(%x: f32[2,19,21,12], %w: f32[3,3,12,40]) \
        -> (y: f32[2,19,21,40]) {
        %0: f32[2,19,21,40] = conv_general_dilated %x, %w {padding=[[1,1],[1,1]], stride=[1,1]}
        return %0
    }"
    with_gradient convolution_bf16 "func @f(%x: bf16[2,20,22,24], %w: bf16[3,3,24,40]) \
        -> (y: bf16[2,10,11,40]) {
        %0: bf16[2,10,11,40] = conv_general_dilated %x, %w {padding=[[1,0],[1,0]], stride=[2,2]}
        return %0
    }"
    case order "func @f(%x: f32[3,5000]) -> (y: i32[3,5000]) {
        %0: i32[3,5000] = argsort %x {axis=1}
        return %0
    }"
    case running_sums "func @f(%x: f32[40,3000]) -> (y: f32[40,3000]) {
        %0: f32[40,3000] = cumsum %x {axis=1}
        return %0
    }"
}

/// The function of a case, and its gradient if the case asks for it.
fn programs(case: &Case) -> Vec<Program> {
    let program = parse_program(case.text, case.name).unwrap();
    let function = program.get("f").unwrap();
    let is_float = |i: &usize| function.input_type(*i).dtype.is_float();
    let wrt: Vec<String> = (0..function.inputs.len())
        .filter(is_float)
        .map(|i| function.inputs[i].name.clone())
        .collect();
    let wrt: Vec<&str> = wrt.iter().map(String::as_str).collect();
    let mut programs = Vec::new();
    if case.gradient {
        let asked = Grad { of: None, wrt: &wrt, value: false, seed: true };
        let mut derived = grad(&program, "f", &asked).unwrap().function;
        derived.name = "f".into();
        programs.push(Program::from_functions(vec![derived]).unwrap());
    }
    programs.insert(0, program);
    programs
}

fn given(function: &Function) -> Vec<(String, Literal)> {
    let mut stream = Random(7);
    let mut draw = |i: usize| {
        let ty = function.input_type(i);
        if ty.dtype.is_float() {
            return stream.scaled(ty, 1.0);
        }
        if ty.dtype.is_float8() {
            return stream.scaled(&ty.with_dtype(DType::F32), 1.0).convert(ty.dtype);
        }
        // Labels, row indices of a table, and lengths of prefixes.
        let shape = ty.extents().unwrap();
        let all = (0..shape.iter().product::<usize>()).map(|_| stream.below(300) as i32).collect();
        Literal::from_vec(&shape, all).unwrap()
    };
    (0..function.inputs.len()).map(|i| (function.inputs[i].name.clone(), draw(i))).collect()
}

/// The tolerance between a device and the CPU, relative to the greatest element. Sums have another
/// order, and halves are rounded in between.
fn tolerance(function: &Function) -> f64 {
    let of = |dtype: DType| match dtype {
        DType::BF16 => 2e-2,
        DType::F16 => 4e-3,
        DType::F32 => 1e-4,
        DType::F64 => 1e-12,
        // Tensor cores add products of 8-bit floats with about 14 bits.
        DType::F8E4M3FN | DType::F8E5M2 => 2e-2,
        _ => 0.0,
    };
    (0..function.inputs.len()).map(|i| of(function.input_type(i).dtype)).fold(0.0, f64::max)
}

/// Runs a function several times in a new session.
fn runs(
    device: Device,
    options: &DeviceOptions,
    program: &Program,
    given: &[(&str, &Literal)],
    count: usize,
    repeats: bool,
) -> Result<Vec<Vec<Literal>>> {
    let mut session = Session::open_with(device, options)?;
    let mut compiled = session.compile(program, "f", bind!())?;
    if repeats {
        compiled.expect_repeats();
    }
    // All runs are started before the first result is read.
    let started = (0..count).map(|_| compiled.run(given)).collect::<Result<Vec<_>>>()?;
    started.into_iter().map(Outputs::into_values).collect()
}

fn check(case: &Case, device: Device) {
    for (n, program) in programs(case).iter().enumerate() {
        let what = format!("{}{} on {device}", if n == 1 { "gradient of " } else { "" }, case.name);
        let function = program.get("f").unwrap();
        let given = given(function);
        let given: Vec<(&str, &Literal)> =
            given.iter().map(|(name, value)| (name.as_str(), value)).collect();
        let usual = DeviceOptions::default();
        let expected = runs(Device::Cpu, &usual, program, &given, 1, false).unwrap().remove(0);
        let mut found = Vec::new();
        if let Device::Cuda(_) = device {
            let step_by_step = DeviceOptions { capture: false, ..DeviceOptions::default() };
            for (options, repeats) in [(&step_by_step, false), (&usual, false), (&usual, true)] {
                let results = runs(device, options, program, &given, 2, repeats);
                found.extend(
                    results.unwrap_or_else(|e| panic!("{what}, capture {}: {e}", options.capture)),
                );
            }
        } else {
            found = runs(device, &usual, program, &given, 1, false)
                .unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        assert!(
            found.iter().all(|other| *other == found[0]),
            "{what}: runs differ, captured or not"
        );
        for (output, (found, expected)) in
            function.outputs.iter().zip(found[0].iter().zip(&expected))
        {
            let (found, expected) = (floats(found), floats(expected));
            let greatest = expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
            let differences = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
            let off =
                differences.fold(0.0, |most: f64, x| if x > most || x.is_nan() { x } else { most });
            let allowed = tolerance(function) * greatest;
            assert!(
                greatest > 0.0 && off <= allowed,
                "{what}, {}: {off} of {greatest}",
                output.name
            );
        }
    }
}

fn on_the_device_that_is_asked_for(name: &str) {
    if let Ok(device) = std::env::var("WENGERT_TEST_DEVICE") {
        check(CASES.iter().find(|case| case.name == name).unwrap(), device.parse().unwrap());
    }
}

#[test]
fn on_the_emulator() {
    CASES.iter().for_each(|case| check(case, Device::Emulator));
}
