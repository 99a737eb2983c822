//! Compares products with the semantics of the call in `wengert-core`: on the fake library, which
//! follows cuBLASLt's documentation, and on the real one where there is a GPU.

use super::api::Lt;
use super::*;
use crate::driver::fake::Fake;
use crate::driver::library::cublas_lt_candidates;
use crate::driver::{Address, Device, Memory};
use std::sync::Arc;
use wengert_core::call::{Addends, Call, Gemm, Matrix, Scale, Scales};
use wengert_core::pitch::{self, PaddedRows, memory_extents};
use wengert_core::{DType, Literal, Scalar};
use wengert_testing::calls::gemm::float8;

const WORKSPACE: u64 = 2 << 20;

struct Bench {
    blas: Blas,
    workspace: Memory,
    device: Device,
    fake: Fake,
    /// Whether this is a GPU; then the fake is not used.
    real: bool,
}

fn bench() -> Bench {
    let fake = Fake::new();
    let device = fake.device();
    let blas = device.blas().unwrap();
    let workspace = device.allocate(WORKSPACE, "the workspace").unwrap();
    Bench { blas, workspace, device, fake, real: false }
}

/// The fake, and the GPU if there is one with cuBLASLt.
fn benches() -> Vec<Bench> {
    let mut benches = vec![bench()];
    if let Ok(device) = Device::open(0)
        && let Ok(blas) = device.blas()
    {
        let workspace = device.allocate(WORKSPACE, "the workspace").unwrap();
        benches.push(Bench { blas, workspace, device, fake: Fake::current(), real: true });
    }
    benches
}

impl Bench {
    fn close(self) {
        let Bench { blas, workspace, device, fake, .. } = self;
        drop((blas, workspace, device));
        fake.nothing_left();
    }

    /// A literal in memory of its own.
    fn put(&self, literal: &Literal) -> Memory {
        let bytes = literal.to_bytes();
        let memory = self.device.allocate(bytes.len() as u64, "an operand").unwrap();
        self.device.write(memory.address(), &bytes).unwrap();
        memory
    }

    fn get(&self, memory: &Memory, dtype: DType, shape: &[usize]) -> Literal {
        let mut bytes = vec![0; shape.iter().product::<usize>() * dtype.size()];
        self.device.read(memory.address(), &mut bytes).unwrap();
        Literal::from_bytes(dtype, shape, &bytes).unwrap()
    }
}

/// Small numbers, whose sums are exact in every dtype.
fn numbers(dtype: DType, count: usize, seed: usize) -> Literal {
    let number = |n: usize| ((n * 7 + seed * 5 + n / 3) % 9) as f64 - 4.0;
    let values: Vec<_> = (0..count).map(|n| Scalar::from_f64(dtype, number(n) / 2.0)).collect();
    Literal::from_scalars(dtype, &[count], &values).unwrap()
}

fn dtypes() -> [(DType, DType); 6] {
    use DType::*;
    [(F32, F32), (F64, F64), (F16, F16), (F16, F32), (BF16, BF16), (BF16, F32)]
}

fn all_addends() -> [Addends; 4] {
    [0, 1, 2, 3].map(|n| Addends { bias: n & 1 != 0, residual: n & 2 != 0 })
}

