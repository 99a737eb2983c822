//! Kernels of nests on the emulator, under every schedule that a nest accepts. They must give the
//! bits of the nest interpreter, and the emulator's sanitizer must report nothing.

use crate::{lowered, sources};
use wengert_core::nest::{Buffer, BufferRole, Nest, interpret, may_alias, parse_nests, verify};
use wengert_core::{DType, Id, Literal, Scalar, math};
use wengert_cuda::architecture::Architecture;
use wengert_cuda::nest::{Options, compile};
use wengert_cuda::ptx::Module as Ptx;
use wengert_cuda::stage;
use wengert_emulator::{Access, Argument, Emulator, Launch, Memory, Module};
use wengert_testing::layout::Layout;
use wengert_testing::{Random, nests};

/// Runs a nest. The `in_place` pairs of parameters share their memory.
fn run(
    nest: &Nest,
    options: &Options,
    inputs: &[Literal],
    in_place: &[(usize, usize)],
) -> Vec<Literal> {
    let emulator = Emulator::new(wengert_emulator::Options::default());
    run_on(&emulator, nest, options, inputs, in_place)
}

/// [`run`] on an emulator.
pub fn run_on(
    emulator: &Emulator,
    nest: &Nest,
    options: &Options,
    inputs: &[Literal],
    in_place: &[(usize, usize)],
) -> Vec<Literal> {
    let compiled = compile(nest, Architecture::ALL[3], in_place, options)
        .unwrap_or_else(|e| panic!("{e}\n{nest}"));
    let mut memory = Memory::new();
    let mut given = inputs.iter();
    let parameters: Vec<_> = nest.parameters().map(|(_, b)| b).collect();
    let mut addresses: Vec<u64> = Vec::new();
    for buffer in &parameters {
        let address = memory.allocate(&buffer.name, buffer.bytes() as u64).unwrap();
        if matches!(buffer.role, BufferRole::In | BufferRole::InOut) {
            layout(buffer).write(given.next().unwrap(), |at, row| {
                memory.write(address + at as u64, row).unwrap();
            });
        }
        addresses.push(address);
    }
    for (operand, result) in in_place {
        let layout = layout(parameters[*operand]);
        let copy =
            layout.read(|at, count| memory.read(addresses[*operand] + at as u64, count).unwrap());
        layout.write(&copy, |at, row| memory.write(addresses[*result] + at as u64, row).unwrap());
        addresses[*operand] = addresses[*result];
    }
    for stage in &compiled.stages {
        let ptx = Ptx::new(stage.functions.clone(), vec![stage.kernel.clone()]);
        let text = ptx.to_string();
        let module = Module::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let arguments = stage.arguments.iter().map(|slot| {
            let stage::Memory::Argument(n) = slot.memory else { panic!("nests have no workspace") };
            Argument::Buffer {
                address: addresses[n],
                bytes: parameters[n].bytes() as u64,
                name: parameters[n].name.clone(),
                access: match slot.access {
                    stage::Access::Read => Access::Read,
                    stage::Access::Write => Access::Write,
                    stage::Access::ReadWrite => Access::ReadWrite,
                },
                expects: None,
                makes: None,
            }
        });
        let launch = Launch {
            kernel: stage.kernel.name.clone(),
            grid: stage.grid,
            block: [stage.kernel.threads, 1, 1],
            dynamic_shared: stage.dynamic_shared,
            arguments: arguments.collect(),
        };
        if let Err(fault) = emulator.run(&module, &launch, &mut memory) {
            panic!("{fault}\n{nest}\n{text}");
        }
    }
    let written = parameters.iter().zip(&addresses).filter(|(b, _)| b.role != BufferRole::In);
    written
        .map(|(b, address)| {
            layout(b).read(|at, count| memory.read(*address + at as u64, count).unwrap())
        })
        .collect()
}

fn layout(buffer: &Buffer) -> Layout<'_> {
    Layout { dtype: buffer.dtype, shape: &buffer.shape, pitch: buffer.pitch }
}

/// True if the bits are equal, or both are NaN.
fn same(a: Scalar, b: Scalar) -> bool {
    a == b || (a.dtype().is_float() && a.to_f64().is_nan() && b.to_f64().is_nan())
}

fn compare(nest: &Nest, wanted: &[Literal], got: &[Literal], what: &str) {
    let written = nest.parameters().filter(|(_, b)| b.role != BufferRole::In);
    for (((_, buffer), want), got) in written.zip(wanted).zip(got) {
        for k in 0..want.len() {
            let (w, g) = (want.get(k), got.get(k));
            assert!(
                same(w, g),
                "{what}: element {k} of %{} is {g:?}, not {w:?}\n{nest}",
                buffer.name
            );
        }
    }
}

