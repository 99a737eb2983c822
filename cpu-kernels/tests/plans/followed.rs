//! A nest that follows a product runs on each part of the result. Its bits are those of running
//! the nest after the whole product.
//!
//! Elements are small integers, so every sum is exact. Results equal those of the plan interpreter
//! bit for bit.

use super::compare;
use std::sync::Arc;
use wengert_core::Literal;
use wengert_core::Verified;
use wengert_core::plan::{Plan, interpret, parse_plan};
use wengert_cpu::{CpuExecutable, Pool, Simd};
use wengert_testing::Random;

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