/// Products of 5 × 3 by 3 × 4, in all the layouts that cuBLASLt can express.
fn gemms(operand: DType, result: DType, addends: Addends) -> Vec<Gemm> {
    let (m, n, k) = (5, 4, 3);
    let mut found = Vec::new();
    for pad in [0, 2] {
        for (lhs_t, rhs_t) in [(false, false), (false, true), (true, false), (true, true)] {
            for (batch, shared) in [(1, false), (3, false), (3, true)] {
                let matrix = |rows: usize, columns: usize, transposed: bool| {
                    let (row, column) =
                        if transposed { (1, rows + pad) } else { (columns + pad, 1) };
                    let length = if transposed { columns * column } else { rows * row };
                    Matrix { batch: if batch == 1 { 0 } else { length }, row, column }
                };
                let rhs = matrix(k, n, rhs_t);
                let accumulate = if operand.is_half() { DType::F32 } else { operand };
                found.push(Gemm {
                    batch,
                    m,
                    n,
                    k,
                    lhs: matrix(m, k, lhs_t),
                    rhs: if shared { Matrix { batch: 0, ..rhs } } else { rhs },
                    operand,
                    rhs_operand: None,
                    scales: None,
                    accumulate,
                    result,
                    addends,
                    pitch: (pad > 0 && !addends.residual).then_some(n + pad),
                });
            }
        }
    }
    let first = found[0].clone();
    // A vector by a matrix, a matrix by a vector, an outer product, with odd strides where they
    // do not matter.
    found.push(Gemm { m: 1, lhs: Matrix { batch: 0, row: 0, column: 1 }, ..first.clone() });
    found.push(Gemm { n: 1, rhs: Matrix { batch: 0, row: 1, column: 0 }, ..first.clone() });
    found.push(Gemm {
        k: 1,
        lhs: Matrix { batch: 0, row: 1, column: 0 },
        rhs: Matrix { batch: 0, row: 0, column: 1 },
        ..first.clone()
    });
    found.push(Gemm { batch: 4, m: 1, lhs: Matrix { batch: 6, row: 0, column: 1 }, ..first });
    found
}

#[test]
fn products_mean_what_the_call_means() {
    benches().into_iter().for_each(products_agree);
}

fn products_agree(b: Bench) {
    let mut products = 0;
    for (operand, result) in dtypes() {
        for addends in all_addends() {
            for gemm in gemms(operand, result, addends) {
                for (rules, in_place) in
                    [(Rules::STRICT, false), (Rules::RELAXED, false), (Rules::RELAXED, true)]
                {
                    products += usize::from(agrees(&b, &gemm, rules, in_place));
                }
            }
        }
    }
    // All of the first two, and those in place that are expressible. The real library may have no
    // algorithm for odd strides of halves.
    let least = if b.real { 6 * 4 * 28 } else { 6 * 4 * 28 * 2 };
    assert!(products > least, "{products}");
    b.close();
}

/// Runs a product and compares cuBLASLt's part of it with the semantics; false if it is not
/// expressible in place.
fn agrees(b: &Bench, gemm: &Gemm, rules: Rules, in_place: bool) -> bool {
    let form = match supports(gemm, rules, in_place) {
        Ok(form) => form,
        Err(why) => {
            assert!(in_place && why == Why::ResidualOverwritten, "{why}: {gemm:?}");
            return false;
        }
    };
    let prepared = match b
        .blas
        .prepare(&form, in_place, &Alignment::FULL, WORKSPACE, &Tuning::default())
        .unwrap()
    {
        Ok(prepared) => prepared,
        Err(why) => {
            assert!(b.real, "{why}: {gemm:?}");
            return false;
        }
    };
    assert!(b.real || prepared.form() == Some(&form));
    let form = prepared.form().unwrap();
    // cuBLASLt's part, as a call of its own.
    let part = Gemm { addends: form.done, ..gemm.clone() };
    let types = Call::Gemm(part.clone()).operands();
    let literals: Vec<_> = types
        .iter()
        .enumerate()
        .map(|(seed, t)| {
            let dtype = match seed {
                0 | 1 => gemm.factors()[seed],
                _ => t.dtype,
            };
            let numbers = numbers(dtype, t.elements().unwrap(), seed);
            Literal::from_bytes(t.dtype, numbers.shape(), &numbers.to_bytes()).unwrap()
        })
        .collect();
    let memories: Vec<_> = literals.iter().map(|l| b.put(l)).collect();
    let shape = [gemm.batch, gemm.m, gemm.n];
    let of_memory: Vec<usize> = memory_extents(&shape, gemm.pitch).collect();
    let bytes = of_memory.iter().product::<usize>() * gemm.result.size();
    let out = b.device.allocate(bytes as u64, "out").unwrap();
    let bias = part.bias_argument().map_or(Address(0), |n| memories[n].address());
    let residual = part.residual_argument().map(|n| &memories[n]);
    let out = residual.filter(|_| in_place).unwrap_or(&out);
    let operands = Operands {
        lhs: memories[0].address(),
        rhs: memories[1].address(),
        residual: residual.map_or(Address(0), Memory::address),
        out: out.address(),
        bias,
        scales: match part.scales {
            Some(_) => [memories[2].address(), memories[3].address()],
            None => Default::default(),
        },
    };
    b.blas.execute(&prepared, &operands, b.workspace.address()).unwrap();
    let mut found = b.get(out, gemm.result, &of_memory);
    if let Some(of) = PaddedRows::of(&shape, gemm.pitch) {
        let rows =
            pitch::rows(&found.to_bytes(), of, gemm.result.size()).collect::<Vec<_>>().concat();
        found = Literal::from_bytes(gemm.result, &shape, &rows).unwrap();
    }
    let reference = Call::Gemm(part).reference(&literals).unwrap();
    reference.check(&found).unwrap_or_else(|e| panic!("{e}\n{gemm:?}\n{form:?}"));
    true
}

