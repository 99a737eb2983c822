//! Conversions of f16, bf16 and the 8-bit floats against NumPy and ml_dtypes, bit for bit: the
//! value of every bit pattern, and the rounding of every number, of the middles between neighbours,
//! and of the values beside them. On the CPU, on the emulated GPU, and by the interpreter.

use super::{arrays, run};
use wengert::core::{Element, Scalar, interpret};
use wengert::prelude::*;

const FORMATS: [DType; 4] = [DType::F16, DType::BF16, DType::F8E4M3FN, DType::F8E5M2];

/// As in conversions.py.
const EDGES: [f32; 19] = [
    0.0,
    448.0,
    463.99997,
    464.0,
    464.00003,
    480.0,
    57344.0,
    61439.996,
    61440.0,
    61440.004,
    65504.0,
    65519.996,
    65520.0,
    3.3895314e38,
    3.3961775e38,
    3.4028235e38,
    f32::INFINITY,
    1e-45,
    1.1754944e-38,
];

fn literal<T: Element>(values: Vec<T>) -> Literal {
    Literal::from_vec(&[values.len()], values).unwrap()
}

/// Converts the elements in three ways. Each result has its name.
fn converted(x: &Literal, dtype: DType) -> [(&'static str, Literal); 3] {
    let function = FunctionBuilder::build("f", |f| {
        let x = f.input("x", x.ty());
        f.output("y", x.convert(dtype));
    })
    .unwrap();
    let on = |device| run(function.clone(), device, &[("x".into(), x.clone())]).swap_remove(0);
    let interpreted = interpret::run(&function, std::slice::from_ref(x)).unwrap().swap_remove(0);
    [
        ("the CPU", on(Device::Cpu)),
        ("the emulator", on(Device::Emulator)),
        ("the interpreter", interpreted),
    ]
}

/// The bits of each element. Devices have several NaNs of halves, which become the canonical one.
fn bits(literal: &Literal) -> Vec<u64> {
    let nan = Scalar::from_f64(literal.dtype(), f64::NAN);
    let is_nan = |s: Scalar| s.dtype().is_half() && s.to_f64().is_nan();
    literal.scalars().map(|s| if is_nan(s) { nan.bits() } else { s.bits() }).collect()
}

/// The numbers of a format from 0 to the largest.
fn numbers(dtype: DType) -> Vec<f64> {
    let patterns = 0..1u64 << (dtype.bits() - 1);
    let values = patterns.map(|bits| Scalar::from_bits(dtype, bits).to_f64());
    values.take_while(|v| v.is_finite()).collect()
}

#[test]
fn every_pattern_has_the_value_of_ml_dtypes() {
    let arrays = arrays("conversions.npz");
    for dtype in FORMATS {
        let patterns = 0..1u64 << dtype.bits();
        let patterns: Vec<_> = patterns.map(|bits| Scalar::from_bits(dtype, bits)).collect();
        let patterns = Literal::from_scalars(dtype, &[patterns.len()], &patterns).unwrap();
        let expected = arrays[&format!("{dtype}.values")].as_slice::<u32>().unwrap().to_vec();
        for (machine, found) in converted(&patterns, DType::F32) {
            let found = found.as_slice::<f32>().unwrap();
            for (bits, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let expected = f32::from_bits(*expected);
                assert!(
                    found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(),
                    "{dtype} {bits:#x} is {found} on {machine}, not {expected}"
                );
            }
        }
    }
}

#[test]
fn every_rounding_is_that_of_ml_dtypes() {
    let arrays = arrays("conversions.npz");
    for dtype in FORMATS {
        let numbers = numbers(dtype);
        let pairs = || numbers.windows(2).map(|pair| (pair[0], (pair[0] + pair[1]) / 2.0));
        let singles = pairs().flat_map(|(low, middle)| {
            let middle = middle as f32;
            [low as f32, middle.next_down(), middle, middle.next_up()]
        });
        let doubles =
            pairs().flat_map(|(low, middle)| [low, middle.next_down(), middle, middle.next_up()]);
        let wide = [("f32", literal(singles.collect())), ("f64", literal(doubles.collect()))];
        for (from, values) in wide {
            let Some(ups) = arrays.get(&format!("{dtype}.{from}")) else {
                assert!(dtype != DType::F16 && from == "f64", "{dtype} from {from}");
                continue;
            };
            let ups = ups.scalars().map(Scalar::bits).enumerate();
            let expected: Vec<u64> = ups.map(|(n, up)| n as u64 / 4 + up).collect();
            let negative = values.scalars().map(|v| Scalar::from_f64(v.dtype(), -v.to_f64()));
            let negative: Vec<Scalar> = negative.collect();
            let negative =
                Literal::from_scalars(values.dtype(), values.shape(), &negative).unwrap();
            let sign = 1u64 << (dtype.bits() - 1);
            for (values, sign) in [(values, 0), (negative, sign)] {
                for (machine, found) in converted(&values, dtype) {
                    let found = bits(&found);
                    assert_eq!(found.len(), expected.len());
                    let wrong = (0..found.len()).find(|i| found[*i] != expected[*i] | sign);
                    assert!(
                        wrong.is_none(),
                        "{:?} rounds to another {dtype} on {machine}",
                        wrong.map(|i| values.get(i))
                    );
                }
            }
        }
        let edges = EDGES.into_iter().chain(EDGES.map(|v| -v)).chain([f32::NAN]).collect();
        let expected = bits(&arrays[&format!("{dtype}.edges")]);
        for (machine, found) in converted(&literal::<f32>(edges), dtype) {
            assert_eq!(bits(&found), expected, "{dtype} on {machine}");
        }
    }
}
