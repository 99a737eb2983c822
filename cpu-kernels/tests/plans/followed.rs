//! A nest that follows a product or a convolution runs on each part of the result. Its bits are
//! those of running the nest after the whole call.
//!
//! Elements are small integers, so every sum is exact. Results equal those of the plan interpreter
//! bit for bit.

use super::compare;
use std::sync::Arc;
use wengert_core::call::{Call, Window};
use wengert_core::graph::print::print_attributes;
use wengert_core::plan::{Plan, interpret, parse_plan};
use wengert_core::{DType, Literal, Verified};
use wengert_cpu::{CpuExecutable, Pool, Simd};
use wengert_testing::Random;
use wengert_testing::calls::convolution::{directions, same};

/// A plan of `x·w + b` with extents m, n and k, then a nest on the product. `nest` is the text of
/// the nest's parameters and body. The nest writes `z` at the address `at`. With `output` the
/// product is an output as well.
fn plan([m, n, k]: [usize; 3], nest: &str, at: &str, output: bool) -> Verified<Plan> {
    let bytes = |count: usize| (4 * count).next_multiple_of(64);
    let product = m * n;
    let arena = bytes(product) + if at == "arena" { 0 } else { bytes(product) };
    // Without `output`, only the nest reads the product.
    let outputs = if output { format!("output p: [{m}, {n}] = %5") } else { String::new() };
    let copy = if output { "copy %5 from arena to output.1" } else { "" };
    let text = format!(
        "plan @follow {{
  target @cpu {{alignment=64, calls=[\"gemm\"], gemm_epilogue=true, reduction_block=4096, \
    reduction_lanes=16, row_bytes=0, row_storage=0}}
  arena {arena} bound {arena}
  value %0: f32[{m},{k}] \"x\"
  value %1: f32[{k},{n}] \"w\"
  value %2: f32[{n}] \"b\"
  value %3: f32[{m},{n}] \"r\"
  value %4: f32[{m},{n}] \"z\"
  value %5: f32[{m},{n}] \"p\"
  input x = %0
  input w = %1
  input b = %2
  input r = %3
  output z: [{m}, {n}] = %4
  {outputs}
  nest @f({nest}
  steps {{
    call gemm(%0 at input.0, %1 at input.1, %2 at input.2, %5 at arena) \
      {{accumulate=f32, addends=[\"bias\"], k={k}, lhs=[0,{k},1], m={m}, n={n}, operand=f32, \
      result=f32, rhs=[0,{n},1]}}
    run @f(%5 at arena, %3 at input.3, %2 at input.2, %4 at {at})
    copy %4 from {at} to output.0
    {copy}
  }}
}}"
    );
    parsed(&text)
}

/// A plan of a call of two operands, and of the nest `r - p` on its result `p`; with `columns`, of
/// the nest `r - p - s`, where s has the first elements of r, one for each column.
fn plan_of_call(call: &Call, columns: bool) -> Verified<Plan> {
    let mut attributes = String::new();
    print_attributes(&mut attributes, &call.attributes());
    let (operands, result) = (call.operands(), &call.results()[0]);
    let (dtype, extents) = (result.dtype, result.extents().unwrap());
    let [count, bytes] = [1, dtype.size()].map(|n| n * extents.iter().product::<usize>());
    let arena = bytes.next_multiple_of(64);
    let (name, [lhs, rhs]) = (call.name(), [0, 1].map(|n| &operands[n]));
    let wide = if dtype.is_half() { DType::F32 } else { dtype };
    let last = *extents.last().unwrap();
    let (axes, at) = match columns {
        true => (format!("i: {}, j: {last}", count / last), format!("{last}*i+j")),
        false => (format!("i: {count}"), "i".to_owned()),
    };
    let column = match columns {
        true => format!(
            "%5: {dtype} = load %r[j]
      %6: {wide} = convert %5
      %7: {wide} = sub %4, %6
      %8: {dtype} = convert %7
      store %z[{at}], %8"
        ),
        false => format!("%5: {dtype} = convert %4\n      store %z[{at}], %5"),
    };
    parsed(&format!(
        "plan @follow {{
  target @cpu {{alignment=64, calls=[\"{name}\"], gemm_epilogue=true, reduction_block=4096, \
    reduction_lanes=16, row_bytes=0, row_storage=0}}
  arena {arena} bound {arena}
  value %0: {lhs} \"x\"
  value %1: {rhs} \"w\"
  value %2: {result} \"r\"
  value %3: {result} \"p\"
  value %4: {result} \"z\"
  input x = %0
  input w = %1
  input r = %2
  output z: {extents:?} = %4
  nest @f(in %p: {dtype}[{count}], in %r: {dtype}[{count}], out %z: {dtype}[{count}]) {{
    parallel {axes}
    phase {{
      %0: {dtype} = load %p[{at}]
      %1: {dtype} = load %r[{at}]
      %2: {wide} = convert %0
      %3: {wide} = convert %1
      %4: {wide} = sub %3, %2
      {column}
    }}
  }}
  steps {{
    call {name}(%0 at input.0, %1 at input.1, %3 at arena) {attributes}
    run @f(%3 at arena, %2 at input.2, %4 at arena)
    copy %4 from arena to output.0
  }}
}}"
    ))
}

fn parsed(text: &str) -> Verified<Plan> {
    let plan = parse_plan("test", text).unwrap_or_else(|e| panic!("{e}\n{text}")).0;
    Verified::new(plan).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// A nest over rows and columns. It reads the bias by column.
fn of_matrix([m, n, _]: [usize; 3], load: &str) -> String {
    format!(
        "in %p: f32[{m},{n}], in %r: f32[{m},{n}], in %b: f32[{n}], out %z: f32[{m},{n}]) {{
    parallel i: {m}, j: {n}
    phase {{
      %0: f32 = load %p[{load}]
      %1: f32 = load %r[i, j]
      %2: f32 = mul %0, %1
      %3: f32 = load %b[j]
      %4: f32 = sub %2, %3
      store %z[i, j], %4
    }}
  }}"
    )
}

/// A nest over all elements.
fn of_elements([m, n, _]: [usize; 3]) -> String {
    let count = m * n;
    format!(
        "in %p: f32[{count}], in %r: f32[{count}], in %b: f32[{n}], out %z: f32[{count}]) {{
    parallel i: {count}
    phase {{
      %0: f32 = load %p[i]
      %1: f32 = load %r[i]
      %2: f32 = mul %0, %1
      store %z[i], %2
    }}
  }}"
    )
}

fn run(plan: &Verified<Plan>, follows: bool) {
    for simd in Simd::available() {
        for threads in [1, 2] {
            let mut executable =
                CpuExecutable::on(plan, Arc::new(Pool::new(threads).unwrap()), simd).unwrap();
            assert_eq!(executable.followed(), usize::from(follows), "{plan}");
            let mut random = Random(5);
            let inputs: Vec<Literal> = plan
                .inputs
                .iter()
                .map(|i| &plan.values[i.value])
                .map(|v| random.integers(v.dtype, &v.shape))
                .collect();
            let expected = interpret(plan, &inputs, &[]).unwrap();
            compare(&mut executable, &inputs, &[], &expected);
        }
    }
}

/// Extents with one and with several blocks of rows, columns and depth, and extents of 1.
const EXTENTS: [[usize; 3]; 7] = [
    [37, 600, 20],
    [5, 33, 7],
    [130, 70, 300],
    [1, 100, 40],
    [64, 1, 33],
    [3, 1030, 5],
    [200, 16, 0],
];

#[test]
fn following_by_parts_has_the_bits_of_the_whole() {
    for extents in EXTENTS {
        let behind = format!("arena+{}", (4 * extents[0] * extents[1]).next_multiple_of(64));
        for (at, output) in [("arena", false), (behind.as_str(), false), (behind.as_str(), true)] {
            run(&plan(extents, &of_matrix(extents, "i, j"), at, output), true);
            run(&plan(extents, &of_elements(extents), at, output), true);
        }
    }
}

#[test]
fn a_nest_that_needs_other_elements_waits() {
    let extents = [16, 16, 8];
    run(&plan(extents, &of_matrix(extents, "j, i"), "arena+1024", false), false);
    run(&plan(extents, &of_matrix(extents, "i, 3"), "arena+1024", false), false);
}

/// The nest's result overwrites an operand of the product. So the nest must wait for the whole
/// product.
#[test]
fn operands_of_a_running_product_are_not_overwritten() {
    let extents = [16, 16, 16];
    let text = plan(extents, &of_matrix(extents, "i, j"), "arena+1024", false).to_string();
    let text = text.replace("gemm(%0 at input.0", "gemm(%0 at arena+1024");
    let text = text.replace("steps {", "steps {\n    copy %0 from input.0 to arena+1024");
    run(&parsed(&text), false);
}

/// Images that are read in place and images whose patches are copied, in groups or not, with a
/// channel in each group, and so few that their columns are divided.
#[test]
fn convolutions_have_followers() {
    let images = |extent: usize, stride| vec![same(extent, 3, stride), same(extent + 1, 3, stride)];
    let dilated: Vec<Window> =
        images(6, 1).into_iter().map(|w| Window { lhs_dilation: 2, ..w }).collect();
    let volume = vec![same(5, 3, 1); 3];
    for (batch, groups, channels, window, dtype) in [
        (2, 1, [16, 32], images(12, 1), DType::F32),
        (3, 2, [16, 16], images(9, 2), DType::F32),
        (2, 1, [16, 32], images(12, 1), DType::BF16),
        (2, 3, [4, 5], images(7, 1), DType::F32),
        (1, 1, [3, 7], dilated.clone(), DType::F64),
        (1, 1, [128, 256], dilated, DType::F32),
        (2, 9, [1, 1], images(7, 2), DType::F32),
        (2, 1, [2, 3], volume, DType::F16),
        (2, 2, [3, 2], images(6, 1), DType::I32),
    ] {
        for call in directions(batch, groups, channels, window, dtype) {
            for columns in [false, true] {
                run(&plan_of_call(&call, columns), call.has_tiles());
            }
        }
    }
}
