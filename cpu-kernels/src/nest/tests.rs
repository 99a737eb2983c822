//! The executor against the nest interpreter, bit for bit: every set of vector instructions,
//! every schedule, several numbers of threads.

mod loops;

use super::*;
use crate::memory::AlignedBytes;
use crate::pool::Pool;
use std::ptr::NonNull;
use std::sync::Arc;
use wengert_core::nest::alias::may_alias;
use wengert_core::nest::{interpret, parse_nests};
use wengert_core::{Id, Literal, Scalar};
use wengert_testing::layout::Layout;
use wengert_testing::{Random, nests};

/// Pools of one, two and three threads, and sets of vector instructions.
struct Machines(Vec<Workspace>);

impl Machines {
    fn new() -> Self {
        let pool = |threads| Arc::new(Pool::new(threads).expect("threads start"));
        let best = Simd::available().last().expect("one is there");
        let mut all: Vec<Workspace> = Simd::available()
            .map(|simd| Workspace::new(pool(1), simd).expect("available"))
            .collect();
        all.extend([2, 3].map(|threads| Workspace::new(pool(threads), best).expect("available")));
        Machines(all)
    }
}

/// Runs a nest; `aliased` pairs of parameters share their memory.
fn execute(
    compiled: &CompiledNest,
    nest: &Nest,
    workspace: &mut Workspace,
    inputs: &[Literal],
    aliased: &[(usize, usize)],
) -> Result<Vec<Literal>, Diagnostic> {
    workspace.reserve(compiled.scratch_bytes())?;
    let mut given = inputs.iter();
    // Outputs are filled with a pattern, so that missing writes are detected.
    let mut memories: Vec<AlignedBytes> = nest
        .parameters()
        .map(|(_, buffer)| {
            let mut memory = AlignedBytes::new(buffer.bytes()).expect("little memory");
            memory.fill(0xa5);
            if matches!(buffer.role, BufferRole::In | BufferRole::InOut) {
                let literal = given.next().expect("one for each");
                layout(buffer).write(literal, |at, row| {
                    memory[at..at + row.len()].copy_from_slice(row);
                });
            }
            memory
        })
        .collect();
    for (operand, result) in aliased {
        let copy = memories[*operand].to_vec();
        memories[*result].copy_from_slice(&copy);
    }
    let spans: Vec<Span> = (0..memories.len())
        .map(|k| {
            let at =
                aliased.iter().find(|(operand, _)| *operand == k).map_or(k, |(_, result)| *result);
            let memory = &mut memories[at];
            Span::new(NonNull::new(memory.as_mut_ptr()).expect("not null"), memory.len(), true)
        })
        .collect();
    // SAFETY: the memories outlive the run, and no other code uses them meanwhile; the shared
    // ones may be shared.
    unsafe { compiled.run_on(workspace, &spans)? };
    Ok(nest
        .parameters()
        .zip(&memories)
        .filter(|((_, b), _)| matches!(b.role, BufferRole::Out | BufferRole::InOut))
        .map(|((_, b), memory)| layout(b).read(|at, count| memory[at..at + count].to_vec()))
        .collect())
}

fn layout(buffer: &wengert_core::nest::Buffer) -> Layout<'_> {
    Layout { dtype: buffer.dtype, shape: &buffer.shape, pitch: buffer.pitch }
}

/// Equal bits, or both not a number.
fn same(a: Scalar, b: Scalar) -> bool {
    a == b || (a.dtype().is_float() && a.to_f64().is_nan() && b.to_f64().is_nan())
}

fn compare(nest: &Nest, wanted: &[Literal], got: &[Literal], what: &str) {
    let written =
        nest.parameters().filter(|(_, b)| matches!(b.role, BufferRole::Out | BufferRole::InOut));
    for (((_, buffer), want), got) in written.zip(wanted).zip(got) {
        let name = &buffer.name;
        for k in 0..want.len() {
            let (w, g) = (want.get(k), got.get(k));
            assert!(same(w, g), "{what}: element {k} of %{name} is {g:?}, not {w:?}\n{nest}");
        }
    }
}