#[test]
fn products_of_float8_mean_what_the_call_means() {
    benches().into_iter().for_each(float8_agrees);
}

fn float8_agrees(b: Bench) {
    use DType::*;
    let of = |lhs, rhs| Some(Scales { lhs, rhs });
    let scales = [None, of(Scale::Whole, Scale::Whole), of(Scale::Rows, Scale::Rows)];
    let mut products = 0;
    for factors in [[F8E4M3FN, F8E4M3FN], [F8E4M3FN, F8E5M2], [F8E5M2, F8E4M3FN]] {
        for (n, scales) in scales.into_iter().enumerate() {
            for (extents, result) in [([5, 16, 32], F32), ([1, 32, 48], BF16), ([16, 16, 16], F16)]
            {
                let gemm = float8(extents, factors, result);
                let [_, columns, k] = extents;
                let pad = 16 * n;
                let lhs = Matrix { row: k + pad, ..gemm.lhs };
                let rhs = Matrix { column: k + pad, ..gemm.rhs };
                for addends in all_addends() {
                    let pitch = (pad > 0 && !addends.residual).then_some(columns + pad);
                    let gemm = Gemm { lhs, rhs, scales, addends, pitch, ..gemm.clone() };
                    products += usize::from(agrees(&b, &gemm, Rules::STRICT, false));
                }
            }
        }
    }
    // A library may lack some.
    assert!(products == 3 * 3 * 3 * 4 || b.real, "{products}");
    let why = |gemm: Gemm| supports(&gemm, Rules::STRICT, false).unwrap_err().to_string();
    let good = float8([5, 16, 32], [F8E4M3FN; 2], F32);
    assert!(why(float8([5, 16, 32], [F8E5M2; 2], F32)).contains("of which one is f8e4m3fn"));
    assert!(why(float8([5, 17, 32], [F8E4M3FN; 2], F32)).contains("multiples of 16"));
    assert!(why(float8([5, 16, 40], [F8E4M3FN; 2], F32)).contains("multiples of 16"));
    let mixed = Gemm { scales: of(Scale::Rows, Scale::Whole), ..good.clone() };
    assert!(why(mixed).contains("both rows and columns"));
    // A version that lacks scales of rows says so, and a kernel of this crate takes its place.
    if !b.real {
        let rows = Gemm { scales: of(Scale::Rows, Scale::Rows), ..good };
        let form = supports(&rows, Rules::STRICT, false).unwrap();
        let mut old = b.device.blas().unwrap();
        old.lt = Arc::new(Lt { version: 120_804, ..b.fake.lt() });
        let prepared = old.prepare(&form, false, &Alignment::FULL, 0, &Tuning::default());
        let why = prepared.unwrap().err().unwrap().to_string();
        assert_eq!(why, "cuBLASLt 12.8.4 answers that scales of rows need version 12.9");
    }
    b.close();
}

#[test]
fn strict_forms_have_the_bits_of_the_graph() {
    benches().into_iter().for_each(strict_bits);
}

