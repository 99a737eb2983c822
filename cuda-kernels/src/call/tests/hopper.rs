//! Products by warpgroups: their values, their fences and waits, their machine code.

use super::follower::{check_compiled, gelu};
use super::*;
use crate::assembly::ptxas_arguments;
use crate::call::gemm::in_warpgroups;
use crate::ptx::hopper::Hopper;
use crate::ptx::{Inst, Line};
use emulator::Asynchrony;
use std::collections::BTreeSet;
use std::process::Command;
use wengert_ci::gate::{Allowed, Source, assemble};
use wengert_ci::toolkit::Toolkit;
use wengert_core::Scalar;
use wengert_core::call::{Scale, Scales};
use wengert_testing::calls::gemm::lay_out;
use wengert_testing::calls::operands;

/// Asynchronous operations take place as late as they may, or before.
pub(super) const MODES: [Asynchrony; 3] =
    [Asynchrony::Late, Asynchrony::Seeded(1), Asynchrony::Seeded(2)];

/// The kernels of a product in tiles of 256 columns (`wide`), or of 128.
fn compiled(gemm: &Gemm, wide: bool, follower: Option<&Follower>) -> Option<Compiled> {
    let terms = Terms {
        architecture: architecture(SM_90),
        in_place: None,
        tf32: false,
        alignment: product::ALIGNMENT,
        workspace: workspace(&Call::Gemm(gemm.clone())),
        follower,
        batch_invariant: false,
    };
    in_warpgroups(gemm, &terms, wide).unwrap()
}

/// A product with these layouts: 0 has contiguous rows, 1 contiguous columns.
fn gemm(batch: usize, [m, n, k]: [usize; 3], orders: [usize; 2], dtypes: [DType; 2]) -> Gemm {
    let [operand, result] = dtypes;
    let (lhs, rhs) = (lay_out(orders[0], m, k), lay_out(orders[1], k, n));
    Gemm { lhs, rhs, ..calls::gemm::product(batch, [m, n, k], operand, result) }
}

/// The result, which does not depend on when asynchronous operations take place.
fn results(gemm: &Gemm, wide: bool, operands: &[Literal]) -> Literal {
    let call = Call::Gemm(gemm.clone());
    let compiled = compiled(gemm, wide, None).unwrap();
    let name = &compiled.stages[0].kernel.name;
    assert!(name.ends_with(if wide { "_wgmma_256" } else { "_wgmma_128" }), "{name}");
    let [found, others @ ..] = MODES.map(|asynchrony| {
        let options = emulator::Options { asynchrony, ..emulator::Options::default() };
        run_with(&call, &compiled, operands, None, |_| 0, options).remove(0)
    });
    assert!(others.iter().all(|other| other.to_bytes() == found.to_bytes()), "{gemm:?}");
    found
}

/// Every layout, with tiles and steps whose edges are before those of the matrices, with addends,
/// padded rows, and several products.
#[test]
fn values_are_within_the_bound() {
    let (bf16, f16) = (DType::BF16, DType::F16);
    let both = Addends { bias: true, residual: true };
    let bias = Addends { bias: true, residual: false };
    let of = |gemm: Gemm, addends, pitch| Gemm { addends, pitch, ..gemm };
    let none = Addends::default();
    for (gemm, wide) in [
        (of(gemm(1, [136, 136, 72], [0, 0], [bf16, bf16]), none, None), false),
        (of(gemm(1, [136, 136, 72], [0, 1], [bf16, DType::F32]), both, None), false),
        (of(gemm(1, [136, 264, 72], [1, 0], [bf16, bf16]), bias, Some(266)), true),
        (of(gemm(2, [72, 136, 136], [1, 1], [f16, f16]), none, None), false),
        (of(gemm(1, [128, 256, 64], [0, 1], [f16, DType::F32]), none, None), true),
        // A row of out that is not aligned to two sums.
        (of(gemm(1, [130, 129, 64], [0, 1], [bf16, bf16]), both, None), true),
    ] {
        let call = Call::Gemm(gemm.clone());
        let operands = operands(&call, 9);
        let found = results(&gemm, wide, &operands);
        calls::compare(&call, &operands, &[found]).unwrap();
    }
}

