//! Nests that the builder makes.

use wengert_core::nest::{Affine, Combine, Guard, NestBuilder, ScalarOp, Tree, interpret};
use wengert_core::{DType, Literal};

fn guard(index: Affine, low: i64, high: i64) -> Guard {
    Guard { index, low, high }
}

#[test]
fn identical_instructions_are_one_and_unused_ones_none() {
    let mut b = NestBuilder::new("square");
    let x = b.input("x", DType::F32, &[4]);
    let unused = b.input("unused", DType::F32, &[4]);
    let y = b.output("y", DType::F32, &[4]);
    let i = b.parallel("i", 4);
    b.phase([]);
    let at = [Affine::axis(i)];
    let (first, second) = (b.load(x, &at), b.load(x, &at));
    assert_eq!(first, second);
    let lost = b.load(unused, &at);
    b.scalar(ScalarOp::Exp, &[lost]);
    let square = b.scalar(ScalarOp::Mul, &[first, second]);
    b.store(y, &at, square);
    assert_eq!(
        b.finish().unwrap().to_string(),
        "nest @square(in %x: f32[4], in %unused: f32[4], out %y: f32[4]) {
  parallel i: 4
  phase {
    %0: f32 = load %x[i]
    %1: f32 = mul %0, %0
    store %y[i], %1
  }
}
"
    );
}

#[test]
fn what_is_computed_once_a_row_is_known_later() {
    let mut b = NestBuilder::new("row");
    let y = b.output("y", DType::F32, &[2, 3]);
    let z = b.output("z", DType::F32, &[2]);
    let i = b.parallel("i", 2);
    b.phase([]);
    let half = b.constant(0.5f32.into());
    b.store(z, &[Affine::axis(i)], half);
    let [j] = b.phase([("j", 3)]);
    let again = b.constant(0.5f32.into());
    assert_eq!(half, again);
    b.store(y, &[Affine::axis(i), Affine::axis(j)], again);
    let [k] = b.phase([("i", 3)]);
    assert_ne!(b.constant(0.25f32.into()), half);
    let _ = k;
    let text = b.finish().unwrap().to_string();
    assert_eq!(text.matches("const").count(), 1, "{text}");
    assert_eq!(text.matches("phase").count(), 2, "an empty phase is left out: {text}");
}

#[test]
fn what_is_stored_is_loaded_anew() {
    let mut b = NestBuilder::new("kept");
    let y = b.output("y", DType::I32, &[4]);
    let t = b.row("t", DType::I32, &[4]);
    let [j] = b.phase([("j", 4)]);
    let n = b.index(&Affine::axis(j), DType::I32);
    b.store(t, &[Affine::axis(j)], n);
    let [k] = b.phase([("k", 4)]);
    let at = [Affine::axis(k)];
    let before = b.load(t, &at);
    let twice = b.scalar(ScalarOp::Add, &[before, before]);
    b.store(t, &at, twice);
    assert_ne!(b.load(t, &at), before, "the element has changed");
    let [m] = b.phase([("m", 4)]);
    let after = b.load(t, &[Affine::axis(m)]);
    b.store(y, &[Affine::axis(m)], after);
    let outputs = interpret(&b.finish().unwrap(), &[]).unwrap();
    assert_eq!(outputs[0].as_slice::<i32>().unwrap(), [0, 2, 4, 6]);
}

#[test]
fn row_storage_that_nothing_reads_is_left_out() {
    let mut b = NestBuilder::new("chain");
    let y = b.output("y", DType::I32, &[4]);
    let (s, t) = (b.row("s", DType::I32, &[4]), b.row("t", DType::I32, &[4]));
    let [j] = b.phase([("j", 4)]);
    let n = b.index(&Affine::axis(j), DType::I32);
    b.store(s, &[Affine::axis(j)], n);
    b.store(y, &[Affine::axis(j)], n);
    let [k] = b.phase([("k", 4)]);
    let v = b.load(s, &[Affine::axis(k)]);
    b.store(t, &[Affine::axis(k)], v);
    let nest = b.finish().unwrap();
    assert_eq!((nest.buffers.len(), nest.phases.len()), (1, 1), "{nest}");
}

#[test]
fn indices_and_guards_are_simplified_by_extents() {
    let mut b = NestBuilder::new("reshape");
    let x = b.input("x", DType::F32, &[3, 4]);
    let y = b.output("y", DType::F32, &[3, 4]);
    let (i, j) = (b.parallel("i", 3), b.parallel("j", 4));
    b.phase([]);
    let flat = Affine::axis(i).scale(4).add(&Affine::axis(j));
    let fill = b.constant(0f32.into());
    let always = guard(flat.clone(), 0, 12);
    let v = b.load_guarded(x, &[flat.floor_div(4), flat.modulo(4)], &[always], fill);
    b.store(y, &[Affine::axis(i), Affine::axis(j)], v);
    let yes = b.test(&[guard(Affine::axis(i), 0, 3)]);
    assert_eq!(b.dtype(yes), DType::Bool);
    let text = b.finish().unwrap().to_string();
    assert!(text.contains("load %x[i, j]\n"), "{text}");
}

#[test]
fn names_become_names_of_the_text_and_unique() {
    let mut b = NestBuilder::new("jvp(tanh) of f");
    let x = b.input("layers.0.weight", DType::F32, &[2]);
    let again = b.input("layers.0.weight", DType::F32, &[2]);
    let y = b.output("", DType::F32, &[2]);
    let i = b.parallel("mod", 2);
    b.phase([]);
    let (v, w) = (b.load(x, &[Affine::axis(i)]), b.load(again, &[Affine::axis(i)]));
    let sum = b.scalar(ScalarOp::Add, &[v, w]);
    b.store(y, &[Affine::axis(i)], sum);
    let nest = b.finish().unwrap();
    let names: Vec<&str> = nest.buffers.iter().map(|(_, b)| b.name.as_str()).collect();
    assert_eq!(names, ["layers.0.weight", "layers.0.weight_2", "x"]);
    assert_eq!((nest.name.as_str(), nest.axes[i].name.as_str()), ("jvp_tanh__of_f", "i"));
}