/// Compares the executor with the interpreter. False if the interpreter finds a fault that the
/// verifier cannot detect.
fn check(nest: &Nest, inputs: &[Literal], machines: &mut Machines) -> bool {
    let Ok(wanted) = interpret(nest, inputs) else { return false };
    for workspace in &mut machines.0 {
        let simd = workspace.simd();
        let code = [false, true].into_iter().filter(|native| !native || simd >= Simd::Avx512);
        for (native, schedule) in code.flat_map(|n| [None, Some(true), Some(false)].map(|s| (n, s)))
        {
            let compiled = CompiledNest::with_options(nest, simd, schedule, native)
                .expect("a verified nest compiles");
            let threads = workspace.pool().threads();
            let what =
                format!("{simd:?}, {threads} threads, by rows {schedule:?}, native {native}");
            let got = execute(&compiled, nest, workspace, inputs, &[]).expect("runs");
            compare(nest, &wanted, &got, &what);
            for (operand, result, wanted) in aliases(nest, inputs) {
                let got = execute(&compiled, nest, workspace, inputs, &[(operand, result)])
                    .expect("runs");
                compare(nest, &wanted, &got, &format!("{what}, {operand} over {result}"));
            }
        }
    }
    true
}

/// Pairs of parameters that may share memory, and the results of the nest (the same).
fn aliases(nest: &Nest, inputs: &[Literal]) -> Vec<(usize, usize, Vec<Literal>)> {
    let of = |role| {
        nest.parameters().filter(move |(_, b)| b.role == role).map(|(id, _)| id).collect::<Vec<_>>()
    };
    let mut pairs = vec![];
    for operand in of(BufferRole::In) {
        for result in of(BufferRole::Out) {
            if may_alias(nest, &[(operand, result)]) {
                pairs.push((
                    operand.index(),
                    result.index(),
                    interpret(nest, inputs).expect("did before"),
                ));
            }
        }
    }
    pairs.truncate(3);
    pairs
}

fn inputs(nest: &Nest, random: &mut Random) -> Vec<Literal> {
    nest.parameters()
        .filter(|(_, b)| matches!(b.role, BufferRole::In | BufferRole::InOut))
        .map(|(_, b)| nests::literal(random, b.dtype, &b.shape))
        .collect()
}

#[test]
fn filetests_of_nests() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/tests/nest");
    let mut machines = Machines::new();
    let mut random = Random(1);
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("readable").path();
        let text = std::fs::read_to_string(&path).expect("readable");
        // A file may hold nests that do not parse or verify, so each is handled separately.
        let mut chunks: Vec<String> = vec![];
        for line in text.lines() {
            if line.starts_with("nest ") {
                chunks.push(String::new());
            }
            if let Some(chunk) = chunks.last_mut() {
                chunk.push_str(line);
                chunk.push('\n');
            }
        }
        for chunk in chunks {
            let Ok(nests) = parse_nests("filetest", &chunk) else { continue };
            for (nest, _) in nests {
                if verify(&nest).is_ok() {
                    let given = inputs(&nest, &mut random);
                    count += usize::from(check(&nest, &given, &mut machines));
                }
            }
        }
    }
    assert!(count >= 15, "{count} nests of filetests ran");
}

#[test]
fn random_nests() {
    let mut machines = Machines::new();
    let (mut written, mut ran) = (0, 0);
    for seed in 0..600 {
        let mut random = Random(seed);
        let Some(nest) = nests::nest(&mut random) else { continue };
        written += 1;
        let given = inputs(&nest, &mut random);
        ran += usize::from(check(&nest, &given, &mut machines));
    }
    assert!(ran > 150, "of 600 random nests {written} verify and {ran} run");
}

fn one(text: &str) -> Nest {
    parse_nests("test", text).expect("parses").remove(0).0
}

/// A guard on a uniform number is decided without a subtraction from it: here the load would be
/// of the element −2^63.
#[test]
fn guards_hold_for_numbers_of_any_size() {
    let mut machines = Machines::new();
    let gather = one("nest @f(in %t: u8[3], in %at: i64[9], out %y: u8[9]) { parallel i: 9 phase {
          %0: i64 = load %at[i] %1: u8 = const 7 %2: u8 = load %t[%0] {%0 in 0..3} else %1 \
         store %y[i], %2 } }");
    let at = [i64::MIN, i64::MIN + 1, i64::MIN + 3, -1, 0, 2, 3, i64::MAX - 1, i64::MAX];
    let inputs = [
        Literal::from_vec(&[3], vec![1u8, 2, 3]).expect("fits"),
        Literal::from_vec(&[9], at.to_vec()).expect("fits"),
    ];
    assert!(check(&gather, &inputs, &mut machines));
    let rows = one("nest @f(in %x: f32[1,32], in %at: i64[], out %y: f32[9,32]) {
          parallel i: 9, k: 32 phase { %0: i64 = load %at[] %1: f32 = const 7.0
          %2: f32 = load %x[%0+i, k] {%0+i in 0..1} else %1
          %3: f32 = load %x[%0-2*i, k] {%0-2*i in 0..1} else %1
          %4: f32 = sub %2, %3 store %y[i, k], %4 } }");
    for number in at {
        let numbers = Literal::from_vec(&[1, 32], (0..32).map(|k| k as f32).collect::<Vec<_>>());
        let inputs = [numbers, Literal::from_vec(&[], vec![number])];
        assert!(check(&rows, &inputs.map(|x| x.expect("fits")), &mut machines));
    }
    let test = one("nest @f(in %at: i64[], out %y: bool[2]) { phase { %0: i64 = load %at[]
          %1: bool = test {%0 in -9223372036854775808..5} store %y[0], %1
          %2: bool = test {%0 in -9223372036854775807..9223372036854775807} store %y[1], %2 } }");
    for number in at {
        let inputs = [Literal::from_vec(&[], vec![number]).expect("fits")];
        assert!(check(&test, &inputs, &mut machines));
    }
}

