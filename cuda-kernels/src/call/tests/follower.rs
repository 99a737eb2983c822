//! Nests that follow products: the bits are those of the nest on the product's result.

use super::*;
use wengert_core::call::Gemm;
use wengert_core::nest::{Affine, Nest, NestBuilder, ScalarOp, interpret, parse_nests};
use wengert_core::{Scalar, Verified};
use wengert_testing::calls::convolution::{directions, same};
use wengert_testing::calls::{numbers, operands};

fn gemm(batch: usize, extents: [usize; 3], dtype: DType) -> Gemm {
    calls::gemm::product(batch, extents, dtype, dtype)
}

fn parsed(text: &str) -> Verified<Nest> {
    let nest = parse_nests("test", text).unwrap_or_else(|e| panic!("{e}\n{text}")).remove(0).0;
    Verified::new(nest).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// `z = (p + b[j]) · r` and `h = whether p < r`, over the axes of the product, where j is the last,
/// or over one axis of all elements and then without b.
fn nest(call: &Call, one_axis: bool) -> Verified<Nest> {
    let result = &call.results()[0];
    let (dtype, extents) = (&result.dtype, result.extents().unwrap());
    let n = extents[extents.len() - 1];
    let wide = if dtype.is_half() { DType::F32 } else { *dtype };
    let (shape, axes, at) = match one_axis {
        true => {
            let all: usize = extents.iter().product();
            (format!("{all}"), format!("e: {all}"), "e".into())
        }
        false => {
            let names = &["a", "b", "h", "i", "j"][5 - extents.len()..];
            let axes = names.iter().zip(&extents).map(|(name, extent)| format!("{name}: {extent}"));
            let shape: Vec<String> = extents.iter().map(usize::to_string).collect();
            (shape.join(","), axes.collect::<Vec<_>>().join(", "), names.join(", "))
        }
    };
    let bias = if one_axis { "load %r[e]" } else { "load %b[j]" };
    let convert = |from: usize, to: DType, of: &str| match *dtype == wide {
        true => String::new(),
        false => format!("%{from}: {to} = convert {of}\n"),
    };
    let wide_of = |raw: usize| if *dtype == wide { raw } else { raw + 10 };
    let (p, r, b) = (wide_of(0), wide_of(1), wide_of(2));
    let z = wide_of(4);
    parsed(&format!(
        "nest @f(in %r: {dtype}[{shape}], in %p: {dtype}[{shape}], in %b: {dtype}[{n}], \
             out %h: bool[{shape}], out %z: {dtype}[{shape}]) {{
           parallel {axes}
           phase {{
             %0: {dtype} = load %p[{at}]
             {c0}
             %1: {dtype} = load %r[{at}]
             {c1}
             %2: {dtype} = {bias}
             {c2}
             %3: {wide} = add %{p}, %{b}
             %4: {wide} = mul %3, %{r}
             {c4}
             %5: bool = lt %{p}, %{r}
             store %h[{at}], %5
             store %z[{at}], %{z}
           }}
         }}",
        c0 = convert(10, wide, "%0"),
        c1 = convert(11, wide, "%1"),
        c2 = convert(12, wide, "%2"),
        c4 = convert(14, *dtype, "%4"),
    ))
}

/// Runs the product with the nest, whose result z takes the product's place or not, and compares
/// every result with the nest on the product's.
fn check(call: &Call, one_axis: bool, stores: bool) {
    let compiled = |follower: Option<&Follower>| {
        let options = Options { follower, ..Options::default() };
        compile_with(call, architecture(SM_90), options).unwrap()
    };
    check_compiled(call, one_axis, stores, compiled);
}

/// [`check`] of a call as it is compiled with a follower and without.
pub(super) fn check_compiled(
    call: &Call,
    one_axis: bool,
    stores: bool,
    compiled: impl Fn(Option<&Follower>) -> Compiled,
) {
    let given = operands(call, 5);
    let alone = compiled(None);
    let product = run(call, &alone, &given, None).remove(0);
    let nest = nest(call, one_axis);
    let of_nest: Vec<Literal> = nest
        .parameters()
        .take(3)
        .enumerate()
        .map(|(n, (_, b))| match n {
            1 => product.reshape(&b.shape).unwrap(),
            _ => numbers(b.dtype, &b.shape, 77 + n as u64),
        })
        .collect();
    let expected = interpret(&nest, &of_nest).unwrap();

    let arguments = vec![3, 2, 4, 5, 6];
    let follower =
        Follower { nest: nest.into_inner(), tile: 1, arguments, in_place: vec![], stores };
    let compiled = compiled(Some(&follower));
    let mut memory = emulator::Memory::new();
    let mut place = |literal: &Literal, written: bool| {
        let bytes = literal.to_bytes();
        let address = memory.allocate("argument", bytes.len() as u64).unwrap();
        if !written {
            memory.write(address, &bytes).unwrap();
        }
        (address, bytes.len() as u64)
    };
    let places = [
        place(&given[0], false),
        place(&given[1], false),
        place(&product, true),
        place(&of_nest[0], false),
        place(&of_nest[2], false),
        place(&expected[0], true),
        place(&expected[1], true),
    ];
    let workspace = memory.allocate("workspace", compiled.workspace.max(1)).unwrap();
    let what = format!("{call:?} {one_axis} {stores}");
    launch(&what, &compiled, &places, workspace, &mut memory, emulator::Options::default());
    let mut wanted = vec![(5, &expected[0]), (6, &expected[1])];
    if stores {
        wanted.push((2, &product));
    }
    for (argument, literal) in wanted {
        let (address, bytes) = places[argument];
        assert_eq!(memory.first_uninitialised(address, bytes).unwrap(), None, "{what}");
        let found = memory.read(address, bytes as usize).unwrap();
        assert!(found == literal.to_bytes(), "{what}: argument {argument}");
    }
}

