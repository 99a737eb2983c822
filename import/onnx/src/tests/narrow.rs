//! Dtypes that programs lack, against Rust's integers and against a search among all floats.

use super::{imported, input, int, model, node, output, refused, run};
use crate::proto::*;
use crate::{Class, Imported, Narrow, Options, read, read_tensor};
use prost::Message;
use wengert_core::{Binding, Literal, Result};

const I16: i32 = 5;
const U16: i32 = 4;
const U4: i32 = 21;
const I4: i32 = 22;

/// A model of one op of two inputs of a dtype.
fn pair(op: &str, dtype: i32) -> ModelProto {
    model(GraphProto {
        node: vec![node(op, &["a", "b"], &["y"])],
        input: vec![input("a", dtype, &[Some("n")]), input("b", dtype, &[Some("n")])],
        output: vec![output("y")],
        ..Default::default()
    })
}

/// A cast of an input between dtypes.
fn cast(from: i32, to: i32, saturate: bool) -> ModelProto {
    let mut cast = node("Cast", &["a"], &["y"]);
    cast.attribute = vec![int("to", i64::from(to)), int("saturate", i64::from(saturate))];
    model(GraphProto {
        node: vec![cast],
        input: vec![input("a", from, &[Some("n")])],
        output: vec![output("y")],
        ..Default::default()
    })
}

fn integers(imported: &Imported, inputs: &[Vec<i32>]) -> Vec<i32> {
    let binding = Binding::new().with("n", inputs[0].len() as i64);
    let literal = |list: &Vec<i32>| Literal::from_vec(&[list.len()], list.clone()).unwrap();
    let inputs: Vec<Literal> = inputs.iter().map(literal).collect();
    run(imported, &binding, &inputs)[0].as_slice::<i32>().unwrap().to_vec()
}

/// The remainder with the sign of the divisor.
fn floor_mod(a: i16, b: i16) -> i16 {
    let (a, b) = (f64::from(a), f64::from(b));
    (a - (a / b).floor() * b) as i16
}

#[test]
fn arithmetic_wraps_as_integers_of_16_bits_do() {
    let samples = [-32768, -32767, -300, -7, -1, 0, 1, 2, 5, 255, 256, 1000, 32766, 32767];
    let pairs: Vec<(i32, i32)> =
        samples.iter().flat_map(|a| samples.iter().map(move |b| (*a, *b))).collect();
    type Signed = fn(i16, i16) -> i16;
    type Unsigned = fn(u16, u16) -> u16;
    let of: [(&str, Signed, Unsigned); 8] = [
        ("Add", i16::wrapping_add, u16::wrapping_add),
        ("Sub", i16::wrapping_sub, u16::wrapping_sub),
        ("Mul", i16::wrapping_mul, u16::wrapping_mul),
        ("Div", i16::wrapping_div, u16::wrapping_div),
        ("Max", i16::max, u16::max),
        ("BitwiseXor", |a, b| a ^ b, |a, b| a ^ b),
        ("BitwiseAnd", |a, b| a & b, |a, b| a & b),
        ("Mod", floor_mod, |a, b| a % b),
    ];
    for (op, signed, unsigned) in of {
        let defined = |b: i32| b != 0 || !matches!(op, "Div" | "Mod");
        let pairs: Vec<(i32, i32)> = pairs.iter().copied().filter(|(_, b)| defined(*b)).collect();
        let found = imported(&pair(op, I16)).unwrap();
        let ty = found.program.functions()[0].output_type(0).to_string();
        assert_eq!((ty.as_str(), found.narrow["y"]), ("i32[n]", Narrow::I16), "{op}");
        let (a, b): (Vec<i32>, Vec<i32>) = pairs.iter().copied().unzip();
        let wanted: Vec<i32> =
            pairs.iter().map(|(a, b)| i32::from(signed(*a as i16, *b as i16))).collect();
        assert_eq!(integers(&found, &[a.clone(), b.clone()]), wanted, "{op}");
        let found = imported(&pair(op, U16)).unwrap();
        let whole = |list: Vec<i32>| list.into_iter().map(|n| n & 0xffff).collect::<Vec<i32>>();
        let wanted: Vec<i32> =
            pairs.iter().map(|(a, b)| i32::from(unsigned(*a as u16, *b as u16))).collect();
        assert_eq!(integers(&found, &[whole(a), whole(b)]), wanted, "{op}");
    }
}