/// Sums of integers are exact, whatever the number of steps, with buffers used again and again, and
/// with sums in parts. Those of 8-bit floats are so small that 13 bits hold a chain's.
#[test]
fn sums_of_integers_are_exact() {
    let (bf16, e4m3, e5m2) = (DType::BF16, DType::F8E4M3FN, DType::F8E5M2);
    for (extents, orders, factors, wide, stages) in [
        ([16, 24, 448], [0, 0], [bf16; 2], false, 1),
        ([16, 24, 448], [1, 0], [bf16; 2], true, 1),
        ([24, 16, 456], [0, 1], [bf16; 2], true, 1),
        ([16, 16, 64], [1, 1], [bf16; 2], false, 1),
        ([16, 16, 1096], [0, 0], [bf16; 2], false, 2),
        ([24, 16, 2048], [1, 1], [bf16; 2], true, 2),
        ([136, 132, 496], [0, 1], [e4m3; 2], false, 1),
        ([17, 19, 48], [0, 1], [e5m2, e4m3], false, 1),
        ([16, 24, 1024], [0, 1], [e4m3, e5m2], false, 2),
    ] {
        let [m, n, k] = extents;
        let rhs_operand = (factors[1] != factors[0]).then_some(factors[1]);
        let gemm = Gemm { rhs_operand, ..gemm(1, extents, orders, [factors[0], DType::F32]) };
        let call = Call::Gemm(gemm.clone());
        let integer = |seed: usize| move |at: usize| ((at * 7 + at / 13 * seed) % 17) as i64 - 8;
        let integers = |factor: DType, ty: &TensorType, number: &dyn Fn(usize) -> i64| {
            let scalar = |at| {
                let scalar = Scalar::from_f64(factor, number(at) as f64);
                match factor.is_float8() {
                    true => Scalar::from_bits(DType::U8, scalar.bits()),
                    false => scalar,
                }
            };
            let all: Vec<Scalar> = (0..ty.elements().unwrap()).map(scalar).collect();
            Literal::from_scalars(ty.dtype, &ty.extents().unwrap(), &all).unwrap()
        };
        let types = call.operands();
        let (x, y) = (integer(5), integer(11));
        let operands = [integers(factors[0], &types[0], &x), integers(factors[1], &types[1], &y)];
        assert_eq!(compiled(&gemm, wide, None).unwrap().stages.len(), stages, "{extents:?}");
        let found = results(&gemm, wide, &operands);
        let at = |order: usize, row: usize, column: usize, [rows, columns]: [usize; 2]| {
            if order == 0 { row * columns + column } else { column * rows + row }
        };
        for (place, sum) in found.as_slice::<f32>().unwrap().iter().enumerate() {
            let (i, j) = (place / n, place % n);
            let term = |l| x(at(orders[0], i, l, [m, k])) * y(at(orders[1], l, j, [k, n]));
            let expected: i64 = (0..k).map(term).sum();
            assert_eq!(*sum, expected as f32, "{extents:?} {orders:?}: {i} {j}");
        }
    }
}