/// Every kernel, with tiles whose edges are at, before and after those of the matrices.
#[test]
fn rows_of_a_follower_are_computed_on_the_sums() {
    for (batch, extents, dtype) in [
        (1, [64, 64, 16], DType::F32),
        (2, [63, 66, 17], DType::F32),
        (1, [5, 129, 9], DType::I8),
        (3, [33, 31, 8], DType::U8),
        (1, [40, 24, 12], DType::I64),
        (2, [65, 62, 33], DType::BF16),
        (1, [64, 64, 32], DType::F16),
        (1, [34, 70, 20], DType::F64),
        (1, [20, 30, 1111], DType::F32),
        (1, [20, 32, 1040], DType::BF16),
        (1, [1, 300, 40], DType::F32),
        (4, [2, 30, 40], DType::F32),
        (1, [300, 1, 500], DType::F32),
        (1, [7, 1, 30000], DType::F32),
    ] {
        for one_axis in [false, true] {
            for stores in [false, true] {
                check(&Call::Gemm(gemm(batch, extents, dtype)), one_axis, stores);
            }
        }
    }
}

#[test]
fn convolutions_have_followers() {
    let window = |stride| vec![same(9, 3, stride), same(8, 3, stride)];
    let calls = [
        directions(2, 1, [5, 32], window(1), DType::F32),
        directions(2, 3, [4, 5], window(2), DType::F32),
        directions(1, 2, [8, 8], window(2), DType::BF16),
        directions(1, 1, [3, 1], window(1), DType::I8),
        directions(2, 1, [70, 16], vec![same(20, 3, 1)], DType::F64),
    ];
    for call in calls.iter().flatten().filter(|call| call.has_tiles()) {
        for (one_axis, stores) in [(false, false), (false, true), (true, false)] {
            check(call, one_axis, stores);
        }
    }
}

/// A vector of elements has the loads and stores of a vector.
#[test]
fn neighbours_are_moved_together() {
    let gemm = gemm(1, [64, 64, 16], DType::F32);
    let arguments = vec![3, 2, 4, 5, 6];
    let call = Call::Gemm(gemm);
    let nest = nest(&call, false).into_inner();
    let follower = Follower { nest, tile: 1, arguments, in_place: vec![], stores: false };
    let options = Options { follower: Some(&follower), ..Options::default() };
    let compiled = compile_with(&call, architecture(SM_90), options).unwrap().stages.remove(0);
    let text = Module::new(vec![], vec![compiled.kernel]).to_string();
    assert!(text.contains("ld.global.nc.v4"), "{text}");
    assert!(text.contains("st.global.v4"), "{text}");
    assert!(!text.contains("div."), "{text}");
}

/// Products of every kind with a GELU, whose operand a backward pass may read too.
pub(super) fn gelus() -> Vec<(Call, Follower)> {
    let mut found = vec![];
    for (extents, dtype) in [
        ([2048, 2048, 512], DType::F32),
        ([1023, 1025, 77], DType::F32),
        ([33, 30, 1000], DType::F32),
        ([2048, 2048, 512], DType::BF16),
        ([512, 500, 1000], DType::F16),
        ([512, 512, 512], DType::F64),
        ([1, 4096, 4096], DType::F32),
        ([1, 4096, 4096], DType::BF16),
    ] {
        let gemm = gemm(1, extents, dtype);
        for stores in [false, true] {
            let nest = gelu(&gemm).into_inner();
            let (arguments, in_place) = (vec![2, 3], vec![]);
            let follower = Follower { nest, tile: 0, arguments, in_place, stores };
            found.push((Call::Gemm(gemm.clone()), follower));
        }
    }
    found
}

/// The GELU by tanh of each element.
pub(super) fn gelu(gemm: &Gemm) -> Verified<Nest> {
    let (count, dtype) = (gemm.m * gemm.n, gemm.result);
    let mut nest = NestBuilder::new("gelu");
    let (x, y) = (nest.input("x", dtype, &[count]), nest.output("y", dtype, &[count]));
    let at = [Affine::axis(nest.parallel("i", count))];
    let [] = nest.phase([]);
    let x = nest.load(x, &at);
    let number = |nest: &mut NestBuilder, value| nest.constant(Scalar::from_f64(dtype, value));
    let op = |nest: &mut NestBuilder, op, a, b| nest.scalar_widened(op, &[a, b]);
    let square = op(&mut nest, ScalarOp::Mul, x, x);
    let cube = op(&mut nest, ScalarOp::Mul, square, x);
    let small = number(&mut nest, 0.044715);
    let scaled = op(&mut nest, ScalarOp::Mul, cube, small);
    let sum = op(&mut nest, ScalarOp::Add, scaled, x);
    let factor = number(&mut nest, (2.0 / std::f64::consts::PI).sqrt());
    let inner = op(&mut nest, ScalarOp::Mul, sum, factor);
    let tanh = nest.scalar_widened(ScalarOp::Tanh, &[inner]);
    let one = number(&mut nest, 1.0);
    let weight = op(&mut nest, ScalarOp::Add, tanh, one);
    let half = number(&mut nest, 0.5);
    let half = op(&mut nest, ScalarOp::Mul, x, half);
    let value = op(&mut nest, ScalarOp::Mul, half, weight);
    nest.store(y, &at, value);
    Verified::new(nest.finish().unwrap()).unwrap()
}
