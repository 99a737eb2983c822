//! Reports on lookups: at the top level, in loops, branches and conditions, nested, and in called
//! functions.

use super::check;
use wengert_compiler::indices::{bounds, watch};
use wengert_core::build::FunctionBuilder;
use wengert_core::build::control::{cond, fold, fori, scan, scan_reverse, while_loop};
use wengert_core::graph::Function;
use wengert_core::op::{Attention, AttentionKind, Gather};
use wengert_core::{DType, Literal, Scalar, Tensor, TensorType, interpret};

fn table(f: &mut FunctionBuilder) -> Tensor {
    f.input("table", TensorType::new(DType::F32, [4usize]))
}

fn indices(f: &mut FunctionBuilder, shape: &[usize]) -> Tensor {
    f.input("indices", TensorType::new(DType::I32, shape.iter().copied()))
}

/// The messages of a run's reports, in the order of the lookups. Checks that the other outputs keep
/// their bits, and that a checked function gives the same in every executor.
fn faults(name: &str, build: &dyn Fn(&mut FunctionBuilder), values: &[i32]) -> Vec<Option<String>> {
    let function = FunctionBuilder::build(name, |f| build(f)).unwrap();
    let shape = function.input_type(1).extents().unwrap();
    let inputs = [
        Literal::from_vec(&[4], vec![1.0f32, 2.0, 3.0, 4.0]).unwrap(),
        Literal::from_vec(&shape, values.to_vec()).unwrap(),
    ];
    let (checked, watched) = watch(function.clone()).unwrap();
    wengert_core::graph::verify(&checked).unwrap();
    check(&checked, &inputs, name);
    let (plain, run) =
        (interpret::run(&function, &inputs).unwrap(), interpret::run(&checked, &inputs).unwrap());
    let (outputs, reports) = run.split_at(plain.len());
    assert_eq!(outputs, plain, "{name}");
    assert_eq!(reports.len(), watched.len(), "{name}");
    watched.iter().zip(reports).map(|(w, report)| w.fault(report).map(|d| d.message)).collect()
}

