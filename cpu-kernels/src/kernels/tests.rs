//! Tests every kernel of every set of vector instructions against the definition of the
//! instruction.

use super::*;
use crate::simd::Simd;
use wengert_core::nest::ScalarOp;
use wengert_core::nest::evaluate::evaluator;
use wengert_core::{DType, Scalar};

/// Bits of `count` elements: special values first, then random ones, of which some are equal and
/// some small.
fn elements(dtype: DType, count: usize, seed: u64) -> Vec<u64> {
    let mut state = seed | 1;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let specials = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.0,
        -2.5,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        2_147_483_648.0,
        -2_147_483_649.0,
        1e-40,
        9.3e18,
        65519.9,
    ];
    let special = |k: u64| Scalar::from_f64(dtype, specials[k as usize % specials.len()]).bits();
    let specials = specials.len();
    (0..count)
        .map(|k| {
            let r = random();
            match (k, r % 4) {
                (k, _) if k < specials => special(k as u64 + seed),
                (_, 0) => special(random()),
                (_, 1) => Scalar::from_i64(dtype, (random() % 40) as i64 - 20).bits(),
                (_, 2) => Scalar::from_f64(dtype, (random() as i64 as f64) / 1e18).bits(),
                _ => Scalar::from_bits(dtype, random()).bits(),
            }
        })
        .collect()
}

fn to_bytes(dtype: DType, bits: &[u64]) -> Vec<u64> {
    // Kept in u64 so that the memory is aligned for every dtype.
    let mut bytes: Vec<u8> =
        bits.iter().flat_map(|b| b.to_le_bytes()[..dtype.size()].to_vec()).collect();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes.chunks(8).map(|c| u64::from_le_bytes(c.try_into().expect("eight bytes"))).collect()
}

fn at(dtype: DType, memory: &[u64], k: usize) -> u64 {
    let bytes: &[u8] = bytemuck::cast_slice(memory);
    let mut wide = [0; 8];
    wide[..dtype.size()].copy_from_slice(&bytes[k * dtype.size()..][..dtype.size()]);
    u64::from_le_bytes(wide)
}

/// Equal bits, or both not a number.
fn same(dtype: DType, a: u64, b: u64) -> bool {
    let nan = |bits| Scalar::from_bits(dtype, bits).to_f64().is_nan();
    a == b || (nan(a) && nan(b))
}

/// One turn of the wide loop, and one more chunk.
const COUNT: usize = 5 * CHUNK;

fn check(kernel: Kernel, op: ScalarOp, operands: &[DType], result: DType, what: &str) {
    let define = evaluator(op, operands, result).expect("the instruction exists");
    for seed in 0..6 {
        let blocks: Vec<Vec<u64>> = operands
            .iter()
            .enumerate()
            .map(|(k, d)| elements(*d, COUNT, seed * 77 + k as u64 * 5))
            .collect();
        let memory: Vec<Vec<u64>> =
            blocks.iter().zip(operands).map(|(b, d)| to_bytes(*d, b)).collect();
        let pointer =
            |k: usize| memory.get(k).map_or(std::ptr::null(), |m| m.as_ptr().cast::<u8>());
        let mut out = to_bytes(result, &vec![0; COUNT]);
        // SAFETY: the blocks have COUNT elements, a multiple of CHUNK, and only available sets
        // are tested.
        unsafe { kernel(out.as_mut_ptr().cast(), pointer(0), pointer(1), pointer(2), COUNT, 0) };
        for k in 0..COUNT {
            let mut bits = [0; 3];
            bits.iter_mut().zip(&blocks).for_each(|(b, block)| *b = block[k]);
            let (got, want) = (at(result, &out, k), define(bits));
            let shown: Vec<Scalar> =
                operands.iter().zip(bits).map(|(d, b)| Scalar::from_bits(*d, b)).collect();
            assert!(same(result, got, want), "{what} {op:?}{shown:?}: {got:#x}, not {want:#x}");
        }
    }
}

#[test]
fn every_kernel_computes_what_its_instruction_says() {
    let mut count = 0;
    for simd in Simd::available() {
        for op in ScalarOp::ALL.iter().copied() {
            for dtype in DType::IN_KERNELS {
                let mut operands = vec![dtype; op.arity()];
                if op == ScalarOp::Select {
                    operands[0] = DType::Bool;
                }
                let result = op.result(&operands);
                if matches!(op, ScalarOp::Convert | ScalarOp::Bitcast)
                    || op.check(&operands, result).is_err()
                {
                    assert!(
                        op == ScalarOp::Select || scalar(op, dtype, simd).is_none(),
                        "{op:?} {dtype}"
                    );
                    continue;
                }
                let kernel = scalar(op, dtype, simd).expect("every instruction has a kernel");
                check(kernel, op, &operands, result, simd.name());
                count += 1;
            }
        }
    }
    assert!(count >= 200 * Simd::available().count());
}