/// The kind of the lanes may depend on their maximum number; groups are formed for that kind.
/// (Here a number of the row was read as a lane's.)
#[test]
fn groups_are_of_the_schedule_that_runs() {
    let nest = one("nest @f(in %x: bool[32], in %a: f64[32], in %k: i32[32], in %z: i32[], \
          in %b: f64[32,32], out %y: f64[32,32]) {
          parallel i: 32, j: 32
          phase {
            %0: bool = load %x[i]
            %1: f64 = load %a[j]
            %2: i32 = load %k[i]
            %3: i32 = load %z[]
            %4: bool = eq %2, %3
            %5: f64 = load %b[i, j]
            %6: f64 = select %0, %1, %5
            %7: i32 = load %k[j]
            %8: bool = lt %3, %7
            %9: f64 = sub %6, %5
            %10: bool = load %x[j]
            %11: f64 = select %10, %1, %6
            %12: f64 = select %8, %9, %11
            %13: f64 = select %4, %12, %6
            store %y[i, j], %13
          }
        }");
    let mut random = Random(3);
    for _ in 0..5 {
        let given = inputs(&nest, &mut random);
        assert!(check(&nest, &given, &mut Machines::new()));
    }
}

/// More reductions than a native program has registers for their accumulators.
#[test]
fn many_reductions_of_one_phase() {
    let mut random = Random(5);
    for (dtype, count) in [("f64", 13), ("f64", 14), ("f64", 40), ("f32", 29), ("f32", 60)] {
        let mut text = format!("nest @f(in %x: {dtype}[3,64], out %y: {dtype}[3,{count}]) {{\n");
        text += &format!("parallel i: 3\nphase j: 64 {{\n%0: {dtype} = load %x[i, j]\n");
        for n in 0..count {
            text += &format!("%{}: {dtype} = fma %{n}, %0, %{n}\n", n + 1);
        }
        for n in 0..count {
            text += &format!("%{}: {dtype} = reduce(%{}) sum tree(16)\n", count + 1 + n, n + 1);
        }
        text += "}\nphase {\n";
        for n in 0..count {
            text += &format!("store %y[i, {n}], %{}\n", count + 1 + n);
        }
        let nest = one(&(text + "}\n}"));
        assert!(check(&nest, &inputs(&nest, &mut random), &mut Machines::new()), "{nest}");
    }
}

/// Squares, the elements beside them, short lines, every element size, axes around and between the
/// two, and a part of a buffer.
#[test]
fn axes_are_exchanged() {
    let text = |dtype: &str, [source, result]: [&str; 2], axes: &str, [from, to]: [&str; 2]| {
        format!(
            "nest @f(in %x: {dtype}[{source}], out %y: {dtype}[{result}]) {{
               parallel {axes} phase {{ %0: {dtype} = load %x[{from}] store %y[{to}], %0 }}
             }}"
        )
    };
    let mut machines = Machines::new();
    let mut random = Random(23);
    for dtype in ["f32", "i32", "f64", "bf16", "u8", "bool"] {
        let nests = [
            text(dtype, ["64,48", "48,64"], "i: 48, j: 64", ["j, i", "i, j"]),
            text(dtype, ["37,21", "21,37"], "i: 21, j: 37", ["j, i", "i, j"]),
            text(
                dtype,
                ["3,20,5,16", "3,5,16,20"],
                "a: 3, c: 5, i: 16, j: 20",
                ["a, j, c, i", "a, c, i, j"],
            ),
            text(dtype, ["9,40,8", "8,40,9"], "i: 8, a: 40, j: 9", ["j, a, i", "i, a, j"]),
            text(dtype, ["40,60", "17,18"], "i: 17, j: 18", ["j+3, i+30", "i, j"]),
            text(dtype, ["3,600", "600,3"], "i: 600, j: 3", ["j, i", "i, j"]),
            text(dtype, ["5,2,9", "9,5,2"], "i: 9, a: 5, j: 2", ["a, j, i", "i, a, j"]),
            text(dtype, ["2,7,300", "2,290,4"], "a: 2, i: 290, j: 4", ["a, j+2, i+5", "a, i, j"]),
        ];
        for nest in nests.iter().map(|text| one(text)) {
            verify(&nest).expect("the nest is right");
            let lowered = FlatNest::new(&nest);
            for simd in Simd::available() {
                assert!(Transposition::of(&lowered, simd).is_some(), "{nest}");
            }
            assert!(check(&nest, &inputs(&nest, &mut random), &mut machines));
        }
    }
    let rows = one("nest @f(in %x: f32[9,40], out %y: f32[40,9]) {
          parallel i: 40, j: 9 phase { %0: f32 = load %x[j, i] %1: f32 = add %0, %0 \
          store %y[i, j], %1 }
        }");
    assert!(Transposition::of(&FlatNest::new(&rows), Simd::Portable).is_none());
}