#[test]
fn halves_are_widened_for_arithmetic_only() {
    let mut b = NestBuilder::new("halves");
    let x = b.input("x", DType::BF16, &[2]);
    let (y, z) = (b.output("y", DType::BF16, &[2]), b.output("z", DType::Bool, &[2]));
    let i = b.parallel("i", 2);
    b.phase([]);
    let at = [Affine::axis(i)];
    let v = b.load(x, &at);
    let less = b.scalar_widened(ScalarOp::Lt, &[v, v]);
    let sum = b.scalar_widened(ScalarOp::Add, &[v, v]);
    let chosen = b.scalar_widened(ScalarOp::Select, &[less, v, sum]);
    b.store(z, &at, less);
    b.store(y, &at, chosen);
    let nest = b.finish().unwrap();
    let text = nest.to_string();
    assert!(text.contains(": bf16 = select") && text.matches("convert").count() == 2, "{text}");
    let x = Literal::from_vec(&[2], vec![1.0f32, 3.0]).unwrap().convert(DType::BF16);
    let outputs = interpret(&nest, &[x]).unwrap();
    assert_eq!(outputs[0].convert(DType::F32).as_slice::<f32>().unwrap(), [2.0, 6.0]);
}

#[test]
fn the_first_mistake_is_returned() {
    let mut b = NestBuilder::new("wrong");
    let x = b.input("x", DType::F16, &[2]);
    b.phase([]);
    let v = b.load(x, &[Affine::constant(0)]);
    let sum = b.scalar(ScalarOp::Add, &[v, v]);
    b.scalar(ScalarOp::Not, &[sum]);
    let error = b.finish().unwrap_err();
    assert_eq!(
        error.message,
        "nest @wrong, phase 0: `add` takes f32, f64 or integers, not f16: convert to f32 first"
    );

    let mut b = NestBuilder::new("early");
    b.constant(1f32.into());
    assert!(b.finish().unwrap_err().message.contains("before the first phase"));

    let mut b = NestBuilder::new("late");
    b.phase([]);
    b.parallel("i", 4);
    assert!(b.finish().unwrap_err().message.contains("after the first phase"));
}

#[test]
fn the_verifier_has_the_last_word() {
    let mut b = NestBuilder::new("short");
    let y = b.output("y", DType::F32, &[4]);
    let i = b.parallel("i", 3);
    b.phase([]);
    let one = b.constant(1f32.into());
    b.store(y, &[Affine::axis(i)], one);
    assert!(b.finish().unwrap_err().message.contains("(N17)"));
}

#[test]
fn named_combiners_are_known_by_their_programs() {
    for name in Combine::names() {
        for dtypes in [
            vec![DType::F32],
            vec![DType::U8],
            vec![DType::Bool],
            vec![DType::F64, DType::I64],
            vec![DType::I32, DType::U32],
            vec![DType::F64; 3],
        ] {
            if let Some(combine) = Combine::named(name, &dtypes) {
                assert_eq!((combine.name(), combine.dtypes()), (Some(name), dtypes));
            }
        }
    }
    assert_eq!(Combine::binary(ScalarOp::Add, 1f32.into()).name(), None, "another identity");
    assert!(Combine::named("sum", &[DType::F16]).is_none() && Combine::named("sum", &[]).is_none());
}

/// Extrema are the same for every tree: the combiners are associative, and they define the result
/// for NaN and for ties.
#[test]
fn extrema_do_not_depend_on_the_tree() {
    let values =
        [1.0, f32::NAN, -0.0, 3.0, 0.0, f32::NEG_INFINITY, 3.0, f32::INFINITY, f32::NAN, -2.0];
    for count in 1..values.len() {
        for skip in 0..values.len() - count {
            let x = Literal::from_vec(&[count], values[skip..skip + count].to_vec()).unwrap();
            let mut found = Vec::new();
            for (lanes, block) in [(1, 0), (2, 0), (4, 0), (8, 0), (1, 3), (2, 4)] {
                let mut b = NestBuilder::new("extrema");
                let input = b.input("x", DType::F32, &[count]);
                let outputs = [b.output("max", DType::I32, &[]), b.output("min", DType::I32, &[])];
                let [j] = b.phase([("j", count)]);
                let v = b.load(input, &[Affine::axis(j)]);
                let n = b.index(&Affine::axis(j), DType::I32);
                let tree = Tree { lanes, block };
                let high = b.reduce(&[v, n], Combine::argmax(DType::F32, DType::I32), tree)[1];
                let low = b.reduce(&[v, n], Combine::argmin(DType::F32, DType::I32), tree)[1];
                b.phase([]);
                b.store(outputs[0], &[], high);
                b.store(outputs[1], &[], low);
                found.push(interpret(&b.finish().unwrap(), std::slice::from_ref(&x)).unwrap());
            }
            // The definition, written out.
            let part = &values[skip..skip + count];
            let best = |better: fn(f32, f32) -> bool| {
                let nan = part.iter().position(|v| v.is_nan());
                nan.unwrap_or_else(|| {
                    (0..count).fold(0, |b, k| if better(part[k], part[b]) { k } else { b })
                }) as i32
            };
            for outputs in found {
                assert_eq!(outputs[0], Literal::from(best(|a, b| a > b)), "{part:?}");
                assert_eq!(outputs[1], Literal::from(best(|a, b| a < b)), "{part:?}");
            }
        }
    }
}