fn inputs(nest: &Nest, random: &mut Random) -> Vec<Literal> {
    let read =
        nest.parameters().filter(|(_, b)| matches!(b.role, BufferRole::In | BufferRole::InOut));
    read.map(|(_, b)| nests::literal(random, b.dtype, &b.shape)).collect()
}

/// Pairs of parameters that may share memory.
fn aliases(nest: &Nest) -> Vec<(usize, usize)> {
    let of = |role| {
        nest.parameters().filter(move |(_, b)| b.role == role).map(|(id, _)| id).collect::<Vec<_>>()
    };
    let pairs = of(BufferRole::In)
        .into_iter()
        .flat_map(|a| of(BufferRole::Out).into_iter().map(move |b| (a, b)));
    pairs.filter(|p| may_alias(nest, &[*p])).map(|(a, b)| (a.index(), b.index())).take(2).collect()
}

/// Runs a nest under every schedule, with the default number of blocks and with at most two, in
/// place and not. Returns false if the interpreter finds a fault that the verifier cannot see.
pub fn check(nest: &Nest, inputs: &[Literal]) -> bool {
    let Ok(wanted) = interpret(nest, inputs) else { return false };
    for schedule in sources::schedules(nest) {
        for blocks in [None, Some(2)] {
            let options = Options { schedule: schedule.clone(), blocks, ..Options::default() };
            let what = format!("{schedule:?}, blocks {blocks:?}");
            compare(nest, &wanted, &run(nest, &options, inputs, &[]), &what);
        }
        for pair in aliases(nest) {
            let options = Options { schedule: schedule.clone(), ..Options::default() };
            let what = format!("{schedule:?}, {} over {}", pair.0, pair.1);
            compare(nest, &wanted, &run(nest, &options, inputs, &[pair]), &what);
        }
    }
    true
}

#[test]
fn scalar_instructions_on_special_values() {
    let mut count = 0;
    for (op, operands, result) in sources::scalar_table() {
        if op.is_elementary() && math::program(op, operands[0]).is_none() {
            continue;
        }
        let given = sources::special_operands(&operands);
        let nest = sources::scalar_nest(op, &operands, result, given[0].len());
        let wanted = interpret(&nest, &given).unwrap();
        compare(&nest, &wanted, &run(&nest, &Options::default(), &given, &[]), op.name());
        count += 1;
    }
    assert!(count > 250, "{count}");
}

#[test]
fn nests_of_filetests() {
    let mut random = Random(1);
    let mut count = 0;
    for nest in sources::filetests().iter().filter(|n| sources::is_supported(n)) {
        let given = inputs(nest, &mut random);
        count += usize::from(check(nest, &given));
    }
    assert!(count >= 15, "{count} nests of filetests ran");
}

#[test]
fn random_nests() {
    let mut count = 0;
    for (seed, nest) in sources::random_nests(0..150) {
        if sources::is_supported(&nest) {
            let given = inputs(&nest, &mut Random(seed + 1000));
            count += usize::from(check(&nest, &given));
        }
    }
    assert!(count > 20, "{count} random nests ran");
}

#[test]
fn nests_of_ops() {
    let mut count = 0;
    for (seed, nest) in lowered::ops_and_samples().iter().enumerate() {
        if sources::is_supported(nest) {
            let given = inputs(nest, &mut Random(seed as u64));
            count += usize::from(check(nest, &given));
        }
    }
    assert!(count > 300, "{count} nests of ops ran");
}

#[test]
fn nests_of_training() {
    for (rows, columns, dtype) in
        [(9, 768, DType::F32), (6, 1100, DType::BF16), (40, 100, DType::F16)]
    {
        for (seed, nest) in lowered::training(rows, columns, dtype).iter().enumerate() {
            let given = inputs(nest, &mut Random(seed as u64));
            assert!(check(nest, &given), "{nest}");
        }
    }
}

/// Norms whose kernels add up the gradients of their scales.
#[test]
fn nests_with_totals() {
    for (rows, columns, dtype) in
        [(256, 256, DType::F32), (128, 768, DType::BF16), (512, 130, DType::F16)]
    {
        let nests = lowered::banded(rows, columns, dtype);
        assert!(nests.iter().any(|nest| nest.band().is_some()), "{rows} rows of {columns}");
        for (seed, nest) in nests.iter().enumerate() {
            let given = inputs(nest, &mut Random(seed as u64));
            assert!(check(nest, &given), "{nest}");
        }
    }
}