/// The emulator finds what is wrong with a kernel that lacks a fence or a wait.
#[test]
fn fences_and_waits_are_needed() {
    let gemm = gemm(1, [16, 16, 448], [0, 0], [DType::BF16, DType::F32]);
    for (lacks, says) in [
        (Inst::Hopper(Hopper::ProxyFence), "no `fence.proxy.async` lies between"),
        (Inst::CopyWait(0), "a `cp.async` is still to write"),
        (Inst::Barrier, "SharedRace"),
        (Inst::Hopper(Hopper::ProductFence), "needs a `wgmma.fence`"),
        (Inst::Hopper(Hopper::ProductCommit), "an asynchronous operation is still to read"),
        (Inst::Hopper(Hopper::ProductWait(1)), "an asynchronous operation is still to read"),
        (Inst::Hopper(Hopper::ProductWait(0)), "before `wgmma.wait_group` has waited"),
    ] {
        let mut compiled = compiled(&gemm, false, None).unwrap();
        let code = &mut compiled.stages[0].kernel.code;
        let lines = code.lines().iter().enumerate();
        let is = |line: &Line| matches!(line, Line::Statement(s) if s.inst == lacks);
        let lines: BTreeSet<usize> = lines.filter(|(_, l)| is(l)).map(|(n, _)| n).collect();
        assert_eq!(lines.len(), 1, "{lacks}");
        code.remove(&lines);
        let mut memory = emulator::Memory::new();
        let arguments = [16 * 448 * 2, 448 * 16 * 2, 16 * 16 * 4].map(|bytes| {
            let address = memory.allocate("argument", bytes).unwrap();
            memory.write(address, &vec![0; bytes as usize]).unwrap();
            (address, bytes)
        });
        let options = emulator::Options::default();
        let found = try_launch("", &compiled, &arguments, 0, &mut memory, options).unwrap_err();
        assert!(found.contains(says), "without `{lacks}`: {found}");
    }
}

/// The follower of a product has the bits of its nest on the product's result.
#[test]
fn followers_are_computed_on_the_sums() {
    for (batch, extents, wide) in [(1, [136, 72, 40], false), (2, [72, 264, 64], true)] {
        let gemm = gemm(batch, extents, [0, 0], [DType::BF16; 2]);
        let call = Call::Gemm(gemm.clone());
        for (one_axis, stores) in [(false, true), (true, false)] {
            let compiled = |follower: Option<&Follower>| compiled(&gemm, wide, follower).unwrap();
            check_compiled(&call, one_axis, stores, compiled);
        }
    }
}

/// Large products of halves on Hopper, where matrices are aligned, and nothing else.
#[test]
fn where_warpgroups_multiply() {
    let halves = |extents, orders| gemm(1, extents, orders, [DType::BF16; 2]);
    let name = |gemm: Gemm, architecture: &str, options: Options<'_>| {
        let call = Call::Gemm(gemm);
        let architecture = self::architecture(architecture);
        let stages = compile_with(&call, architecture, options).unwrap().stages;
        stages[0].kernel.name.clone()
    };
    let usual = Options::default();
    for orders in [[0, 0], [0, 1], [1, 0], [1, 1]] {
        let large = halves([2048, 2048, 512], orders);
        assert_eq!(name(large.clone(), "sm_90", usual), "gemm_bf16_wgmma_256");
        for other in Architecture::ALL.iter().filter(|a| a.number != 90) {
            assert_eq!(name(large.clone(), &other.name(), usual), "gemm_bf16_mma_128");
        }
    }
    // 192 narrow tiles are a wave, 96 wide ones are too few.
    assert_eq!(name(halves([1536, 2048, 512], [0, 0]), "sm_90", usual), "gemm_bf16_wgmma_128");
    let large = halves([2048, 2048, 512], [0, 0]);
    let invariant = Options { batch_invariant: true, ..usual };
    assert_eq!(name(large.clone(), "sm_90", invariant), "gemm_bf16_mma_128");
    let shifted = Options { alignment: 8, ..usual };
    assert_eq!(name(large, "sm_90", shifted), "gemm_bf16_mma_128");
    // Rows of lhs, and columns of rhs, that are not aligned.
    assert_eq!(name(halves([2048, 2048, 513], [0, 0]), "sm_90", usual), "gemm_bf16_mma_128");
    assert_eq!(name(halves([2048, 2044, 512], [0, 0]), "sm_90", usual), "gemm_bf16_mma_128");
    // Few tiles.
    assert_eq!(name(halves([512, 512, 4096], [0, 0]), "sm_90", usual), "gemm_bf16_mma_64");
    let float8 = |extents| calls::gemm::float8(extents, [DType::F8E4M3FN; 2], DType::BF16);
    let (large, small) = (float8([2048, 2048, 512]), float8([512, 512, 4096]));
    assert_eq!(name(large.clone(), "sm_90", usual), "gemm_f8e4m3fn_wgmma_128");
    assert_eq!(name(large, "sm_100", usual), "gemm_f8e4m3fn_mma_64");
    assert_eq!(name(small, "sm_90", usual), "gemm_f8e4m3fn_mma_64");
    // Rows that are not aligned.
    assert_eq!(name(float8([2048, 2048, 520]), "sm_90", usual), "gemm_f8e4m3fn_mma_64");
    let f32s = gemm(1, [2048, 2048, 512], [0, 1], [DType::F32; 2]);
    let tf32 = Options { tf32: true, ..usual };
    assert_eq!(name(f32s, "sm_90", tf32), "gemm_f32_mma_128");
}

