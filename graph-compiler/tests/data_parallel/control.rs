//! Loops and branches with values by example.

use super::{check, refuses};
use wengert_compiler::autodiff::operators::value_and_grad;
use wengert_compiler::ranks::DataParallel;
use wengert_core::build::FunctionBuilder;
use wengert_core::build::control::{
    cond, fori, fori_upto, scan, scan_checkpointed, switch, while_at_most, while_checkpointed,
};
use wengert_core::graph::{Function, parse_program};
use wengert_core::{DType, Tensor};
use wengert_testing::ranks::{build, count, f32s, i32s, param};

/// A step of SGD on the loss of `model`, whose variables have these shapes, for examples `x`,
/// `f32[8,5,3]`, and their classes, of which there are two.
fn step(
    shapes: &[&[usize]],
    logits: impl Fn(&mut FunctionBuilder, &Tensor) -> Box<dyn Fn(&[Tensor]) -> Tensor>,
) -> Function {
    build("step", |f| {
        let x = f.input("x", f32s(&[8, 5, 3]));
        let y = f.input("y", i32s(&[8]));
        let model: Vec<Tensor> = shapes.iter().map(|shape| param(shape)).collect();
        let model = f.state("model", model);
        let logits = logits(f, &x);
        let (loss, gradient) =
            value_and_grad(&model, |m| logits(m).softmax_cross_entropy(&y).mean());
        for (i, (w, g)) in model.iter().zip(&gradient).enumerate() {
            f.update(&format!("model.{i}"), &(w - g * 0.1));
        }
        f.output("loss", loss);
    })
}

fn checked(function: &Function) -> Function {
    check(function, &["x", "y"], 2)
}

/// The parts of `x` in time, `[5, 8, 3]`.
fn in_time(x: &Tensor) -> Tensor {
    x.permute(&[1, 0, 2])
}

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(&f32s(shape))
}

/// Forward and backward by `scan`: hidden states are carried by example and stacked, gradients of
/// weights are carried as sums. The mask for the batch is cut in front of the loop.
#[test]
fn a_recurrent_network() {
    let function = step(&[&[3, 4], &[4, 4], &[4, 2]], |f, x| {
        let mask = f.key("key").dropout_mask(DType::F32, [8usize, 4], 0.3);
        let steps = in_time(x);
        Box::new(move |m| {
            let (last, all) = scan(&zeros(&[8, 4]), &steps, |h, x| {
                let h = ((x.dot(&m[0]) + h.dot(&m[1])) * &mask).tanh();
                (h.clone(), h)
            });
            (&last + all.mean_axes(&[0])).dot(&m[2])
        })
    });
    let of_rank = checked(&function);
    // The gradients of three weights, and the loss, are added outside of the loops.
    assert_eq!(count(&of_rank, "psum"), 4, "{of_rank}");
    // A loop over the microbatches, and in it a loop over time in each direction.
    assert_eq!(count(&of_rank, "scan"), 3, "{of_rank}");
}

/// The state before the first step is a weight, repeated for each example; the weights of a step
/// are computed in it, so their gradients are moved and multiplied within the loop.
#[test]
fn weights_that_are_computed_in_each_step() {
    let function = step(&[&[3, 4], &[4, 4], &[4, 2], &[4], &[4, 4]], |_, x| {
        let steps = in_time(x);
        Box::new(move |m| {
            let begin = m[3].broadcast_in_dim(vec![8usize.into(), 4usize.into()], &[1]);
            let (last, _) = scan(&begin, &steps, |h, x| {
                let weight = (m[1].tanh() * 0.5).permute(&[1, 0]).dot(&m[4]);
                let h = (x.dot(&m[0]) + h.dot(&weight)).tanh();
                (h.clone(), h.sum())
            });
            last.dot(&m[2])
        })
    });
    checked(&function);
}