/// Nests with rows that are long enough for vectors, loops, blocks of trees and tiles.
#[test]
fn longer_nests() {
    for (seed, text) in LONGER.iter().enumerate() {
        let nest = parse_nests("longer", text).unwrap().remove(0).0;
        verify(&nest).unwrap();
        let given = inputs(&nest, &mut Random(seed as u64));
        assert!(check(&nest, &given), "{text}");
    }
}

/// Lanes begin with their first element, and a sum that consists of negative zeros is +0.
#[test]
fn sums_of_zeros() {
    for (dtype, lanes) in [("bf16", 1024), ("f32", 1024), ("f64", 32), ("f16", 4)] {
        for columns in [3, 24, 100, 768, 1100] {
            let text = format!(
                "nest @zeros(in %x: {dtype}[4,{columns}], out %y: f64[4], out %z: f64[4]) {{
                   parallel i: 4
                   phase j: {columns} {{
                     %0: {dtype} = load %x[i, j] %1: f64 = convert %0
                     %2: f64 = reduce(%1) sum tree({lanes})
                     %3: f64 = reduce(%1) min tree({lanes})
                   }}
                   phase {{ store %y[i], %2 store %z[i], %3 }} }}"
            );
            let nest = parse_nests("zeros", &text).unwrap().remove(0).0;
            verify(&nest).unwrap();
            let dtype = nest.buffers.iter().next().unwrap().1.dtype;
            let zero = |k: usize| match (k / columns, k % columns) {
                (1, at) if at % 7 == 6 => 0.0,
                (2, 0) => 1.5,
                _ => -0.0,
            };
            let values: Vec<Scalar> =
                (0..4 * columns).map(|k| Scalar::from_f64(dtype, zero(k))).collect();
            let given = Literal::from_scalars(dtype, &[4, columns], &values).unwrap();
            assert!(check(&nest, &[given]), "{text}");
        }
    }
}

