//! Which collectives are joined, and that the bits stay.

use super::buckets;
use super::choose::{MOST, MOST_BYTES, NEAR, SMALL};
use std::fmt::Write;
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::{Function, parse_program, verify};
use wengert_core::interpret::run_ranks;
use wengert_core::{DType, Literal, Mesh, Tensor, TensorType};
use wengert_testing::Random;

fn parse(text: &str) -> Function {
    let program = parse_program(text, "test.ir").unwrap_or_else(|e| panic!("{e}\n{text}"));
    program.functions()[0].clone()
}

/// The function with buckets. It is valid, and has the same bits.
fn joined(before: &Function) -> (Function, u64) {
    let (after, changes) = buckets(before.clone(), u64::MAX);
    verify(&after).unwrap_or_else(|e| panic!("{e}\n{after}"));
    assert_eq!(buckets(before.clone(), 0), (before.clone(), 0));
    let mut random = Random(7);
    let mut literals =
        || (0..before.inputs.len()).map(|i| random.literal(before.input_type(i))).collect();
    let mut inputs: Vec<Vec<Literal>> = (0..before.mesh.ranks()).map(|_| literals()).collect();
    // An input that does not vary is the same on all ranks.
    for i in (0..before.inputs.len()).filter(|i| before.input_type(*i).varying.is_empty()) {
        let first = inputs[0][i].clone();
        inputs.iter_mut().for_each(|on| on[i] = first.clone());
    }
    let run = |function: &Function| {
        run_ranks(function, &inputs).unwrap_or_else(|e| panic!("{e}\n{function}"))
    };
    assert_eq!(run(&after), run(before), "{before}\n{after}");
    (after, changes)
}

/// Number of equations of an op, in regions too.
fn count(function: &Function, name: &str) -> usize {
    function.numbered().iter().filter(|n| n.equation.op.name() == name).count()
}

/// The sums of these operands over `data`, which two ranks have.
fn sums(operands: &[String]) -> Function {
    let mut text = String::from("func @f mesh(data=2) (");
    let inputs = operands.iter().enumerate().map(|(i, ty)| format!("%x{i}: {ty}{{data}}"));
    text += &inputs.collect::<Vec<_>>().join(", ");
    let outputs = operands.iter().enumerate().map(|(i, ty)| format!("y{i}: {ty}"));
    let _ = writeln!(text, ") -> ({}) {{", outputs.collect::<Vec<_>>().join(", "));
    for (i, ty) in operands.iter().enumerate() {
        let _ = writeln!(text, "%y{i}: {ty} = psum %x{i} {{over=[\"data\"]}}");
    }
    let results: Vec<String> = (0..operands.len()).map(|i| format!("%y{i}")).collect();
    let _ = writeln!(text, "return {}\n}}", results.join(", "));
    parse(&text)
}

fn f32s(lengths: &[usize]) -> Vec<String> {
    lengths.iter().map(|n| format!("f32[{n}]")).collect()
}

#[test]
fn two_sums_are_one() {
    let before = parse(
        r#"func @f mesh(data=2) (%x: f32[3]{data}, %y: f32[2,2]{data}) -> (f32[3], f32[2,2]) {
          %0: f32[3] = psum %x {over=["data"]}
          %1: f32[3] = neg %0
          %2: f32[2,2]{data} = exp %y
          %3: f32[2,2] = psum %2 {over=["data"]}
          return %1, %3
        }"#,
    );
    let (after, changes) = joined(&before);
    assert_eq!(changes, 1);
    let wanted = r#"
func @f mesh(data=2) (%x: f32[3]{data}, %y: f32[2,2]{data}) -> (f32[3], f32[2,2]) {
  %0: f32[2,2]{data} = exp %y
  %1: f32[4]{data} = reshape %0 {shape=[4]}
  %2: f32[7]{data} = concatenate %x, %1 {axis=0}
  %3: f32[7] = psum %2 {over=["data"]}
  %4: f32[3] = slice %3 {limit=[3], start=[0]}
  %5: f32[4] = slice %3 {limit=[7], start=[3]}
  %6: f32[2,2] = reshape %5 {shape=[2,2]}
  %7: f32[3] = neg %4
  return %7, %6
}
"#;
    assert_eq!(after.to_string().trim(), wanted.trim());
}