/// A loop in a loop, and one that keeps some carries only.
#[test]
fn nested_loops_and_checkpoints() {
    let nested = step(&[&[3, 4], &[4, 4], &[4, 2]], |_, x| {
        let steps = in_time(x);
        Box::new(move |m| {
            let (last, _) = scan(&zeros(&[8, 4]), &steps, |h, x| {
                let h = fori(3usize, &(h + x.dot(&m[0])), |i, h| {
                    let rate = i.convert(DType::F32) * 0.1;
                    h + (h.dot(&m[1]).tanh() * rate)
                });
                (h.clone(), Vec::<Tensor>::new())
            });
            last.dot(&m[2])
        })
    });
    checked(&nested);
    let checkpointed = step(&[&[3, 4], &[4, 4], &[4, 2]], |_, x| {
        let steps = in_time(x);
        Box::new(move |m| {
            let (last, all) = scan_checkpointed(2, &zeros(&[8, 4]), &steps, |h, x| {
                let h = (x.dot(&m[0]) + h.dot(&m[1])).tanh();
                (h.clone(), h)
            });
            (&last + all.mean_axes(&[0])).dot(&m[2])
        })
    });
    checked(&checkpointed);
}

/// The number of steps depends on the weights: it is the same for all examples, and used behind
/// the loop, so a copy of the loop without examples computes it.
#[test]
fn a_while_loop_with_a_whole_condition() {
    let model = |loops: fn(&(Tensor, Tensor), &Tensor) -> (Tensor, Tensor)| {
        step(&[&[3, 4], &[4, 4], &[4, 2]], move |_, x| {
            let first = x.mean_axes(&[1]);
            Box::new(move |m| {
                let norm = m[1].square().sum();
                let begin = (first.dot(&m[0]), norm.zeros_like());
                let (h, norm) = loops(&begin, &(m[1].clone() + &norm * 0.01));
                h.dot(&m[2]) * (norm + 1.0).reciprocal()
            })
        })
    };
    let at_most = model(|begin, weight| {
        let goes_on = |(_, done): &(Tensor, Tensor)| done.lt(&(done.zeros_like() + 2.5));
        let step = |(h, done): &(Tensor, Tensor)| (h.dot(weight).tanh(), done + 0.7);
        while_at_most(6usize, begin, goes_on, step)
    });
    let of_rank = checked(&at_most);
    assert!(count(&of_rank, "while") > 1, "{of_rank}");
    checked(&model(|begin, weight| {
        let goes_on = |(_, done): &(Tensor, Tensor)| done.lt(&(done.zeros_like() + 2.5));
        let step = |(h, done): &(Tensor, Tensor)| (h.dot(weight).tanh(), done + 0.7);
        while_checkpointed(2, begin, goes_on, step)
    }));
}

/// A number of steps that is an input.
#[test]
fn a_loop_with_a_count() {
    let function = step(&[&[3, 4], &[4, 4], &[4, 2]], |f, x| {
        let steps = f.input("steps", i32s(&[]));
        let first = x.mean_axes(&[1]);
        Box::new(move |m| {
            let h = fori_upto(&steps, 4usize, &first.dot(&m[0]), |_, h| h.dot(&m[1]).tanh());
            h.dot(&m[2])
        })
    });
    checked(&function);
}

/// A mean over the whole batch, and an input, decide. One region returns values by example and the
/// other a constant; the gradients of weights are sums or zeros.
#[test]
fn branches_with_a_whole_selector() {
    let function = step(&[&[3, 4], &[4, 4], &[4, 2]], |f, x| {
        let which = f.input("which", i32s(&[]));
        let first = x.mean_axes(&[1]);
        Box::new(move |m| {
            let h = first.dot(&m[0]).tanh();
            let large = h.square().mean().gt(&Tensor::constant(0.2f32));
            let h = cond(&large, || h.dot(&m[1]), || zeros(&[8, 4]) + 0.5);
            let (same, one, two) = (|| h.clone(), || h.sin(), || h.dot(&m[1]).tanh());
            let h = switch(&which, vec![Box::new(same), Box::new(one), Box::new(two)]);
            h.dot(&m[2])
        })
    });
    let of_rank = checked(&function);
    assert!(count(&of_rank, "cond") > 0 && count(&of_rank, "switch") > 0, "{of_rank}");
}

