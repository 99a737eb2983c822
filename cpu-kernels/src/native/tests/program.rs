//! Tests programs: every instruction on every dtype that has a rule, with every number of
//! elements.

use crate::native::{Program, Register};
use crate::simd::Simd;
use wengert_core::nest::ScalarOp;
use wengert_core::nest::evaluate::evaluator;
use wengert_core::{DType, Scalar};
use wengert_testing::Random;

/// Elements of a block: several times as many as the largest loop takes per iteration.
const COUNT: usize = 300;

/// Bits of elements: special values, small ones, arbitrary ones.
fn elements(dtype: DType, count: usize, seed: u64) -> Vec<u64> {
    let specials = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.5,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        2_147_483_648.0,
        -2_147_483_649.0,
        4_294_967_296.0,
        1e-40,
        -1e-310,
        9.3e18,
        1.9e19,
        65519.9,
        255.5,
    ];
    let mut random = Random(seed);
    (0..count)
        .map(|_| {
            let r = random.bits();
            match r % 8 {
                0 | 1 => {
                    Scalar::from_f64(dtype, specials[(r >> 8) as usize % specials.len()]).bits()
                }
                2 | 3 => Scalar::from_i64(dtype, ((r >> 8) % 70) as i64 - 20).bits(),
                4 | 5 => Scalar::from_f64(dtype, (random.bits() as i64 as f64) / 1e18).bits(),
                _ => Scalar::from_bits(dtype, random.bits()).bits(),
            }
        })
        .collect()
}

/// Elements in memory, `skip` elements after an aligned address.
struct Block {
    memory: Vec<u64>,
    dtype: DType,
    skip: usize,
}

impl Block {
    fn new(dtype: DType, bits: &[u64], skip: usize) -> Self {
        let mut bytes = vec![0u8; skip * dtype.size()];
        bytes.extend(bits.iter().flat_map(|b| b.to_le_bytes()[..dtype.size()].to_vec()));
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let memory =
            bytes.chunks(8).map(|c| u64::from_le_bytes(c.try_into().expect("eight bytes")));
        Block { memory: memory.collect(), dtype, skip }
    }

    fn pointer(&mut self) -> *mut u8 {
        self.memory.as_mut_ptr().cast::<u8>().wrapping_add(self.skip * self.dtype.size())
    }

    fn at(&self, k: usize) -> u64 {
        let bytes: &[u8] = bytemuck::cast_slice(&self.memory);
        let size = self.dtype.size();
        let mut wide = [0; 8];
        wide[..size].copy_from_slice(&bytes[(self.skip + k) * size..][..size]);
        u64::from_le_bytes(wide)
    }
}

/// Equal bits, or both not a number.
fn same(dtype: DType, a: u64, b: u64) -> bool {
    let nan = |bits| dtype.is_float() && Scalar::from_bits(dtype, bits).to_f64().is_nan();
    a == b || (nan(a) && nan(b))
}

/// Whether native code runs on this machine.
fn is_here() -> bool {
    if !Simd::Avx512.is_available() {
        wengert_testing::skipped("no AVX-512");
    }
    Simd::Avx512.is_available()
}

/// Checks an instruction; false if it has no rule.
fn check(op: ScalarOp, operands: &[DType], result: DType, uniform: usize) -> bool {
    let define = evaluator(op, operands, result).expect("it exists");
    let mut program = Program::default();
    let inputs: Vec<(Register, usize)> = operands
        .iter()
        .enumerate()
        .map(
            |(k, dtype)| {
                if uniform >> k & 1 == 1 { program.uniform(*dtype) } else { program.load(*dtype) }
            },
        )
        .collect();
    let registers: Vec<Register> = inputs.iter().map(|(r, _)| *r).collect();
    let Some(value) = program.scalar(op, &registers, operands, result) else { return false };
    program.store(result, value);
    let function = program.compile().expect("there is memory");
    for (count, skip) in
        [(COUNT, 0), (COUNT - 3, 1), (16, 3), (5, 0), (1, 7), (0, 0), (17, 2), (64, 0)]
    {
        let bits: Vec<Vec<u64>> = (0..operands.len())
            .map(|k| elements(operands[k], COUNT, k as u64 + 7 * skip as u64))
            .collect();
        let mut blocks: Vec<Block> =
            bits.iter().zip(operands).map(|(b, d)| Block::new(*d, b, skip)).collect();
        blocks.push(Block::new(result, &vec![0x5a5a_5a5a_5a5a_5a5a; COUNT], skip));
        let table: Vec<*mut u8> = blocks.iter_mut().map(Block::pointer).collect();
        assert_eq!(table.len(), function.pointers());
        // SAFETY: every block has COUNT elements, and the machine has the instructions.
        unsafe { function.run(table.as_ptr(), count) };
        let out = &blocks[operands.len()];
        for k in 0..count {
            let mut x = [0; 3];
            for (n, slot) in x.iter_mut().enumerate().take(operands.len()) {
                *slot = bits[n][if uniform >> n & 1 == 1 { 0 } else { k }];
            }
            let (got, want) = (out.at(k), define(x));
            let shown: Vec<Scalar> =
                operands.iter().zip(x).map(|(d, b)| Scalar::from_bits(*d, b)).collect();
            assert!(
                same(result, got, want),
                "{op:?}{shown:?} to {result}: {got:#x}, not {want:#x}"
            );
        }
        let untouched = 0x5a5a_5a5a_5a5a_5a5a & (u64::MAX >> (64 - 8 * result.size()));
        for k in count..COUNT {
            assert_eq!(
                out.at(k),
                untouched,
                "{op:?} {operands:?}: element {k} of {count} is written"
            );
        }
    }
    true
}