const LONGER: &[&str] = &[
    // A row that is staged.
    "nest @staged(in %x: bf16[2,16400], in %c: bf16[16400], out %y: bf16[2,16400]) {
      parallel i: 2
      phase j: 16400 {
        %0: bf16 = load %x[i, j] %1: f32 = convert %0
        %2: f32 = reduce(%1) max tree(1024)
      }
      phase j: 16400 {
        %3: bf16 = load %x[i, j] %4: f32 = convert %3 %5: f32 = sub %4, %2
        %6: bf16 = load %c[j] %7: f32 = convert %6 %8: f32 = mul %5, %7
        %9: f32 = reduce(%8) sum tree(1024)
      }
      phase j: 16400 {
        %10: bf16 = load %x[i, j] %11: f32 = convert %10 %12: f32 = sub %11, %9
        %13: bf16 = convert %12
        store %y[i, j], %13
      } }",
    // Reductions of all kinds at once, and one whose operands may not change places.
    "nest @kinds(in %x: f32[3,100], out %s: f32[3], out %p: f32[3], out %h: f32[3], \
        out %a: f32[3], out %k: i32[3]) {
      parallel i: 3
      phase j: 100 {
        %0: f32 = load %x[i, j]
        %1: f32 = reduce(%0) sum tree(64) %2: f32 = reduce(%0) prod tree(64)
        %3: f32 = reduce(%0) max tree(64)
      }
      phase j: 100 {
        %4: f32 = load %x[i, j] %5: i32 = index j
        %6: f32 = reduce(%4) sum tree(64) %7: f32, %8: i32 = reduce(%4, %5) argmin tree(64)
      }
      phase {
        %9: f32 = add %1, %6
        store %s[i], %9 store %p[i], %2 store %h[i], %3 store %a[i], %7 store %k[i], %8
      } }",
    // A norm and its gradients; the last rows of a band are fewer than its lanes.
    "nest @totals(in %x: bf16[54,768], in %c: bf16[54,768], out %y: bf16[54,768], \
       out %s: f32[3,768], out %t: f32[3,768]) {
      parallel i: 3, r: 18
      phase j: 768 {
        %0: bf16 = load %x[18*i+r, j] %1: f32 = convert %0
        %2: f32 = reduce(%1) sum tree(1024)
      }
      phase j: 768 {
        %3: bf16 = load %x[18*i+r, j] %4: f32 = convert %3 %5: f32 = sub %4, %2
        %6: bf16 = load %c[18*i+r, j] %7: f32 = convert %6 %8: f32 = mul %5, %7
        %9: bf16 = convert %8
        store %y[18*i+r, j], %9
        store %s[i, j], %7 total sum tree(4)
        store %t[i, j], %8 total sum tree(4)
      } }",
    // Accumulators for rows that are a loop; more rows than fit side by side.
    "nest @long_totals(in %x: f32[10,3000], out %s: f32[2,3000], out %t: f32[2,3000]) {
      parallel i: 2, r: 5
      phase j: 3000 {
        %0: f32 = load %x[5*i+r, j]
        %1: f32 = reduce(%0) max tree(1024)
        store %t[i, j], %0 total max tree(2)
      }
      phase j: 3000 {
        %2: f32 = load %x[5*i+r, j] %3: f32 = div %2, %1
        store %s[i, j], %3 total sum tree(2)
      } }",
    "nest @softmax(in %x: f32[5,768], out %y: f32[5,768]) {
      parallel i: 5
      phase j: 768 { %0: f32 = load %x[i, j] %1: f32 = reduce(%0) max tree(1024) }
      phase j: 768 {
        %2: f32 = load %x[i, j] %3: f32 = sub %2, %1 %4: f32 = exp %3
        %5: f32 = reduce(%4) sum tree(1024)
      }
      phase j: 768 {
        %6: f32 = load %x[i, j] %7: f32 = sub %6, %1 %8: f32 = exp %7 %9: f32 = div %8, %5
        store %y[i, j], %9
      } }",
    "nest @long(in %x: bf16[3,5000], out %y: f32[3], out %z: i32[3]) {
      parallel i: 3
      phase j: 5000 {
        %0: bf16 = load %x[i, j] %1: f32 = convert %0 %2: i32 = index j
        %3: f32 = reduce(%1) sum tree(1024, 2048)
        %4: f32, %5: i32 = reduce(%1, %2) argmax tree(1024, 2048)
      }
      phase { store %y[i], %3 store %z[i], %5 } }",
    "nest @normal(in %x: f16[4,200], inout %w: f16[4,200], out %v: f32[4]) {
      row %r: f32[200]
      parallel i: 4
      phase j: 200 {
        %0: f16 = load %x[i, j] %1: f32 = convert %0
        store %r[j], %1
        %2: f32 = const 1.0 %3: f32 = const 0.0
        %4: f32, %5: f32, %6: f32 = reduce(%2, %1, %3) welford tree(256)
      }
      phase { store %v[i], %6 }
      phase j: 200 {
        %7: f32 = load %r[j] %8: f32 = sub %7, %5
        %9: f16 = load %w[i, j] %10: f32 = convert %9 %11: f32 = fma %8, %10, %6
        %12: f16 = convert %11
        store %w[i, j], %12
      } }",
    "nest @columns(in %x: f32[300,70], out %y: f32[70], out %z: f64[70]) {
      parallel j: 70
      phase i: 300 {
        %0: f32 = load %x[i, j] %1: f64 = convert %0
        %2: f32 = reduce(%0) sum tree(32)
        %3: f64 = reduce(%1) prod tree(32)
      }
      phase { store %y[j], %2 store %z[j], %3 } }",
    "nest @turn(in %x: bool[3,45,70], in %v: f16[45,70], out %y: bool[3,70,45], \
        out %w: f16[3,70,45]) {
      parallel b: 3, j: 70, i: 45
      phase {
        %0: bool = load %x[b, i, j] %1: f16 = const 2.0
        %2: f16 = load %v[i+-1, j] {i+-1 in 0..45} else %1
        store %y[b, j, i], %0
        store %w[b, j, i], %2
      } }",
    "nest @turn_wide(in %x: f64[33,64], in %v: i64[64,33], out %y: f64[64,33]) {
      parallel j: 64, i: 33
      phase {
        %0: f64 = load %x[i, j] %1: i64 = load %v[j, i] %2: f64 = convert %1 %3: f64 = add %0, %2
        store %y[j, i], %3
      } }",
    "nest @scans(in %x: i32[2,3,100], in %v: f32[2,3,100], out %y: i32[2,3,100], \
        out %w: f32[2,3,100]) {
      parallel i: 2
      phase k: 3, j: 100 {
        %0: i32 = load %x[i, k, j] %1: f32 = load %v[i, k, j]
        %2: i32 = prefix reverse(%0) sum
        %3: f32 = prefix reverse(%1) min
        store %y[i, k, j], %2
        store %w[i, k, j], %3
      } }",
    "nest @chain(in %x: bf16[64,24], in %b: f32[24], in %m: u8[64,24], out %y: bf16[64,24], \
        out %n: u8[64,24]) {
      parallel i: 64, j: 24
      phase {
        %0: bf16 = load %x[i, j] %1: f32 = convert %0 %2: f32 = load %b[j] %3: f32 = add %1, %2
        %4: f32 = tanh %3 %5: bf16 = convert %4
        %6: u8 = load %m[i, j] %7: u8 = add %6, %6
        store %y[i, j], %5
        store %n[i, j], %7
      } }",
];