/// Sums over the examples are stacked, beside a whole stack and one by example.
#[test]
fn results_of_each_kind() {
    let text = "func @f(%x: f32[4], %s: f32[5]) -> (sum: f32[5], s: f32[5], x: f32[5,4]) {
        %0: f32[5], %1: f32[5], %2: f32[5,4] = scan %s, %x {captures=1, carries=0, length=5}
          region (%3: f32[], %4: f32[4]) {
            %5: f32[] = reduce_sum %4 {axes=[0]}
            %6: f32[] = mul %5, %3
            %7: f32[] = exp %3
            %8: f32[4] = broadcast_in_dim %7 {dims=[], shape=[4]}
            %9: f32[4] = mul %4, %8
            return %6, %7, %9
          }
        return %0, %1, %2
    }";
    let program = parse_program(text, "f.ir").unwrap();
    let options = DataParallel::new(["x"]).ranks(2).microbatches(2);
    let of_rank = options.apply(&program.functions()[0]).unwrap();
    assert_eq!(of_rank.to_string().trim(), TEXT.trim());
}

const TEXT: &str = r#"
func @f mesh(data=2) (%x: f32[2]{data}, %s: f32[5]) -> (sum: f32[5], s: f32[5], x: f32[5,2]{data}) {
  %0: f32[5] = scan %s {carries=0, length=5}
    region (%s.t: f32[]) {
      %2: f32[] = exp %s.t
      return %2
    }
  %3: f32[5]{data}, %4: f32[5,2]{data} = scan %s, %x {captures=1, carries=0, length=5}
    region (%s.t: f32[], %x: f32[2]{data}) {
      %7: f32[]{data} = reduce_sum %x {axes=[0]}
      %8: f32[]{data} = pvary %s.t {over=["data"]}
      %9: f32[]{data} = mul %7, %8
      %10: f32[] = exp %s.t
      %11: f32[2] = broadcast_in_dim %10 {shape=[2]}
      %12: f32[2]{data} = pvary %11 {over=["data"]}
      %13: f32[2]{data} = mul %x, %12
      return %9, %13
    }
  %14: f32[5] = psum %3 {over=["data"]}
  return %14, %0, %4
}
"#;