#[test]
fn every_rule_computes_what_its_instruction_says() {
    if !is_here() {
        return;
    }
    let (mut rules, mut singles) = (0, 0);
    for op in ScalarOp::ALL.iter().copied() {
        for dtype in DType::IN_KERNELS {
            let mut operands = vec![dtype; op.arity()];
            if op == ScalarOp::Select {
                operands[0] = DType::Bool;
            }
            for result in DType::IN_KERNELS {
                if op.check(&operands, result).is_err() {
                    continue;
                }
                let has_rule = check(op, &operands, result, 0);
                rules += usize::from(has_rule);
                singles += usize::from(has_rule && dtype == DType::F32);
                for uniform in 1..if has_rule { 1 << operands.len() } else { 1 } {
                    check(op, &operands, result, uniform);
                }
            }
        }
    }
    assert!(rules > 250 && singles > 50, "{rules} rules, {singles} of f32");
}

#[test]
fn folds_take_elements_in_turn() {
    if !is_here() {
        return;
    }
    for op in [ScalarOp::Add, ScalarOp::Mul, ScalarOp::Min, ScalarOp::Max] {
        for dtype in [DType::F32, DType::F64, DType::I32, DType::I64, DType::U32, DType::U64] {
            let define = evaluator(op, &[dtype; 2], dtype).expect("it exists");
            let mut program = Program::default();
            let (x, _) = program.load(dtype);
            program.fold(op, dtype, x).expect("it has a rule");
            let function = program.compile().expect("there is memory");
            for count in [0, 3, 16, 40, 64, COUNT] {
                let (bits, start) = (elements(dtype, COUNT, count as u64), elements(dtype, 16, 99));
                let (mut values, mut sums) =
                    (Block::new(dtype, &bits, 1), Block::new(dtype, &start, 0));
                let table = [values.pointer(), sums.pointer()];
                // SAFETY: there are COUNT elements and sixteen accumulators, and the machine has
                // the instructions.
                unsafe { function.run(table.as_ptr(), count) };
                for (lane, first) in start.iter().enumerate() {
                    let want =
                        (lane..count).step_by(16).fold(*first, |sum, k| define([sum, bits[k], 0]));
                    let got = sums.at(lane);
                    assert!(
                        same(dtype, got, want),
                        "{op:?} {dtype} {count} {lane}: {got:#x}, not {want:#x}"
                    );
                }
            }
        }
    }
}