#[test]
fn every_conversion_rounds_as_it_should() {
    for simd in Simd::available() {
        for from in DType::IN_KERNELS {
            for to in DType::IN_KERNELS {
                check(convert(from, to, simd), ScalarOp::Convert, &[from], to, simd.name());
            }
        }
    }
}

#[test]
fn every_half_and_its_neighbourhood_converts() {
    let mut floats = Vec::new();
    for half in 0..=u16::MAX {
        for dtype in [DType::F16, DType::BF16] {
            let value = Scalar::from_bits(dtype, half.into()).to_f64() as f32;
            floats.extend([-1, 0, 1].map(|d: i32| value.to_bits().wrapping_add_signed(d)));
            floats.push(value.to_bits().wrapping_add(0x1000));
            floats.push(value.to_bits().wrapping_add(0x8000));
        }
    }
    floats.resize(floats.len().next_multiple_of(CHUNK), 0);
    for simd in Simd::available() {
        for to in [DType::F16, DType::BF16] {
            let define = evaluator(ScalarOp::Convert, &[DType::F32], to).expect("exists");
            let mut out = vec![0u16; floats.len()];
            let kernel = convert(DType::F32, to, simd);
            // SAFETY: both blocks have `floats.len()` elements, a multiple of CHUNK.
            unsafe {
                kernel(
                    out.as_mut_ptr().cast(),
                    floats.as_ptr().cast(),
                    std::ptr::null(),
                    std::ptr::null(),
                    floats.len(),
                    0,
                );
            }
            for (bits, got) in floats.iter().zip(&out) {
                let want = define([u64::from(*bits), 0, 0]);
                assert!(
                    same(to, u64::from(*got), want),
                    "{bits:#x} to {to}: {got:#x}, not {want:#x}"
                );
            }
        }
    }
}

#[test]
fn folds_and_scans_combine_in_order() {
    for simd in Simd::available() {
        for op in [ScalarOp::Add, ScalarOp::Mul, ScalarOp::Min, ScalarOp::Max] {
            for dtype in DType::IN_KERNELS {
                let Some(define) = evaluator(op, &[dtype; 2], dtype) else {
                    assert!(fold(op, dtype, simd).is_none() && scan(op, dtype).is_none());
                    assert!(lane_fold(op, dtype).is_none());
                    continue;
                };
                let values = elements(dtype, COUNT, 3);
                let memory = to_bytes(dtype, &values);
                let start = elements(dtype, CHUNK, 9);
                let folded = |lanes: usize, lane: usize| {
                    let mut sums = start.clone();
                    for (k, value) in values.iter().enumerate() {
                        let sum = &mut sums[(lane + k) % lanes];
                        *sum = define([*sum, *value, 0]);
                    }
                    sums
                };
                let check = |got: &[u64], want: &[u64]| {
                    for (k, want) in want.iter().enumerate() {
                        assert!(same(dtype, at(dtype, got, k), *want), "{op:?} {dtype} {k}");
                    }
                };
                let mut sums = to_bytes(dtype, &start);
                let function = fold(op, dtype, simd).expect("frequent");
                // SAFETY: the blocks have the stated number of elements, and only available sets
                // are tested.
                unsafe { function(sums.as_mut_ptr().cast(), memory.as_ptr().cast(), COUNT) };
                check(&sums, &folded(CHUNK, 0));
                for (lanes, lane) in [(1, 0), (2, 1), (8, 3), (16, 5)] {
                    let mut sums = to_bytes(dtype, &start);
                    let function = lane_fold(op, dtype).expect("frequent");
                    // SAFETY: the blocks have the stated number of elements, and only available
                    // sets are tested.
                    unsafe {
                        function(
                            sums.as_mut_ptr().cast(),
                            memory.as_ptr().cast(),
                            COUNT,
                            lane,
                            lanes,
                        )
                    };
                    check(&sums, &folded(lanes, lane));
                }
                for reverse in [false, true] {
                    let mut state = to_bytes(dtype, &start[..1]);
                    let mut out = vec![0u64; COUNT];
                    let function = scan(op, dtype).expect("frequent");
                    // SAFETY: the blocks have the stated number of elements, and only available
                    // sets are tested.
                    unsafe {
                        function(
                            out.as_mut_ptr().cast(),
                            memory.as_ptr().cast(),
                            state.as_mut_ptr().cast(),
                            COUNT - 3,
                            reverse,
                        );
                    }
                    let mut running = start[0];
                    for k in 0..COUNT - 3 {
                        let k = if reverse { COUNT - 4 - k } else { k };
                        running = define([running, values[k], 0]);
                        assert!(same(dtype, at(dtype, &out, k), running), "{op:?} {dtype} {k}");
                    }
                    assert!(same(dtype, at(dtype, &state, 0), running));
                }
            }
        }
    }
}