/// Parts along each axis of a tensor, as axes of their own and as parts of an axis.
#[test]
fn scatters_and_gathers_of_any_axis_are_one() {
    let mesh = Mesh::new([("data", 2), ("tensor", 3)]).expect("a mesh");
    let over = ["data", "tensor"];
    let function = built(&mesh, |f| {
        let mut input = |name: &str, shape: &[usize]| {
            let ty = TensorType::new(DType::F32, shape.iter().copied()).varying_over(&over);
            f.input(name, ty)
        };
        let mut results = Vec::new();
        for axis in 0..3 {
            let mut shape = [2, 3, 4];
            let x = input(&format!("gather{axis}"), &shape);
            results.push(x.all_gather(over, axis));
            results.push(x.all_gather_tiled(over, axis));
            results.push(x.all_gather_invariant(over, axis));
            shape[axis] = 12;
            let x = input(&format!("tiled{axis}"), &shape);
            results.push(x.psum_scatter_tiled(over, axis));
            shape[axis] = 6;
            let x = input(&format!("scatter{axis}"), &shape);
            results.push(x.psum_scatter(over, axis));
        }
        for (i, result) in results.iter().enumerate() {
            f.output(&format!("y{i}"), result);
        }
    });
    let (after, changes) = joined(&function);
    // One of gathers, one of those whose results are invariant, one of sums.
    assert_eq!(changes, 3);
    assert_eq!(["all_gather", "psum_scatter"].map(|op| count(&after, op)), [2, 1], "{after}");
}

#[test]
fn kinds_are_not_mixed() {
    let before = parse(
        r#"func @f mesh(data=2, tensor=2) (%x: f32[3]{data,tensor}, %h: f16[3]{data,tensor})
            -> (f32[3]{tensor}, f32[3]{data}, f32[3], f32[3]{tensor}, f16[3]{tensor}, f32[3]) {
          %0: f32[3]{tensor} = psum %x {over=["data"]}
          %1: f32[3]{data} = psum %x {over=["tensor"]}
          %2: f32[3] = psum %x {over=["data","tensor"]}
          %3: f32[3]{tensor} = pmax %x {over=["data"]}
          %4: f16[3]{tensor} = psum %h {over=["data"]}
          %5: f32[3] = psum %1 {over=["data"]}
          return %0, %1, %2, %3, %4, %5
        }"#,
    );
    assert_eq!(joined(&before).1, 0);
}

#[test]
fn large_collectives_stay_alone() {
    let most = SMALL / 4 - 1;
    let counts = |lengths: &[usize]| count(&joined(&sums(&f32s(lengths))).0, "psum");
    assert_eq!(counts(&[most, most]), 1);
    assert_eq!(counts(&[most, most + 1]), 2);
    assert_eq!(counts(&[4, most + 1, 4]), 2);
    // Nothing is exchanged for a tensor without elements.
    assert_eq!(counts(&[0, 4]), 2);
}

#[test]
fn buckets_are_bounded() {
    let largest = SMALL / 4 - 1;
    let fit = MOST_BYTES / (4 * largest);
    assert!(fit < MOST, "the bytes bound this bucket, not the number of members");
    let large = sums(&f32s(&vec![largest; fit + 2]));
    assert_eq!((count(&joined(&large).0, "psum"), joined(&large).1), (2, 2));
    let many = sums(&f32s(&vec![1; MOST + 1]));
    // The last one has nothing to be joined with.
    assert_eq!((count(&joined(&many).0, "psum"), joined(&many).1), (2, 1));
    let (two, changes) = buckets(large, 1);
    verify(&two).expect("it is valid");
    assert_eq!((count(&two, "psum"), changes), (3, 1), "one unit of fuel is one bucket");
}

/// Sums with `loops` reductions between them.
fn apart(loops: usize) -> Function {
    let mesh = Mesh::new([("data", 2)]).expect("a mesh");
    built(&mesh, |f| {
        let ty = TensorType::new(DType::F32, [2, 2]).varying_over(&["data"]);
        let x = f.input("x", ty);
        f.output("first", x.psum("data"));
        let row = (0..loops).fold(x.clone(), |y, _| y.sum_axes(&[0]) + &x);
        f.output("second", row.psum("data"));
    })
}

#[test]
fn a_bucket_does_not_wait_for_a_distant_member() {
    assert_eq!(count(&joined(&apart(NEAR)).0, "psum"), 1);
    assert_eq!(count(&joined(&apart(NEAR + 1)).0, "psum"), 2);
}

#[test]
fn a_sum_of_a_sum_stays_apart() {
    let before = parse(
        r#"func @f mesh(data=2) (%x: f32[3]{data}, %y: f32[3]{data}) -> (f32[3], f32[3]) {
          %0: f32[3] = psum %x {over=["data"]}
          %1: f32[3] = exp %0
          %2: f32[3]{data} = pvary %1 {over=["data"]}
          %3: f32[3]{data} = add %2, %y
          %4: f32[3] = psum %3 {over=["data"]}
          %5: f32[3] = psum %y {over=["data"]}
          return %4, %5
        }"#,
    );
    // The first closes; the other two are joined.
    let (after, changes) = joined(&before);
    assert_eq!((count(&after, "psum"), changes), (2, 1), "{after}");
}