/// Long programs over many values and folds, which exhaust registers, masks and pointers.
#[test]
fn random_programs() {
    if !is_here() {
        return;
    }
    let mut most_folds = 0;
    for seed in 0..300u64 {
        let mut random = Random(seed);
        let mut below = |n: usize| (random.bits() >> 33) as usize % n;
        let dtypes = [
            DType::F32,
            DType::F32,
            DType::I32,
            DType::U32,
            DType::Bool,
            DType::F64,
            DType::BF16,
            DType::F16,
        ];
        let mut program = Program::default();
        let mut blocks: Vec<Block> = vec![];
        let mut values: Vec<(Register, DType, Vec<u64>)> = vec![];
        for k in 0..1 + below(20) {
            let dtype = dtypes[below(dtypes.len())];
            let bits = elements(dtype, COUNT, seed * 100 + k as u64);
            let (register, bits, block) = match below(4) {
                0 => {
                    let block = Block::new(dtype, &bits, below(3));
                    (program.uniform(dtype).0, vec![bits[0]; COUNT], Some(block))
                }
                1 => (
                    program.constant(Scalar::from_bits(dtype, bits[0])),
                    vec![bits[0]; COUNT],
                    None,
                ),
                _ => {
                    let block = Block::new(dtype, &bits, below(3));
                    (program.load(dtype).0, bits, Some(block))
                }
            };
            blocks.extend(block);
            values.push((register, dtype, bits));
        }
        for _ in 0..below(120) {
            let op = ScalarOp::ALL[below(ScalarOp::ALL.len())];
            // The bits of a NaN are unspecified.
            if op == ScalarOp::Bitcast {
                continue;
            }
            let Some((_, last, _)) = values.get(below(values.len())).cloned() else { continue };
            let result = match op {
                ScalarOp::Convert => dtypes[below(dtypes.len())],
                _ => op.result(&[last]),
            };
            let mut operands = vec![last; op.arity()];
            if op == ScalarOp::Select {
                operands[0] = DType::Bool;
            }
            let Some(define) = evaluator(op, &operands, result) else { continue };
            let picked: Option<Vec<usize>> = operands
                .iter()
                .map(|dtype| {
                    let fitting: Vec<usize> =
                        (0..values.len()).filter(|k| values[*k].1 == *dtype).collect();
                    (!fitting.is_empty()).then(|| fitting[below(fitting.len())])
                })
                .collect();
            let Some(picked) = picked else { continue };
            let registers: Vec<Register> = picked.iter().map(|k| values[*k].0).collect();
            let Some(register) = program.scalar(op, &registers, &operands, result) else {
                continue;
            };
            let bits = (0..COUNT).map(|k| {
                let mut x = [0; 3];
                x.iter_mut().zip(&picked).for_each(|(slot, n)| *slot = values[*n].2[k]);
                define(x)
            });
            let bits = bits.collect();
            values.push((register, result, bits));
        }
        let mut stored = vec![];
        for (k, (register, dtype, bits)) in values.iter().enumerate().rev().take(12) {
            program.store(*dtype, *register);
            stored.push((blocks.len(), k, bits.clone()));
            blocks.push(Block::new(*dtype, &vec![0; COUNT], below(3)));
        }
        let mut folded = vec![];
        for _ in 0..below(2) * below(50) {
            let (register, dtype, bits) = &values[below(values.len())];
            let op = [ScalarOp::Min, ScalarOp::Max, ScalarOp::Add][below(3)];
            let Some(define) = evaluator(op, &[*dtype; 2], *dtype) else { continue };
            if program.fold(op, *dtype, *register).is_some() {
                let start = elements(*dtype, 16, seed + folded.len() as u64);
                folded.push((blocks.len(), define, start.clone(), bits.clone()));
                blocks.push(Block::new(*dtype, &start, 0));
            }
        }
        most_folds = most_folds.max(folded.len());
        let function = program.compile().expect("there is memory");
        let count = 1 + below(COUNT);
        let table: Vec<*mut u8> = blocks.iter_mut().map(Block::pointer).collect();
        // SAFETY: every block has COUNT elements, and the machine has the instructions.
        unsafe { function.run(table.as_ptr(), count) };
        for (block, value, bits) in stored {
            let block = &blocks[block];
            for (k, want) in bits.into_iter().enumerate().take(count) {
                let got = block.at(k);
                let what = format!("seed {seed}: element {k} of value {value}, {}", block.dtype);
                assert!(same(block.dtype, got, want), "{what}: {got:#x}, not {want:#x}");
            }
        }
        for (block, define, start, bits) in folded {
            let block = &blocks[block];
            for (lane, first) in start.into_iter().enumerate() {
                let taken = bits[..count].iter().skip(lane).step_by(16);
                let want = taken.fold(first, |sum, x| define([sum, *x, 0]));
                let (got, dtype) = (block.at(lane), block.dtype);
                let what = format!("seed {seed}: lane {lane} of a fold of {dtype}");
                assert!(same(dtype, got, want), "{what}: {got:#x}, not {want:#x}");
            }
        }
    }
    assert!(most_folds > 14, "the accumulators of {most_folds} folds do not fill the registers");
}