fn strict_bits(b: Bench) {
    // Numbers whose sum, bias and residual round differently in another order or precision.
    let large = 2f64.powi(24);
    let rows = [
        // The library adds the bias, and leaves the residual.
        (DType::F32, [3.0, 3.0, 1e8, 0.0], f64::from(9.0f32 + 1e8f32)),
        // In bf16 both 1 would be lost, one after the other.
        (DType::BF16, [16.0, 16.0, 1.0, 1.0], 258.0),
        (DType::F16, [64.0, 32.0, 1.0, 1.0], 2050.0),
        // The residual is lost if it comes first, and only then.
        (DType::BF16, [4096.0, 4096.0, -large, 1.0], 0.0),
    ];
    for (dtype, [x, y, bias, residual], wanted) in rows {
        for in_place in [false, true] {
            let halves = dtype.is_half();
            if in_place && !halves {
                continue;
            }
            let value = |x: f64| {
                b.put(&Literal::from_scalars(dtype, &[1], &[Scalar::from_f64(dtype, x)]).unwrap())
            };
            let one = Matrix { batch: 0, row: 1, column: 1 };
            let gemm = Gemm {
                batch: 1,
                m: 1,
                n: 1,
                k: 1,
                lhs: one,
                rhs: one,
                operand: dtype,
                rhs_operand: None,
                scales: None,
                accumulate: if halves { DType::F32 } else { dtype },
                result: dtype,
                addends: Addends { bias: true, residual: true },
                pitch: None,
            };
            let form = supports(&gemm, Rules::STRICT, in_place).unwrap();
            assert_eq!((form.done.bias, form.left.residual), (true, !halves));
            let [x, y, bias, residual, out] = [x, y, bias, residual, 0.0].map(value);
            let result = if in_place { &residual } else { &out };
            let operands = Operands {
                lhs: x.address(),
                rhs: y.address(),
                bias: bias.address(),
                residual: residual.address(),
                out: result.address(),
                ..Operands::default()
            };
            let prepared = b
                .blas
                .prepare(&form, in_place, &Alignment::FULL, 0, &Tuning::default())
                .unwrap()
                .unwrap();
            b.blas.execute(&prepared, &operands, Address(0)).unwrap();
            assert_eq!(b.get(result, dtype, &[1]).get(0).to_f64(), wanted, "{dtype} {in_place}");
            drop((prepared, x, y, bias, residual, out));
        }
    }
    b.close();
}

fn biased() -> Form {
    let addends = Addends { bias: true, residual: false };
    supports(&gemms(DType::F32, DType::F32, addends)[0], Rules::STRICT, false).unwrap()
}

#[test]
fn addends_that_the_library_lacks_are_left() {
    let b = bench();
    let prepare = |form: &Form, in_place| {
        b.blas.prepare(form, in_place, &Alignment::FULL, 0, &Tuning::default())
    };
    b.fake.fail("cublasLtMatmulAlgoGetHeuristic", 15);
    let prepared = prepare(&biased(), false).unwrap().unwrap();
    assert!(prepared.form().unwrap().left.bias && !prepared.problem().bias);
    assert!(prepared.notes[0].contains("CUBLAS_STATUS_NOT_SUPPORTED"), "{:?}", prepared.notes);
    assert_eq!(prepared.algorithm().text, "cuBLASLt 13.10.0 algorithm 7 tile 20 workspace 0");
    // The plain form fails too: a kernel of this crate does it, with the reason.
    b.fake.fail("cublasLtMatmulAlgoGetHeuristic", 15);
    b.fake.fail("cublasLtMatmulAlgoGetHeuristic", 7);
    let why = prepare(&biased(), false).unwrap().err().unwrap();
    assert_eq!(why.to_string(), "cuBLASLt 13.10.0 answers CUBLAS_STATUS_INVALID_VALUE");
    // In place there is no fallback.
    let accumulate = Addends { bias: false, residual: true };
    let form =
        supports(&gemms(DType::F32, DType::F32, accumulate)[0], Rules::STRICT, true).unwrap();
    b.fake.fail("cublasLtMatmulAlgoGetHeuristic", 15);
    assert_eq!(prepare(&form, true).unwrap().err(), Some(Why::ResidualOverwritten));
    // Addends of halves are not left: they come before the rounding.
    let both = Addends { bias: true, residual: true };
    let form = supports(&gemms(DType::BF16, DType::BF16, both)[0], Rules::STRICT, true).unwrap();
    b.fake.fail("cublasLtMatmulAlgoGetHeuristic", 15);
    let why = prepare(&form, true).unwrap().err().unwrap();
    assert_eq!(why.to_string(), "cuBLASLt 13.10.0 answers CUBLAS_STATUS_NOT_SUPPORTED");
    // A status other than "not supported" is an error.
    b.fake.fail("cublasLtMatmulAlgoGetHeuristic", 14);
    let error = prepare(&biased(), false).err().unwrap().to_string();
    assert!(
        error.contains("looking for an algorithm for 4x5x3")
            && error.contains("cublasLtMatmulAlgoGetHeuristic"),
        "{error}"
    );
    drop(prepared);
    b.close();
}

