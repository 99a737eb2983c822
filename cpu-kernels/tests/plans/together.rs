//! Products of one row that run together have the bits of running one after the other.
//!
//! Elements are −1, 0 and 1, so every sum is exact. Results equal those of the plan interpreter bit
//! for bit.

use super::compare;
use std::sync::Arc;
use wengert_core::plan::{Plan, interpret, parse_plan};
use wengert_core::{Literal, Scalar, Verified};
use wengert_cpu::{CpuExecutable, Pool, Simd};
use wengert_testing::Random;

/// A plan of products of one row of `n` elements with matrices `n × n`. Each is given by its row,
/// the number of its matrix, 1 to 3, and the address of its result. The results are the values %4,
/// %5 and %6. The row %0 is copied to the beginning of the arena first.
fn plan(dtype: &str, n: usize, products: &[(&str, usize, &str)], outputs: &str) -> Verified<Plan> {
    let step = |(number, (row, matrix, result)): (usize, &(&str, usize, &str))| {
        let out = number + 4;
        format!(
            "call gemm({row}, %{matrix} at input.{matrix}, %{out} at {result}) {{accumulate=f32, \
             k={n}, lhs=[0,{n},1], m=1, n={n}, operand={dtype}, result={dtype}, \
             rhs=[0,{n},1]}}\n"
        )
    };
    let steps: String = products.iter().enumerate().map(step).collect();
    let arena = if dtype == "bf16" { 2 * n } else { 4 * n };
    let text = format!(
        "plan @products {{
  target @cpu {{alignment=64, calls=[\"gemm\"], gemm_epilogue=true, reduction_block=4096, \
    reduction_lanes=16, row_bytes=0, row_storage=0}}
  arena {arena} bound {arena}
  value %0: {dtype}[1,{n}] \"x\"
  value %1: {dtype}[{n},{n}] \"u\"
  value %2: {dtype}[{n},{n}] \"v\"
  value %3: {dtype}[{n},{n}] \"w\"
  value %4: {dtype}[1,{n}] \"p\"
  value %5: {dtype}[1,{n}] \"q\"
  value %6: {dtype}[1,{n}] \"r\"
  input x = %0
  input u = %1
  input v = %2
  input w = %3
  {outputs}
  steps {{
    copy %0 from input.0 to arena
    {steps}
  }}
}}"
    );
    let plan = parse_plan("test", &text).unwrap_or_else(|e| panic!("{e}\n{text}")).0;
    Verified::new(plan).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn run(plan: &Verified<Plan>, together: usize) {
    for simd in Simd::available() {
        for threads in [1, 2, 3] {
            let pool = Arc::new(Pool::new(threads).unwrap());
            let mut executable = CpuExecutable::on(plan, pool, simd).unwrap();
            assert_eq!(executable.together(), together, "{plan}");
            let mut random = Random(7);
            let inputs = plan.inputs.iter().map(|i| &plan.values[i.value]).map(|v| {
                let count = v.shape.iter().product::<usize>();
                let elements =
                    (0..count).map(|_| Scalar::from_i64(v.dtype, random.below(3) as i64 - 1));
                Literal::from_scalars(v.dtype, &v.shape, &elements.collect::<Vec<_>>()).unwrap()
            });
            let inputs: Vec<Literal> = inputs.collect();
            let expected = interpret(plan, &inputs, &[]).unwrap();
            compare(&mut executable, &inputs, &[], &expected);
        }
    }
}

const OUTPUTS: &str = "output p: [1, 512] = %4
  output q: [1, 512] = %5
  output r: [1, 512] = %6";

#[test]
fn independent_products_of_equal_extents_run_together() {
    let x = "%0 at arena";
    let products = [(x, 1, "output.0"), (x, 2, "output.1"), (x, 3, "output.2")];
    run(&plan("f32", 512, &products, OUTPUTS), 3);
    run(&plan("bf16", 512, &products, OUTPUTS), 3);
}

#[test]
fn a_product_waits_for_its_operand() {
    let x = "%0 at arena";
    let products = [(x, 1, "output.0"), (x, 2, "output.1"), ("%5 at output.1", 3, "output.2")];
    run(&plan("f32", 512, &products, OUTPUTS), 2);
}

/// The second result overwrites the row of the first product.
#[test]
fn operands_of_a_running_product_are_not_overwritten() {
    let products = [
        ("%0 at arena", 1, "output.0"),
        ("%0 at input.0", 2, "arena"),
        ("%5 at arena", 3, "output.1"),
    ];
    let outputs = "output p: [1, 512] = %4
  output r: [1, 512] = %6";
    run(&plan("f32", 512, &products, outputs), 0);
}

#[test]
fn products_of_long_rows_or_of_few_elements_are_computed_by_all_threads() {
    let x = "%0 at arena";
    let products = [(x, 1, "output.0"), (x, 2, "output.1"), (x, 3, "output.2")];
    for extent in [64, 544] {
        let outputs = OUTPUTS.replace("512", &extent.to_string());
        run(&plan("f32", extent, &products, &outputs), 0);
    }
}