#[test]
fn loops_and_branches_that_mix_examples_are_refused() {
    let options = DataParallel::new(["x"]).ranks(2).microbatches(2);
    let over = "func @f(%x: f32[4,3], %a: f32[3]) -> (f32[3]) {
        %0: f32[3] = scan %a, %x {captures=0, carries=1, length=4}
          region (%1: f32[3], %2: f32[3]) {
            %3: f32[3] = add %1, %2
            return %3
          }
        return %0
    }";
    refuses(&options, over, &["@f: `scan` runs over the examples", "f.ir:2"]);
    let sorted = "func @f(%x: f32[4,3]) -> (f32[4,3]) {
        %0: f32[4,3] = scan %x {captures=0, carries=1, length=5}
          region (%1: f32[4,3]) {
            %2: f32[4,3] = sort %1 {axis=0}
            return %2
          }
        return %0
    }";
    refuses(&options, sorted, &["`sort` mixes the examples, which are along axis 0", "f.ir:4"]);
    let turned = "func @f(%x: f32[4,4]) -> (f32[4,4]) {
        %0: f32[4,4] = scan %x {captures=0, carries=1, length=5}
          region (%1: f32[4,4]) {
            %2: f32[4,4] = permute %1 {permutation=[1,0]}
            return %2
          }
        return %0
    }";
    refuses(&options, turned, &["`scan` mixes examples in carry 0", "along one axis", "f.ir:2"]);
    let begun = "func @f(%x: f32[4,3], %a: f32[3]) -> (f32[3]) {
        %0: f32[3] = scan %a, %x {captures=1, carries=1, length=5}
          region (%1: f32[3], %2: f32[4,3]) {
            %3: f32[3] = reduce_sum %2 {axes=[0]}
            return %3
          }
        return %0
    }";
    refuses(&options, begun, &["`scan` mixes examples in carry 0", "begins with zeros", "f.ir:2"]);
    let used = "func @f(%x: f32[4,3], %s: f32[5]) -> (f32[5,3]) {
        %0: f32[5,3] = scan %s, %x {captures=1, carries=0, length=5}
          region (%1: f32[], %2: f32[4,3]) {
            %3: f32[3] = reduce_sum %2 {axes=[0]}
            %4: f32[3] = exp %3
            return %4
          }
        return %0
    }";
    refuses(&options, used, &["`exp` uses a sum over the examples within a loop", "f.ir:5"]);
    let greatest = used.replace("reduce_sum", "reduce_max");
    refuses(&options, &greatest, &["`reduce_max` is an extremum over the examples", "f.ir:4"]);
    let random = "func @f(%x: f32[4], %k: u32[2]) -> (f32[4]) {
        %0: f32[4] = scan %x, %k {captures=1, carries=1, length=5}
          region (%1: f32[4], %2: u32[2]) {
            %3: u32[4] = random_bits %2 {dtype=u32, shape=[4]}
            %4: f32[4] = convert_element_type %3 {dtype=f32}
            %5: f32[4] = add %1, %4
            return %5
          }
        return %0
    }";
    refuses(&options, random, &["`random_bits` makes a value for all examples within a loop"]);
}

/// A condition by example, such as that of a loop mapped over examples: it runs until the last
/// example is done.
#[test]
fn conditions_by_example_are_refused() {
    let options = DataParallel::new(["x"]).ranks(2).microbatches(2);
    let repeated = |condition: &str| {
        format!(
            "func @f(%x: f32[4], %a: f32[]) -> (f32[4]) {{
            %0: f32[4] = while %x, %a {{captures=1}}
              region (%1: f32[4], %2: f32[]) {{
                {condition}
                return %5
              }}
              region (%6: f32[4], %7: f32[]) {{
                %8: f32[4] = sin %6
                return %8
              }}
            return %0
        }}"
        )
    };
    let any = "%3: f32[4] = broadcast_in_dim %2 {dims=[], shape=[4]}
                %4: bool[4] = lt %3, %1
                %5: bool[] = reduce_or %4 {axes=[0]}";
    refuses(&options, &repeated(any), &["`reduce_or` mixes the examples", "f.ir:6"]);
    let sum = "%3: f32[] = reduce_sum %1 {axes=[0]}
                %5: bool[] = lt %2, %3";
    refuses(&options, &repeated(sum), &["`lt` uses a sum over the examples", "f.ir:5"]);
    let chosen = "func @f(%x: i32[4], %a: i32[4]) -> (i32[4]) {
        %0: i32[4] = scan %a, %x {captures=1, carries=1, length=5}
          region (%1: i32[4], %2: i32[4]) {
            %3: i32[] = reduce_sum %2 {axes=[0]}
            %4: i32[4] = switch %3, %1
              region (%5: i32[4]) {
                return %5
              }
            return %4
          }
        return %0
    }";
    refuses(&options, chosen, &["`switch` is decided by a sum over the examples", "f.ir:5"]);
    let turned = "func @f(%x: f32[4,4], %p: bool[]) -> (f32[4,4]) {
        %0: f32[4,4] = cond %p, %x
          region (%1: f32[4,4]) {
            return %1
          }
          region (%2: f32[4,4]) {
            %3: f32[4,4] = permute %2 {permutation=[1,0]}
            return %3
          }
        return %0
    }";
    refuses(&options, turned, &["`cond` mixes examples in result 0", "f.ir:2"]);
}