/// What `ptxas` says of a text, and its machine code.
pub(super) fn machine_code(text: &str) -> (String, String) {
    let (toolkit, folder) = (Toolkit::find().unwrap(), tempfile::tempdir().unwrap());
    let (source, object) = (folder.path().join("k.ptx"), folder.path().join("k.cubin"));
    std::fs::write(&source, text).unwrap();
    let mut ptxas = toolkit.ptxas();
    ptxas.arg("-v").args(ptxas_arguments(text, architecture(SM_90)));
    let ptxas = ptxas.arg("-o").arg(&object).arg(&source).output().unwrap();
    let words = String::from_utf8([ptxas.stdout, ptxas.stderr].concat()).unwrap();
    assert!(ptxas.status.success(), "{words}");
    let listed = Command::new(toolkit.tool("nvdisasm")).arg("-c").arg(&object).output().unwrap();
    (words, String::from_utf8(listed.stdout).unwrap())
}

/// The registers of a stage's kernel. Each step of its loop has four products of the whole tile,
/// which nothing makes wait for each other; no register is spilled, and as many blocks are resident
/// as the tile is made for.
fn check_machine_code(stage: &stage::Stage, products: &str, resident: u32) {
    let text = text(stage);
    let (words, code) = machine_code(&text);
    assert_eq!(code.matches("GMMA.64x").count(), 4, "{words}");
    assert_eq!(code.matches(products).count(), 4, "{code}");
    assert!(!words.contains("serialized"), "{words}");
    let mut source = Source::new(stage.kernel.remark.clone(), text);
    source.dynamic_shared.insert(stage.kernel.name.clone(), stage.dynamic_shared);
    let report = assemble(&[source], &Allowed::nothing()).unwrap();
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
    let [measure] = &report.measures[..] else { panic!("{:?}", report.measures) };
    println!("{}: {} registers", measure.module, measure.registers);
    assert_eq!(measure.occupancy.as_ref().unwrap().blocks, resident, "{measure:?}");
}

#[test]
fn the_machine_code_is_that_of_the_tile() {
    let both = Addends { bias: true, residual: true };
    for (orders, wide) in
        [([0, 0], true), ([0, 1], true), ([1, 0], true), ([1, 1], false), ([0, 0], false)]
    {
        let gemm = gemm(1, [2000, 1992, 520], orders, [DType::BF16; 2]);
        let follower = Follower {
            nest: gelu(&gemm).into_inner(),
            tile: 0,
            arguments: vec![2, 3],
            in_place: vec![],
            stores: true,
        };
        let products = if wide { "HGMMA.64x256x16.F32.BF16" } else { "HGMMA.64x128x16.F32.BF16" };
        let added = Gemm { addends: both, ..gemm.clone() };
        for (gemm, follower) in [(&gemm, None), (&added, None), (&gemm, Some(&follower))] {
            let stages = compiled(gemm, wide, follower).unwrap().stages;
            check_machine_code(&stages[0], products, if wide { 1 } else { 2 });
        }
    }
    let scales = Some(Scales { lhs: Scale::Rows, rhs: Scale::Rows });
    let factors = [DType::F8E4M3FN, DType::F8E5M2];
    let float8 = calls::gemm::float8([2000, 1992, 528], factors, DType::BF16);
    for gemm in [float8.clone(), Gemm { scales, addends: both, ..float8 }] {
        let stages = compiled(&gemm, false, None).unwrap().stages;
        check_machine_code(&stages[0], "QGMMA.64x128x32.F32.E4M3.E5M2", 1);
    }
}
