//! Nests for the tests.

use wengert_core::nest::{Affine, Instr, Nest, NestBuilder, ScalarOp, parse_nests, verify};
use wengert_core::{DType, Literal, Scalar, math};
use wengert_cuda::architecture::Architecture;
use wengert_cuda::nest::{Schedule, takes};

use wengert_testing::{Random, nests};

/// Every nest of the filetests that verifies.
pub fn filetests() -> Vec<Nest> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/tests/nest");
    let mut found = Vec::new();
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        // A file may contain nests that do not parse or verify, so each nest is parsed separately.
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
            found.extend(
                nests.into_iter().map(|(nest, _)| nest).filter(|nest| verify(nest).is_ok()),
            );
        }
    }
    assert!(found.len() >= 15, "{} nests of filetests verify", found.len());
    found
}

/// Random nests that verify.
pub fn random_nests(seeds: std::ops::Range<u64>) -> Vec<(u64, Nest)> {
    seeds.filter_map(|seed| Some((seed, nests::nest(&mut Random(seed))?))).collect()
}

/// The table of scalar instructions whose bits are fixed: the dtypes of the operands and of the
/// result.
pub fn scalar_table() -> Vec<(ScalarOp, Vec<DType>, DType)> {
    let mut table = Vec::new();
    for op in ScalarOp::ALL.iter().filter(|op| !op.is_approximate()) {
        for dtype in DType::IN_KERNELS {
            let mut operands = vec![dtype; op.arity()];
            if *op == ScalarOp::Select {
                operands[0] = DType::Bool;
            }
            let results = match op {
                ScalarOp::Convert | ScalarOp::Bitcast => DType::IN_KERNELS.to_vec(),
                _ => vec![op.result(&operands)],
            };
            let results = results.into_iter().filter(|r| op.check(&operands, *r).is_ok());
            table.extend(results.map(|r| (*op, operands.clone(), r)));
        }
    }
    table
}

/// A nest that computes one instruction on `count` elements.
pub fn scalar_nest(op: ScalarOp, operands: &[DType], result: DType, count: usize) -> Nest {
    let name = format!("{}_{}_{result}", op.name(), operands.last().unwrap());
    let mut b = NestBuilder::new(&name);
    let inputs: Vec<_> = operands.iter().map(|d| b.input("x", *d, &[count])).collect();
    let output = b.output("y", result, &[count]);
    let axis = b.parallel("i", count);
    let _: [_; 0] = b.phase([]);
    let index = [Affine::axis(axis)];
    let values: Vec<_> = inputs.iter().map(|x| b.load(*x, &index)).collect();
    let value = match op {
        ScalarOp::Convert => b.convert(values[0], result),
        ScalarOp::Bitcast => b.bitcast(values[0], result),
        _ => b.scalar(op, &values),
    };
    b.store(output, &index, value);
    b.finish().unwrap()
}