/// Two kinds, of which each has a member that depends on one of the other.
#[test]
fn buckets_of_two_kinds_have_no_cycle() {
    let before = parse(
        r#"func @f mesh(data=2) (%x: f32[3]{data}, %y: f32[3]{data}) -> (f32[3], f32[3]) {
          %0: f32[3] = psum %x {over=["data"]}
          %1: f32[3] = pmax %y {over=["data"]}
          %2: f32[3]{data} = pvary %0 {over=["data"]}
          %3: f32[3] = pmax %2 {over=["data"]}
          %4: f32[3]{data} = pvary %1 {over=["data"]}
          %5: f32[3] = psum %4 {over=["data"]}
          return %3, %5
        }"#,
    );
    let (after, changes) = joined(&before);
    // The maximum of the sum closes the bucket of sums.
    assert_eq!((count(&after, "pmax"), count(&after, "psum"), changes), (1, 2, 1), "{after}");
}

#[test]
fn regions_have_their_own_buckets() {
    let before = parse(
        r#"func @f mesh(data=2) (%x: f32[3]{data}) -> (f32[3], f32[3], f32[3]{data}) {
          %0: f32[3] = psum %x {over=["data"]}
          %1: f32[3]{data} = scan %x {carries=1, length=2}
            region (%2: f32[3]{data}) {
              %3: f32[3] = psum %2 {over=["data"]}
              %4: f32[3]{data} = exp %2
              %5: f32[3] = psum %4 {over=["data"]}
              %6: f32[3] = add %3, %5
              %7: f32[3]{data} = pvary %6 {over=["data"]}
              return %7
            }
          %8: f32[3] = psum %x {over=["data"]}
          return %0, %8, %1
        }"#,
    );
    let (after, changes) = joined(&before);
    assert_eq!((count(&after, "psum"), changes), (3, 1), "{after}");
}

#[test]
fn a_function_without_a_mesh_stays() {
    let before = parse("func @f(%x: f32[3]) -> (f32[3]) {\n %0: f32[3] = exp %x\n return %0\n}");
    assert_eq!(buckets(before.clone(), u64::MAX), (before, 0));
}

fn built(mesh: &Mesh, body: impl FnOnce(&mut FunctionBuilder)) -> Function {
    let built = FunctionBuilder::build("f", |f| {
        f.mesh(mesh.axes().iter().cloned());
        body(f);
    });
    built.unwrap_or_else(|e| panic!("{e}"))
}

/// Collectives of all kinds that depend on each other in any way.
fn random_function(seed: u64) -> Function {
    let mesh = Mesh::new([("data", 2), ("tensor", 2)]).expect("a mesh");
    let mut random = Random(seed);
    built(&mesh, |f| {
        let mut input = |i: usize| {
            let ty = TensorType::new(DType::F32, [4, 6]).varying_over(&["data", "tensor"]);
            f.input(&format!("x{i}"), ty)
        };
        let mut values: Vec<Tensor> = (0..3).map(&mut input).collect();
        for _ in 0..24 {
            let x = random.pick(&values).clone();
            let groups = [&["data"][..], &["tensor"], &["data", "tensor"]];
            let over = *random.pick(&groups);
            let axis = random.below(3);
            let made = match random.below(7) {
                0 | 1 => x.psum(over),
                2 => x.pmax(over),
                3 => x.all_gather(over, axis).sum_axes(&[axis]),
                4 => x.all_gather_invariant(over, 0).sum_axes(&[0]) + &x,
                5 => x.psum_scatter_tiled(over, 0).sum_axes(&[0]) + &x,
                _ => x.sin() + random.pick(&values),
            };
            values.push(made);
        }
        for (i, value) in values.iter().enumerate() {
            f.output(&format!("y{i}"), value);
        }
    })
}

#[test]
fn random_functions_keep_their_bits() {
    let mut all = 0;
    for seed in 0..60 {
        let before = random_function(seed);
        let (after, changes) = joined(&before);
        all += changes;
        let exchanges = |f: &Function| {
            let numbered = f.numbered();
            numbered.iter().filter(|n| n.equation.op.exchanges()).count() as u64
        };
        assert!(exchanges(&after) + changes <= exchanges(&before), "{before}\n{after}");
    }
    assert!(all >= 60, "{all} buckets");
}