#[test]
fn casts_drop_the_higher_bits_of_integers() {
    let samples = vec![-70000, -32769, -130, -9, -8, -1, 0, 7, 8, 15, 16, 40000, 65535, 65536];
    type Wrap = fn(i32) -> i32;
    let of: [(i32, Wrap); 4] = [
        (I16, |n| i32::from(n as i16)),
        (U16, |n| i32::from(n as u16)),
        (U4, |n| n.rem_euclid(16)),
        (I4, |n| (n + 8).rem_euclid(16) - 8),
    ];
    for (to, wanted) in of {
        let found = imported(&cast(6, to, true)).unwrap();
        let wanted: Vec<i32> = samples.iter().map(|n| wanted(*n)).collect();
        assert_eq!(integers(&found, std::slice::from_ref(&samples)), wanted, "{to}");
    }
}

/// All numbers of a dtype of 4 or 8 bits, as a file has them.
fn all(dtype: i32, bits: usize) -> Vec<f32> {
    let count = 1usize << bits;
    let bytes: Vec<u8> = match bits {
        4 => (0..8u8).map(|n| (2 * n) | ((2 * n + 1) << 4)).collect(),
        _ => (0..=255).collect(),
    };
    let proto = TensorProto {
        dims: vec![count as i64],
        data_type: Some(dtype),
        raw_data: Some(bytes.into()),
        ..Default::default()
    };
    let stored = read_tensor(proto.encode_to_vec().into()).unwrap();
    stored.literal.as_slice::<f32>().unwrap().to_vec()
}

#[test]
fn casts_round_to_the_nearest_float() {
    for (dtype, bits) in [(18, 8), (20, 8), (23, 4)] {
        let all = all(dtype, bits);
        // Greater numbers of a positive sign have greater bits.
        let positive = &all[..all.len() / 2];
        assert!(positive.is_sorted(), "{dtype}");
        let largest = positive[positive.len() - 1];
        let nearest = |x: f32| {
            let place = positive.partition_point(|own| *own <= x.abs()) - 1;
            let Some(next) = positive.get(place + 1) else { return largest.copysign(x) };
            let (below, above) = (x.abs() - positive[place], next - x.abs());
            let up = above < below || (above == below && place % 2 == 1);
            if up { *next } else { positive[place] }.copysign(x)
        };
        let mut samples: Vec<f32> = all.iter().copied().filter(|x| x.is_finite()).collect();
        for neighbours in positive.windows(2) {
            let middle = f32::midpoint(neighbours[0], neighbours[1]);
            samples.extend([middle, -middle, middle.next_up(), middle.next_down()]);
        }
        samples.extend([2.0 * largest, -1e30, f32::INFINITY, 1e-40]);
        let found = imported(&cast(1, dtype, true)).unwrap();
        let binding = Binding::new().with("n", samples.len() as i64);
        let literal = Literal::from_vec(&[samples.len()], samples.clone()).unwrap();
        let result = run(&found, &binding, &[literal]).remove(0);
        for (x, y) in samples.iter().zip(result.as_slice::<f32>().unwrap()) {
            assert_eq!(nearest(*x), *y, "dtype {dtype} of {x}");
        }
        // Beyond the largest, and nearer to the next, is NaN without saturation.
        let beyond = Literal::from_vec(&[2], vec![largest * 1.01, largest * 1.2]).unwrap();
        let found = imported(&cast(1, dtype, false)).unwrap();
        let result = run(&found, &Binding::new().with("n", 2), &[beyond]).remove(0);
        let result = result.as_slice::<f32>().unwrap();
        assert_eq!(result[0], largest);
        assert_eq!(result[1].is_nan(), bits == 8, "{result:?}");
    }
}