/// Values at which an instruction may go wrong.
pub fn special_values(dtype: DType) -> Vec<Scalar> {
    let bits: Vec<u64> = match dtype {
        DType::Bool => vec![0, 1],
        DType::F16 => {
            (0..=0xffff).step_by(0x3ff).chain([0x8000, 0x7c00, 0xfc00, 1, 0x8001, 0x7bff]).collect()
        }
        DType::BF16 => {
            (0..=0xffff).step_by(0x3ff).chain([0x8000, 0x7f80, 0xff80, 1, 0x8001, 0x7f7f]).collect()
        }
        DType::F32 => {
            let numbers = [
                0.0f32,
                1.0,
                0.5,
                1.5,
                2.5,
                0.3,
                3.0,
                7.0,
                1e-3,
                100.0,
                255.5,
                256.0,
                65519.9,
                65520.0,
                1e10,
                3e38,
                f32::MAX,
                f32::MIN_POSITIVE,
                1e-41,
                f32::INFINITY,
                f32::NAN,
                2147483648.0,
                4294967296.0,
                9.3e18,
                1.9e19,
                88.7,
                127.5,
                2.0000002,
                0.99999994,
            ];
            numbers.iter().flat_map(|v| [v.to_bits(), (-v).to_bits()]).map(u64::from).collect()
        }
        DType::F64 => {
            let numbers = [
                0.0f64,
                1.0,
                0.5,
                1.5,
                2.5,
                0.3,
                3.0,
                7.0,
                1e-3,
                100.0,
                255.5,
                65519.999999,
                65520.0,
                1e10,
                3.5e38,
                1e300,
                f64::MAX,
                f64::MIN_POSITIVE,
                5e-324,
                1e-41,
                f64::INFINITY,
                f64::NAN,
                2147483648.0,
                4294967295.5,
                9.3e18,
                1.9e19,
                1.0 + 4.8828125e-4,
                1.0 + 4.8828125e-4 + 1e-12,
                1.00390625,
                1.0039062500001,
            ];
            numbers.iter().flat_map(|v| [v.to_bits(), (-v).to_bits()]).collect()
        }
        _ => {
            let whole = [
                0i64,
                1,
                2,
                3,
                5,
                7,
                8,
                10,
                31,
                32,
                33,
                63,
                64,
                65,
                100,
                127,
                128,
                129,
                254,
                255,
                256,
                65535,
                65536,
                1 << 20,
                (1 << 24) + 1,
                i64::from(i32::MAX),
                1 << 31,
                (1 << 31) + 1,
                i64::from(u32::MAX),
                1 << 32,
                (1 << 53) + 1,
                (1 << 62) + (1 << 54),
                (1 << 62) + (1 << 54) + 1,
                i64::MAX,
            ];
            whole
                .iter()
                .flat_map(|v| [*v as u64, v.wrapping_neg() as u64])
                .chain([1 << 63])
                .collect()
        }
    };
    let mut values: Vec<Scalar> = bits.into_iter().map(|b| Scalar::from_bits(dtype, b)).collect();
    values.sort();
    values.dedup();
    values
}

/// Operands in combinations of special values: all combinations for one and two operands, some for
/// three.
pub fn special_operands(operands: &[DType]) -> Vec<Literal> {
    let lists: Vec<Vec<Scalar>> = operands.iter().map(|d| special_values(*d)).collect();
    let step = if operands.len() == 3 && operands[0] != DType::Bool { 37 } else { 1 };
    let total: usize = lists.iter().map(Vec::len).product();
    let mut columns = vec![Vec::new(); operands.len()];
    for n in (0..total).step_by(step) {
        let mut rest = n;
        for (column, list) in columns.iter_mut().zip(&lists) {
            column.push(list[rest % list.len()]);
            rest /= list.len();
        }
    }
    let literal =
        |(d, c): (&DType, &Vec<Scalar>)| Literal::from_scalars(*d, &[c.len()], c).unwrap();
    operands.iter().zip(&columns).map(literal).collect()
}

/// True if every elementary function of the nest has a program, and every bit is fixed.
pub fn is_supported(nest: &Nest) -> bool {
    nest.phases.iter().flat_map(|p| &p.body).all(|instr| match instr {
        Instr::Scalar { op, operands, .. } if op.is_elementary() => {
            math::program(*op, nest.registers[operands[0]]).is_some()
        }
        Instr::Scalar { op, .. } => !op.is_approximate(),
        _ => true,
    })
}

/// Schedules that the nest accepts. `None` is the schedule that the compiler chooses.
pub fn schedules(nest: &Nest) -> Vec<Option<Schedule>> {
    let row = |threads, vector| Schedule::Row { threads, vector };
    let team = |threads, rows| Schedule::Team { threads, rows };
    let columns = |threads, rows, vector| Schedule::Columns { threads, rows, vector };
    let all = [
        row(32, 1),
        row(64, 4),
        team(8, 4),
        team(32, 2),
        team(128, 1),
        team(64, 2),
        columns(8, 16, 1),
        columns(4, 32, 1),
        columns(8, 16, 4),
        Schedule::Tile,
    ];
    let taken = all.into_iter().filter(|s| takes(nest, Architecture::ALL[0], s));
    [None].into_iter().chain(taken.map(Some)).collect()
}