#[test]
fn chains_round_after_every_link() {
    use chain::{LONGEST, Link, chain};
    let blocks: Vec<Vec<u64>> =
        (0..=LONGEST as u64).map(|k| elements(DType::F32, COUNT, k * 31 + 2)).collect();
    let memory: Vec<Vec<u64>> = blocks.iter().map(|b| to_bytes(DType::F32, b)).collect();
    let pointers: Vec<*mut u8> =
        memory.iter().map(|m| m.as_ptr().cast::<u8>().cast_mut()).collect();
    let apply = |link: Link, value: u64, operand: u64| {
        let (op, operands) = match link {
            Link::Add => (ScalarOp::Add, [value, operand, 0]),
            Link::Mul => (ScalarOp::Mul, [value, operand, 0]),
            Link::Sub => (ScalarOp::Sub, [value, operand, 0]),
            Link::SubFrom => (ScalarOp::Sub, [operand, value, 0]),
        };
        evaluator(op, &[DType::F32; 2], DType::F32).expect("exists")(operands)
    };
    let all = [Link::Add, Link::Mul, Link::Sub, Link::SubFrom];
    let mut lists: Vec<Vec<Link>> = all[..3].iter().map(|l| vec![*l]).collect();
    for length in 1..LONGEST {
        let longer: Vec<Vec<Link>> = lists
            .iter()
            .filter(|l| l.len() == length)
            .flat_map(|l| all.map(|link| l.iter().copied().chain([link]).collect()))
            .collect();
        lists.extend(longer);
    }
    assert_eq!(lists.len(), 3 * (1 + 4 + 16 + 64));
    for simd in Simd::available() {
        for links in &lists {
            let mut out = vec![0u64; COUNT / 2];
            // SAFETY: every block has COUNT elements, a multiple of CHUNK, and there is one more
            // block than links.
            unsafe { chain(links, simd)(out.as_mut_ptr().cast(), pointers.as_ptr(), COUNT, 0) };
            for k in 0..COUNT {
                let first = apply(links[0], blocks[0][k], blocks[1][k]);
                let rest = links[1..].iter().zip(&blocks[2..]);
                let want = rest.fold(first, |value, (link, block)| apply(*link, value, block[k]));
                let got = at(DType::F32, &out, k);
                assert!(
                    same(DType::F32, got, want),
                    "{simd:?} {links:?} {k}: {got:#x}, not {want:#x}"
                );
            }
        }
    }
}

#[test]
fn repeated_operands_are_read_again_and_again() {
    let x = elements(DType::F32, COUNT, 4);
    let memory = to_bytes(DType::F32, &x);
    let constant = to_bytes(DType::F32, &[x[20]; TURN]);
    let mask = to_bytes(DType::Bool, &[1; TURN]);
    let define = evaluator(ScalarOp::Sub, &[DType::F32; 2], DType::F32).expect("exists");
    let (varying, fixed) = (memory.as_ptr().cast::<u8>(), constant.as_ptr().cast::<u8>());
    for simd in Simd::available() {
        let sub = scalar(ScalarOp::Sub, DType::F32, simd).expect("exists");
        let select = scalar(ScalarOp::Select, DType::F32, simd).expect("exists");
        let links = chain::chain(&[chain::Link::Sub, chain::Link::Sub], simd);
        let null = std::ptr::null();
        let run = |f: &dyn Fn(*mut u8)| {
            let mut out = vec![0u64; COUNT / 2];
            f(out.as_mut_ptr().cast());
            (0..COUNT).map(|k| at(DType::F32, &out, k)).collect::<Vec<_>>()
        };
        // SAFETY: `varying` has COUNT elements; the others have a turn of elements, and are
        // repeated.
        let right = run(&|out| unsafe { sub(out, varying, fixed, null, COUNT, 0b10) });
        // SAFETY: as above.
        let left = run(&|out| unsafe { sub(out, fixed, varying, null, COUNT, 0b01) });
        // SAFETY: as above.
        let chosen =
            run(&|out| unsafe { select(out, mask.as_ptr().cast(), varying, fixed, COUNT, 0b101) });
        let operands = [varying, fixed, varying].map(<*const u8>::cast_mut);
        // SAFETY: as above.
        let chained = run(&|out| unsafe { links(out, operands.as_ptr(), COUNT, 0b010) });
        for k in 0..COUNT {
            let difference = define([x[k], x[20], 0]);
            assert!(same(DType::F32, right[k], difference), "{simd:?} {k}");
            assert!(same(DType::F32, left[k], define([x[20], x[k], 0])), "{simd:?} {k}");
            assert_eq!(chosen[k], x[k]);
            assert!(same(DType::F32, chained[k], define([difference, x[k], 0])), "{simd:?} {k}");
        }
    }
}
