//! Nests with many instructions, which a file may contain. They are compiled in linear time, and
//! the bits are those of the interpreter. An earlier version took cubic time, with which this test
//! would take hours.

use super::compare;
use std::fmt::Write;
use std::sync::Arc;
use wengert_core::Verified;
use wengert_core::plan::{interpret, parse_plan};
use wengert_core::{DType, Literal};
use wengert_cpu::{CpuExecutable, Pool, Simd};
use wengert_testing::Random;

/// Elements of a row. Also the number of stores to one buffer, which is the verifier's maximum.
const WIDTH: usize = 64;

/// A plan of one nest. It loads `count` rows, doubles each and stores it. All stores are at the
/// end, or each follows its row.
fn plan(count: usize, stores_last: bool) -> String {
    let (mut body, mut last) = (String::new(), String::new());
    for k in 0..count {
        let (loaded, doubled) = (2 * k, 2 * k + 1);
        body += &format!(
            "      %{loaded}: f32 = load %x[{k}, i]\n      \
             %{doubled}: f32 = add %{loaded}, %{loaded}\n"
        );
        let stores = if stores_last { &mut last } else { &mut body };
        *stores += &format!("      store %y{}[{}, i], %{doubled}\n", k / WIDTH, k % WIDTH);
    }
    let ty = format!("f32[{WIDTH},{WIDTH}]");
    let mut text = String::from(
        "plan @long {\n  target @cpu {alignment=64, calls=[], gemm_epilogue=false, \
         reduction_block=4096, reduction_lanes=16, row_bytes=0, row_storage=0}\n  \
         arena 0 bound 0\n",
    );
    let outputs = 0..count / WIDTH;
    let listed = |item: &dyn Fn(usize) -> String| outputs.clone().map(item).collect::<String>();
    writeln!(text, "  value %0: f32[{count},{WIDTH}] \"x\"").unwrap();
    text += &listed(&|k| format!("  value %{}: {ty} \"y{k}\"\n", k + 1));
    text += "  input x = %0\n";
    text += &listed(&|k| format!("  output y{k}: [{WIDTH},{WIDTH}] = %{}\n", k + 1));
    let parameters = listed(&|k| format!(", out %y{k}: {ty}"));
    let arguments = listed(&|k| format!(", %{} at output.{k}", k + 1));
    write!(
        text,
        "  nest @n(in %x: f32[{count},{WIDTH}]{parameters}) {{\n    parallel i: {WIDTH}\n    \
         phase {{\n{body}{last}    }}\n  }}\n  steps {{\n    run @n(%0 at input.0{arguments})\n  \
         }}\n}}\n"
    )
    .unwrap();
    text
}

#[test]
fn many_instructions_take_linear_time() {
    for stores_last in [false, true] {
        let plan = parse_plan("long", &plan(128 * WIDTH, stores_last)).unwrap().0;
        let plan = Verified::new(plan).unwrap();
        let x: Literal = Random(7).integers(DType::F32, &plan.values[plan.inputs[0].value].shape);
        let expected = interpret(&plan, std::slice::from_ref(&x), &[]).unwrap();
        for simd in Simd::available() {
            let mut executable =
                CpuExecutable::on(&plan, Arc::new(Pool::new(1).unwrap()), simd).unwrap();
            compare(&mut executable, std::slice::from_ref(&x), &[], &expected);
        }
    }
}