#[test]
fn runs_refuse_wrong_buffers() {
    let nest =
        one("nest @f(in %x: f32[4], out %y: f32[4]) { parallel i: 4 phase { %0: f32 = load %x[i] \
             store %y[i], %0 } }");
    let compiled = CompiledNest::new(&nest, Simd::Portable).expect("compiles");
    let mut workspace = Workspace::new(Arc::new(Pool::new(1).expect("starts")), Simd::Portable)
        .expect("every machine has them");
    let (x, mut y, mut short) = ([1.0f32, 2.0, 3.0, 4.0], [0.0f32; 4], [0.0f32; 3]);
    let run = |workspace: &Workspace, buffers: &mut [Buffer<'_>]| {
        compiled.run(workspace, buffers).map_err(|e| e.to_string()).err().unwrap_or_default()
    };
    let error = run(&workspace, &mut [Buffer::reading(&x), Buffer::writing(&mut y)]);
    assert!(error.contains("scratch"), "{error}");
    workspace.reserve(compiled.scratch_bytes()).expect("little");
    assert!(run(&workspace, &mut [Buffer::reading(&x)]).contains("takes 2 buffers, not 1"));
    assert!(
        run(&workspace, &mut [Buffer::reading(&x), Buffer::writing(&mut short)])
            .contains("`y` has 16 bytes")
    );
    assert!(
        run(&workspace, &mut [Buffer::reading(&x), Buffer::reading(&y)]).contains("`y` is written")
    );
    let mut bytes = AlignedBytes::new(32).expect("little");
    let (_, odd) = bytes.split_at_mut(1);
    let error = run(&workspace, &mut [Buffer::reading(&odd[..16]), Buffer::writing(&mut y)]);
    assert!(error.contains("aligned"), "{error}");
    assert_eq!(run(&workspace, &mut [Buffer::reading(&x), Buffer::writing(&mut y)]), "");
    assert_eq!(x, y);
}

#[test]
fn partial_overlap_is_refused() {
    let nest =
        one("nest @f(in %x: f32[4], out %y: f32[4]) { parallel i: 4 phase { %0: f32 = load %x[i] \
             store %y[i], %0 } }");
    let compiled = CompiledNest::new(&nest, Simd::Portable).expect("compiles");
    let mut workspace = Workspace::new(Arc::new(Pool::new(1).expect("starts")), Simd::Portable)
        .expect("every machine has them");
    workspace.reserve(compiled.scratch_bytes()).expect("little");
    let mut memory = AlignedBytes::new(64).expect("little");
    let part = |at: usize, memory: &mut AlignedBytes| {
        Span::new(NonNull::new(memory[at..].as_mut_ptr()).expect("not null"), 16, true)
    };
    let (a, b) = (part(0, &mut memory), part(4, &mut memory));
    // SAFETY: sixteen bytes from there are in the memory, which outlives the runs; the nest may
    // run in place.
    let run = |spans: &[Span]| unsafe { compiled.run_on(&workspace, spans) };
    let error = run(&[a, b]).expect_err("overlap").to_string();
    assert!(error.contains("overlap"), "{error}");
    assert!(run(&[a, a]).is_ok());
}

#[test]
fn a_nest_that_does_not_verify_is_refused() {
    let nest = one(
        "nest @f(in %x: f32[4], out %y: f32[4]) { parallel i: 4 phase { %0: f32 = load %x[i+1] \
         store %y[i], %0 } }",
    );
    assert!(CompiledNest::new(&nest, Simd::Portable).is_err());
}