#[test]
fn failures_leave_nothing() {
    for call in [
        "cublasLtMatmulDescCreate",
        "cublasLtMatmulDescSetAttribute",
        "cublasLtMatrixLayoutCreate",
        "cublasLtMatmulPreferenceCreate",
        "cublasLtMatmulPreferenceSetAttribute",
    ] {
        for after in 0..3 {
            let b = bench();
            b.fake.fail_after(call, after, 14);
            let _ = b.blas.prepare(&biased(), false, &Alignment::FULL, 0, &Tuning::default());
            b.close();
        }
    }
    let fake = Fake::new();
    let device = fake.device();
    fake.fail("cublasLtCreate", 1);
    let error = device.blas().err().unwrap();
    assert!(error.to_string().contains("starting cuBLASLt (fake)"), "{error}");
    drop(device);
    fake.nothing_left();
}

/// Operands of [`biased`], in one allocation.
fn operands(memory: &Memory) -> Operands {
    let at = |n: u64| memory.address().offset(256 * n);
    Operands { lhs: at(0), rhs: at(1), bias: at(2), out: at(3), ..Operands::default() }
}

#[test]
fn what_is_measured_is_written_down_and_read_again() {
    let b = bench();
    let memory = b.device.allocate(1024, "operands").unwrap();
    b.device.fill(memory.address(), 0, 1024).unwrap();
    let form = biased();
    let (operands, workspace) = (operands(&memory), (b.workspace.address(), WORKSPACE));
    let mut tuning = Tuning::default();
    let tuned = b
        .blas
        .autotune(&form.problem, &Alignment::FULL, workspace, &operands, &mut tuning)
        .unwrap()
        .unwrap();
    // The fake's third algorithm is the fastest; the heuristic prefers the first.
    assert!(tuned.text.contains("algorithm 9") && tuned.microseconds > 0.0, "{tuned:?}");
    let prepare = |tuning: &Tuning, workspace| {
        b.blas.prepare(&form, false, &Alignment::FULL, workspace, tuning).unwrap().unwrap()
    };
    let text = tuning.to_text();
    assert_eq!(text, Tuning::from_text(&text).unwrap().to_text());
    let prepared = prepare(&Tuning::from_text(&text).unwrap(), WORKSPACE);
    assert!(prepared.notes[0].contains("algorithm 9") && prepared.notes[0].ends_with("(tuned)"));
    b.blas.execute(&prepared, &operands, workspace.0).unwrap();
    drop(prepared);
    // Without the entry, and for another workspace bound, the heuristic decides.
    assert!(prepare(&Tuning::default(), WORKSPACE).algorithm().text.contains("algorithm 7"));
    assert!(prepare(&tuning, 1 << 16).algorithm().text.contains("algorithm 7"));
    // An algorithm that the library refuses is reported, and not used.
    let damaged =
        Tuning::from_text(&text.replace(&tuned.algorithm, &format!("ff{}", &tuned.algorithm[2..])))
            .unwrap();
    let prepared = prepare(&damaged, WORKSPACE);
    assert!(
        prepared.notes[0].contains("not used") && prepared.notes[0].contains("NOT_SUPPORTED"),
        "{:?}",
        prepared.notes
    );
    assert!(prepared.algorithm().text.contains("algorithm 7"));
    drop((prepared, memory));
    b.close();
}