#[test]
fn two_numbers_of_4_bits_are_in_a_byte() {
    let stored = |data: TensorProto| -> Result<Vec<i32>> {
        let bytes = data.encode_to_vec();
        Ok(read_tensor(bytes.into())?.literal.as_slice::<i32>().unwrap().to_vec())
    };
    let proto = |dtype: i32, count: i64| TensorProto {
        dims: vec![count],
        data_type: Some(dtype),
        ..Default::default()
    };
    let raw = |bytes: &[u8]| Some(bytes.to_vec().into());
    let odd = TensorProto { raw_data: raw(&[0x8f, 0x07]), ..proto(I4, 3) };
    assert_eq!(stored(odd).unwrap(), [-1, -8, 7]);
    let listed = TensorProto { int32_data: vec![0x8f, 0x07], ..proto(U4, 3) };
    assert_eq!(stored(listed).unwrap(), [15, 8, 7]);
    let short = TensorProto { int32_data: vec![-32768, 5], ..proto(I16, 2) };
    assert_eq!(stored(short).unwrap(), [-32768, 5]);
    let quarter = TensorProto { raw_data: raw(&[0b10_01_11_00]), ..proto(26, 4) };
    assert_eq!(stored(quarter).unwrap(), [0, -1, 1, -2]);
    let few = TensorProto { raw_data: raw(&[0x8f]), ..proto(I4, 3) };
    let error = stored(few).err().unwrap().to_string();
    assert!(error.contains("3 numbers of int4 in 1 bytes"), "{error}");
}

#[test]
fn an_op_without_a_rule_for_a_dtype_refuses_it() {
    let matrices = |op: &str| {
        let mut model = pair(op, I16);
        for input in &mut model.graph.as_mut().unwrap().input {
            let ty = input.r#type.as_mut().and_then(|ty| ty.tensor_type.as_mut()).unwrap();
            let dim = DimensionProto { dim_value: Some(2), dim_param: None };
            ty.shape = Some(TensorShapeProto { dim: vec![dim.clone(), dim] });
        }
        model
    };
    let error = refused(&matrices("MatMul"));
    assert!(error.contains("an operand of int16") && error.contains("(dtype)"), "{error}");
    assert!(error.contains("cast to one of them before this node"), "{error}");
    let mut mixed = pair("Add", I16);
    mixed.graph.as_mut().unwrap().input[1] = input("b", 6, &[Some("n")]);
    let error = refused(&mixed);
    assert!(error.contains("an operand is int16, and another is not"), "{error}");
    // ONNX has no arithmetic of these floats.
    let error = refused(&pair("Add", 23));
    assert!(error.contains("arithmetic of float4e2m1"), "{error}");
    assert!(error.contains(&Class::DType.to_string()), "{error}");
}

#[test]
fn a_bound_input_has_numbers_of_its_dtype() {
    let mut options = Options::default();
    let bytes = pair("Add", U4).encode_to_vec();
    options.bound.insert("b".into(), Literal::from_vec(&[1], vec![15i32]).unwrap());
    let found = read("m.onnx", bytes.clone().into(), &super::nowhere, &options).unwrap();
    assert_eq!(integers(&found, &[vec![0, 1, 15]]), [15, 0, 14]);
    assert_eq!((found.narrow["a"], found.narrow["y"]), (Narrow::U4, Narrow::U4));
    options.bound.insert("b".into(), Literal::from_vec(&[1], vec![16i32]).unwrap());
    let error = read("m.onnx", bytes.into(), &super::nowhere, &options).err().unwrap();
    let error = error.to_string();
    assert!(
        error.contains("input `b` is uint4") && error.contains("from 0 to 15, as i32"),
        "{error}"
    );
}