fn is(found: &[Option<String>], wanted: &[Option<&str>]) {
    assert_eq!(found.len(), wanted.len(), "{found:?}");
    for (found, wanted) in found.iter().zip(wanted) {
        match (found, wanted) {
            (None, None) => {}
            (Some(found), Some(wanted)) => {
                assert!(found.contains(wanted), "`{wanted}` is not in `{found}`")
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_first_index_that_is_out_of_range_is_told() {
    let plain = |f: &mut FunctionBuilder| {
        let (t, i) = (table(f), indices(f, &[2, 3]));
        f.output("y", t.gather_rows(&i));
    };
    is(&faults("plain", &plain, &[0, 3, 1, 2, 0, 0]), &[None]);
    let says = "gather: index -1 at [1, 0] of its indices is out of range: indices from 0 to 3 are \
                in range";
    is(&faults("plain", &plain, &[0, 3, 1, -1, 4, 0]), &[Some(says)]);
    let pairs = |f: &mut FunctionBuilder| {
        let (t, i) = (table(f), indices(f, &[2, 2]));
        let square = t.reshape([2usize, 2]);
        let cells = Gather {
            collapsed_slice_dims: vec![0, 1],
            offset_dims: vec![],
            start_index_map: vec![0, 1],
            slice_sizes: vec![1i64.into(), 1i64.into()],
            ..Gather::rows(square.ty(), 1)
        };
        f.output("y", Tensor::apply(cells, &[&square, &i]));
    };
    is(
        &faults("pairs", &pairs, &[0, 1, 1, 2]),
        &[Some("index 2 at [1] of its indices, component 1")],
    );
    is(&faults("pairs", &pairs, &[0, 1, 1, 1]), &[None]);
    // An empty list of indices contains none out of range.
    let none = |f: &mut FunctionBuilder| {
        let (t, i) = (table(f), indices(f, &[0]));
        f.output("y", t.gather_rows(&i).sum());
    };
    is(&faults("none", &none, &[]), &[None]);
}

#[test]
fn loops_carry_their_reports() {
    let step = |t: &Tensor, i: &Tensor| t.gather_rows(i);
    let sum = |f: &mut FunctionBuilder| {
        let (t, i) = (table(f), indices(f, &[3]));
        f.output("y", fold(&Tensor::constant(0.0f32), &i, |sum, i| sum + step(&t, i)));
    };
    is(&faults("fold", &sum, &[0, 1, 2]), &[None]);
    is(&faults("fold", &sum, &[0, 7, 9]), &[Some("index 7 is out of range")]);
    let stacks = |f: &mut FunctionBuilder| {
        let (t, i) = (table(f), indices(f, &[3]));
        let carry = (Tensor::constant(0.0f32), t.clone());
        let ((sum, _), parts) = scan_reverse(&carry, &i, |(sum, t), i| {
            let found = step(t, i);
            ((sum + &found, t.clone()), found * 2.0)
        });
        f.output("sum", sum);
        f.output("parts", parts);
    };
    is(&faults("scan", &stacks, &[7, 1, 9]), &[Some("index 9 is out of range")]);
    // A loop in a loop, beside a lookup at the top level.
    let nested = |f: &mut FunctionBuilder| {
        let (t, i) = (table(f), indices(f, &[2, 3]));
        let (sum, _) = scan(&Tensor::constant(0.0f32), &i, |sum, row| {
            let first = step(&t, &row.slice_axis(0, 0, 1)).sum();
            (fold(&(sum + first), row, |sum, i| sum + step(&t, i)), Vec::<Tensor>::new())
        });
        f.output("y", sum);
    };
    is(&faults("nested", &nested, &[0, 1, 2, 3, 2, 8]), &[None, Some("index 8 is out of range")]);
    is(
        &faults("nested", &nested, &[0, 1, 2, 5, 2, 3]),
        &[Some("index 5 at [0]"), Some("index 5 is out")],
    );
}

#[test]
fn conditions_and_branches_are_watched() {
    // The step does the lookup of the condition. The condition does it once more when it fails.
    let walk = |f: &mut FunctionBuilder| {
        let (t, i) = (table(f), indices(f, &[]));
        let end = while_loop(&i, |i| t.gather_rows(i).lt(3.5), |i| i + 1);
        f.output("y", end);
    };
    is(&faults("walk", &walk, &[0]), &[None, None]);
    is(&faults("walk", &walk, &[-2]), &[Some("index -2"), None]);
    is(&faults("walk", &walk, &[5]), &[None, Some("index 5")]);
    let branch = |f: &mut FunctionBuilder| {
        let (t, i) = (table(f), indices(f, &[]));
        let y = cond(
            &i.lt(0),
            || {
                t.gather_rows(&i)
                    + fori(2, &Tensor::constant(0.0f32), |n, sum| sum + t.gather_rows(&(n + &i)))
            },
            || t.gather_rows(&(&i - 1)),
        );
        f.output("y", y);
    };
    is(&faults("branch", &branch, &[-3]), &[Some("index -3"), Some("index -3"), None]);
    is(&faults("branch", &branch, &[0]), &[None, None, Some("index -1")]);
    is(&faults("branch", &branch, &[4]), &[None, None, None]);
}

#[test]
fn labels_are_watched_and_defined_indices_are_not() {
    let labels = |f: &mut FunctionBuilder| {
        let (t, i) = (table(f), indices(f, &[2]));
        let logits = t.reshape([2usize, 2]);
        f.output("y", logits.softmax_cross_entropy(&i));
    };
    is(&faults("labels", &labels, &[0, 2]), &[Some("softmax_cross_entropy: index 2 at [1]")]);
    let filled = |f: &mut FunctionBuilder| {
        let (t, i) = (table(f), indices(f, &[2]));
        f.output("y", i.one_hot(4, DType::F32).dot(&t));
    };
    is(&faults("filled", &filled, &[0, 9]), &[]);
}

fn bounds_of(build: impl Fn(&mut FunctionBuilder)) -> Vec<(String, i64)> {
    let function: Function = FunctionBuilder::build("f", |f| build(f)).unwrap();
    bounds(&function).into_iter().map(|(name, bound)| (name, bound.count)).collect()
}

#[test]
fn inputs_that_are_indices_have_bounds() {
    let at = |count: i64| vec![("indices".to_owned(), count)];
    let batch = |f: &mut FunctionBuilder| {
        f.input("indices", TensorType::new(DType::U8, [wengert_core::Dim::variable("B")]))
    };
    let wide = |t: &Tensor| t.convert(DType::I64);
    assert_eq!(
        bounds_of(|f| {
            let (t, i) = (table(f), batch(f));
            f.output("y", t.gather_rows(&i));
        }),
        at(4)
    );
    assert_eq!(
        bounds_of(|f| {
            let i = batch(f);
            f.output("y", i.one_hot(3, DType::F32));
        }),
        at(3)
    );
    // Of two bounds the narrower one holds.
    assert_eq!(
        bounds_of(|f| {
            let (t, i) = (table(f), batch(f));
            f.output("y", t.gather_rows(&wide(&i)));
            f.output("z", i.one_hot(3, DType::F32));
        }),
        at(3)
    );
    // In a loop the index is a part of a slice. A carry is another number at each step, so it has
    // no bound.
    let steps = |f: &mut FunctionBuilder| f.input("indices", TensorType::new(DType::I32, [5usize]));
    assert_eq!(
        bounds_of(|f| {
            let (t, i) = (table(f), steps(f));
            f.output("y", fold(&Tensor::constant(0.0f32), &i, |sum, i| sum + t.gather_rows(i)));
        }),
        at(4)
    );
    assert_eq!(
        bounds_of(|f| {
            let (t, i) = (table(f), steps(f));
            f.output("y", fori(3, &i, |_, i| i + &t.gather_rows(i).convert(DType::I32)));
        }),
        vec![]
    );
    // The result of an addition is another number, so it has no bound.
    assert_eq!(
        bounds_of(|f| {
            let (t, i) = (table(f), batch(f));
            f.output("y", t.gather_rows(&(wide(&i) - 1)));
        }),
        vec![]
    );
}

/// A prefix of an attention is from 0 to the number of keys.
#[test]
fn prefixes_of_attention_are_watched() {
    let attention = |f: &mut FunctionBuilder| {
        let (t, prefix) = (table(f), indices(f, &[2]));
        let x = t.reshape([2usize, 2, 1, 1]);
        let (kind, scale) = (AttentionKind::Value, Scalar::of(1.0));
        let op = Attention { kind, causal: false, bias: false, prefix: true, scale };
        f.output("y", Tensor::apply_many(op, &[&x, &x, &x, &prefix]).swap_remove(0));
    };
    is(&faults("attention", &attention, &[0, 2]), &[None]);
    let says = "dot_product_attention: index 3 at [1] of its indices is out of range: indices from \
                0 to 2 are in range";
    is(&faults("attention", &attention, &[2, 3]), &[Some(says)]);
    is(&faults("attention", &attention, &[-1, 0]), &[Some("index -1 at [0]")]);
    let function = FunctionBuilder::build("f", attention).unwrap();
    assert_eq!(bounds(&function)["indices"].count, 3);
}