#[test]
fn addresses_are_checked_before_the_library_sees_them() {
    let b = bench();
    let memory = b.device.allocate(1024, "operands").unwrap();
    let good = operands(&memory);
    let prepared =
        b.blas.prepare(&biased(), false, &Alignment::FULL, 0, &Tuning::default()).unwrap().unwrap();
    let outside = memory.address().offset(1024);
    for (bad, says) in [
        (Operands { lhs: good.lhs.offset(4), ..good }, "not aligned"),
        (Operands { bias: good.bias.offset(16), ..good }, "not aligned"),
        (Operands { out: outside, ..good }, "not in one allocation"),
        (Operands { bias: Address(0), ..good }, "not in one allocation"),
    ] {
        let error = b.blas.execute(&prepared, &bad, Address(0)).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    assert_eq!(b.fake.count("cublasLtMatmul"), 0);
    b.blas.execute(&prepared, &good, Address(0)).unwrap();
    drop(prepared);
    // Prepared for a lower alignment, a lower alignment is enough.
    let loose = Operands { lhs: good.lhs.offset(4), bias: good.bias.offset(8), ..good };
    let alignment = Alignment::of(&loose);
    assert_eq!((alignment.lhs, alignment.rhs, alignment.bias), (4, 256, 8));
    let prepared =
        b.blas.prepare(&biased(), false, &alignment, 0, &Tuning::default()).unwrap().unwrap();
    b.blas.execute(&prepared, &loose, Address(0)).unwrap();
    drop((prepared, memory));
    b.close();
}

#[test]
fn a_product_is_captured_like_a_kernel() {
    benches().into_iter().for_each(captured);
}

fn captured(b: Bench) {
    let memory = b.device.allocate(1024, "operands").unwrap();
    b.device.write(memory.address(), &numbers(DType::F32, 256, 0).to_bytes()).unwrap();
    let operands = operands(&memory);
    let prepared =
        b.blas.prepare(&biased(), false, &Alignment::FULL, 0, &Tuning::default()).unwrap().unwrap();
    b.blas.execute(&prepared, &operands, Address(0)).unwrap();
    let read = || {
        let mut bytes = [0; 80];
        b.device.read(operands.out, &mut bytes).unwrap();
        bytes
    };
    let out = read();
    assert_ne!(out, [0; 80]);
    b.device.fill(operands.out, 0, 80).unwrap();
    let capture = b.device.begin_capture().unwrap();
    assert!(b.blas.prepare(&biased(), false, &Alignment::FULL, 0, &Tuning::default()).is_err());
    b.blas.execute(&prepared, &operands, Address(0)).unwrap();
    let graph = capture.finish().unwrap();
    assert_eq!(read(), [0; 80]);
    for _ in 0..3 {
        b.device.fill(operands.out, 0, 80).unwrap();
        graph.replay_verified().unwrap();
        assert_eq!(read(), out);
    }
    drop((graph, prepared, memory));
    b.close();
}

#[test]
fn the_library_at_hand_takes_every_descriptor() {
    // Descriptors need no GPU: an installed library checks each attribute and its size. Without
    // one, the error names it.
    let candidates = cublas_lt_candidates(13, &|variable| std::env::var_os(variable));
    let lt = match Lt::open(&candidates, 13_000) {
        Ok(lt) => Arc::new(lt),
        Err(missing) => {
            assert!(missing.library == "cuBLASLt" && !missing.help.is_empty(), "{missing:?}");
            return;
        }
    };
    for (operand, result) in dtypes() {
        for gemm in all_addends().into_iter().flat_map(|a| gemms(operand, result, a)) {
            let problem = supports(&gemm, Rules::RELAXED, false).unwrap().problem;
            descriptor::Description::new(&lt, &problem, &Alignment::FULL).unwrap();
            for (matrix, dtype) in problem.stored().into_iter().zip([operand, operand, result]) {
                descriptor::MatrixLayout::new(&lt, dtype, matrix, problem.batch).unwrap();
            }
        }
    }
    descriptor::Preference::new(&lt, WORKSPACE, &Alignment::FULL).unwrap();
    assert!(lt.version >= 120_000);
}
