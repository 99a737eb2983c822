//! Control flow against the same programs without it: loops are unrolled, and branches are
//! selections. The tests compare the value, both modes, and both mixed second orders. They cover
//! constructs alone and nested.

use wengert_compiler::autodiff::operators::{grad, jvp, transpose, value_and_grad, vjp};
use wengert_compiler::vmap::operators::vmap;
use wengert_core::build::FunctionBuilder;
use wengert_core::build::control;
use wengert_core::graph::{Body, Equation, Function};
use wengert_core::{DType, Literal, Op, Tensor, TensorType};
use wengert_testing::Random;
use wengert_testing::derivative::*;

/// The form of the control flow in a program.
#[derive(Clone, Copy, PartialEq)]
enum How {
    Kept,
    /// Scans take several steps per iteration.
    Several,
    Unrolled,
}
use How::{Kept, Several, Unrolled};

type Values = Vec<Tensor>;

fn number(i: usize) -> Tensor {
    Tensor::constant(i32::try_from(i).unwrap())
}

fn row(x: &Tensor, i: usize) -> Tensor {
    x.dynamic_index_in_dim(&number(i), 0)
}

fn stack(rows: &[Tensor]) -> Tensor {
    let rows: Vec<Tensor> = rows
        .iter()
        .map(|r| {
            r.reshape(std::iter::once(1usize.into()).chain(r.shape().to_vec()).collect::<Vec<_>>())
        })
        .collect();
    Tensor::apply(wengert_core::op::Concatenate { axis: 0 }, &rows.iter().collect::<Vec<_>>())
}

fn extent(x: &Tensor) -> usize {
    usize::try_from(x.shape()[0].as_constant().unwrap()).unwrap()
}

impl How {
    fn scan(
        self,
        reverse: bool,
        init: &Values,
        xs: &Values,
        step: impl Fn(&Values, &Values) -> (Values, Values),
    ) -> (Values, Values) {
        match (self, reverse) {
            (Kept, false) => control::scan(init, xs, step),
            (Kept, true) => control::scan_reverse(init, xs, step),
            (Several, false) => control::scan_unrolled(2, init, xs, step),
            (Several, true) => control::scan_reverse_unrolled(2, init, xs, step),
            (Unrolled, _) => {
                let count = extent(&xs[0]);
                let (mut carry, mut made) = (init.clone(), vec![vec![]; count]);
                for t in 0..count {
                    let t = if reverse { count - 1 - t } else { t };
                    (carry, made[t]) = step(&carry, &xs.iter().map(|x| row(x, t)).collect());
                }
                let stacks = (0..made[0].len())
                    .map(|i| stack(&made.iter().map(|m| m[i].clone()).collect::<Vec<_>>()));
                (carry, stacks.collect())
            }
        }
    }

    fn fori(self, n: usize, init: &Values, step: impl Fn(&Tensor, &Values) -> Values) -> Values {
        match self {
            Kept | Several => control::fori(n, init, step),
            Unrolled => (0..n).fold(init.clone(), |carry, i| step(&number(i), &carry)),
        }
    }

    fn fori_upto(
        self,
        count: &Tensor,
        n: usize,
        init: &Values,
        step: impl Fn(&Tensor, &Values) -> Values,
    ) -> Values {
        match self {
            Kept | Several => control::fori_upto(count, n, init, step),
            Unrolled => (0..n).fold(init.clone(), |carry, i| {
                choose(&number(i).lt(count), &step(&number(i), &carry), &carry)
            }),
        }
    }

    fn while_at_most(
        self,
        n: usize,
        init: &Values,
        condition: impl Fn(&Values) -> Tensor,
        step: impl Fn(&Values) -> Values,
    ) -> Values {
        match self {
            Kept | Several => control::while_at_most(n, init, condition, step),
            Unrolled => {
                let mut carry = init.clone();
                for _ in 0..n {
                    carry = choose(&condition(&carry), &step(&carry), &carry);
                }
                carry
            }
        }
    }

    /// As [`How::while_at_most`], for loops whose condition becomes false within `n` steps.
    fn while_checkpointed(
        self,
        checkpoints: usize,
        n: usize,
        init: &Values,
        condition: impl Fn(&Values) -> Tensor,
        step: impl Fn(&Values) -> Values,
    ) -> Values {
        match self {
            Kept | Several => control::while_checkpointed(checkpoints, init, condition, step),
            Unrolled => self.while_at_most(n, init, condition, step),
        }
    }

    fn cond(self, p: &Tensor, then: impl Fn() -> Values, otherwise: impl Fn() -> Values) -> Values {
        match self {
            Kept | Several => control::cond(p, then, otherwise),
            Unrolled => choose(p, &then(), &otherwise()),
        }
    }

    fn switch(self, index: &Tensor, ways: Vec<Box<dyn Fn() -> Values + '_>>) -> Values {
        match self {
            Kept | Several => {
                let ways = ways.into_iter().map(|w| Box::new(w) as Box<dyn FnOnce() -> Values>);
                control::switch(index, ways.collect())
            }
            Unrolled => {
                let last = ways.len() - 1;
                let mut chosen = ways[last]();
                for (i, way) in ways.iter().enumerate().take(last).rev() {
                    chosen = choose(&index.le(number(i)), &way(), &chosen);
                }
                chosen
            }
        }
    }
}

fn choose(p: &Tensor, then: &Values, otherwise: &Values) -> Values {
    let one = |(a, b): (&Tensor, &Tensor)| p.broadcast_in_dim(a.shape().to_vec(), &[]).select(a, b);
    then.iter().zip(otherwise).map(one).collect()
}

fn float(i: &Tensor, like: &Tensor) -> Tensor {
    i.convert(DType::F64).broadcast_in_dim(like.shape().to_vec(), &[])
}

fn sum(values: &Values) -> Tensor {
    let mut all = values.iter().map(|v| (v * v + v).sum());
    let first = all.next().unwrap();
    all.fold(first, |a, b| a + b)
}

type Program = fn(How, &Tensor, &Tensor, &Tensor) -> Tensor;

/// Programs of a state [3], a series [4,3] and a matrix [3,3].
const PROGRAMS: &[(&str, Program)] = &[
    ("a recurrent cell", |how, h, x, w| {
        let (last, all) = how.scan(false, &vec![h.clone()], &vec![x.clone()], |c, x| {
            let next = (c[0].reshape([1usize, 3]).dot(w).reshape([3usize]) + &x[0]).tanh();
            (vec![next.clone()], vec![&next * &c[0]])
        });
        sum(&[last, all].concat())
    }),
    ("from the end", |how, h, x, w| {
        let (last, all) = how.scan(true, &vec![h.clone()], &vec![x.clone()], |c, x| {
            let next = (&c[0] * row(w, 1) + &x[0]).sin();
            (vec![next], vec![&c[0] * &x[0]])
        });
        sum(&[last, all].concat())
    }),
    ("carries that change places, and one that begins as a constant", |how, h, x, w| {
        let zero = Tensor::constant(0.25f64).broadcast_in_dim(h.shape().to_vec(), &[]);
        let init = vec![h.clone(), row(w, 0), zero, row(w, 2)];
        let (last, _) = how.scan(false, &init, &vec![x.clone()], |c, x| {
            (vec![c[1].clone(), (&c[0] * &x[0]).cos(), &c[2] + &c[0] * &c[1], c[3].clone()], vec![])
        });
        sum(&last)
    }),
    ("a map with a captured matrix", |how, h, x, w| {
        let (_, all) = how.scan(false, &vec![], &vec![x.clone()], |_, x| {
            (vec![], vec![(&x[0] * row(w, 0) + h).exp(), x[0].sum()])
        });
        sum(&all)
    }),
    ("a counted loop that uses its counter", |how, h, x, w| {
        let last = how.fori(4, &vec![h.clone(), row(x, 0)], |i, c| {
            vec![(&c[0] + float(i, h) * row(w, 1)).sin(), &c[1] * &c[0]]
        });
        sum(&last)
    }),
    ("fewer steps than the bound", |how, h, x, _| {
        let last = how.fori_upto(&number(2), 5, &vec![h.clone()], |i, c| {
            vec![(&c[0] * row(x, 1)).tanh() + float(i, h)]
        });
        sum(&last)
    }),
    ("a loop in a loop", |how, h, x, w| {
        let (last, all) = how.scan(false, &vec![h.clone()], &vec![x.clone()], |c, x| {
            let inner = how.fori(3, &vec![c[0].clone()], |i, d| {
                vec![(&d[0] * row(w, 0) + &x[0]).sin() + float(i, h) * &c[0]]
            });
            (inner.clone(), vec![&inner[0] * &x[0]])
        });
        sum(&[last, all].concat())
    }),
    ("a branch in a loop", |how, h, x, w| {
        let (last, all) = how.scan(false, &vec![h.clone()], &vec![x.clone()], |c, x| {
            let positive = c[0].sum().gt(Tensor::constant(0.0f64));
            let next = how.cond(
                &positive,
                || vec![(&c[0] * &x[0]).sin() - row(w, 0)],
                || vec![c[0].exp() * row(w, 1)],
            );
            (next, vec![c[0].sum() * &x[0]])
        });
        sum(&[last, all].concat())
    }),
    ("a loop in a branch", |how, h, x, w| {
        let both = [true, false].map(|p| {
            let p = h.sum().gt(Tensor::constant(if p { -100.0f64 } else { 100.0 }));
            sum(&how.cond(
                &p,
                || how.fori(3, &vec![h.clone()], |_, c| vec![(&c[0] * row(w, 2)).sin()]),
                || vec![row(x, 1) * h],
            ))
        });
        &both[0] + &both[1]
    }),
    ("one way after another by the counter", |how, h, x, w| {
        let last = how.fori(5, &vec![h.clone()], |i, c| {
            how.switch(
                i,
                vec![
                    Box::new(|| vec![c[0].sin()]),
                    Box::new(|| vec![&c[0] * row(x, 2)]),
                    Box::new(|| vec![c[0].clone()]),
                    Box::new(|| vec![row(w, 0)]),
                    Box::new(|| vec![(&c[0] + row(w, 1)).tanh()]),
                ],
            )
        });
        sum(&last)
    }),
    ("until a condition fails", |how, h, x, _| {
        let last = how.while_at_most(
            9,
            &vec![h.clone(), row(x, 0)],
            |c| (&c[0] * &c[0]).sum().lt(Tensor::constant(30.0f64)),
            |c| vec![&c[0] * 1.5 + row(x, 1) * &c[1], c[1].sin() + &c[0]],
        );
        sum(&last)
    }),
    ("until a condition fails, from checkpoints", |how, h, x, w| {
        let last = how.while_checkpointed(
            2,
            9,
            &vec![h.clone(), row(x, 0)],
            |c| (&c[0] * &c[0]).sum().lt(Tensor::constant(60.0f64)),
            |c| vec![&c[0] * 1.25 + row(x, 1) * &c[1], c[1].sin() + row(w, 0)],
        );
        sum(&last)
    }),
    ("a scan from checkpoints", |how, h, x, w| {
        let init = (h.clone(), row(w, 2));
        let step = |c: &(Tensor, Tensor), x: &Tensor| {
            let next = (&c.0 * row(w, 1) + x).tanh();
            let y = &next * &c.1;
            ((next, (&c.1 + x).sin()), y)
        };
        let (last, all) = match how {
            Kept | Several => control::scan_checkpointed(2, &init, x, step),
            Unrolled => {
                let (c, y) = how.scan(false, &vec![init.0, init.1], &vec![x.clone()], |c, x| {
                    let (c, y) = step(&(c[0].clone(), c[1].clone()), &x[0]);
                    (vec![c.0, c.1], vec![y])
                });
                ((c[0].clone(), c[1].clone()), y[0].clone())
            }
        };
        sum(&vec![last.0, last.1, all])
    }),
    ("until the bound", |how, h, x, _| {
        let always = |c: &Values| c[0].sum().gt(Tensor::constant(-1000.0f64));
        sum(&how.while_at_most(3, &vec![h.clone()], always, |c| vec![(&c[0] * row(x, 3)).sin()]))
    }),
    ("a condition's loop in a loop", |how, h, x, w| {
        let (last, _) = how.scan(false, &vec![h.clone()], &vec![x.clone()], |c, x| {
            let inner = how.while_at_most(
                4,
                &vec![&c[0] + &x[0]],
                |d| d[0].sum().abs().lt(Tensor::constant(3.0f64)),
                |d| vec![&d[0] * 1.25 + row(w, 0) * &c[0]],
            );
            (vec![inner[0].tanh()], vec![])
        });
        sum(&last)
    }),
];

const H: [usize; 1] = [3];

fn types() -> Vec<TensorType> {
    [&H[..], &[4, 3], &[3, 3]]
        .iter()
        .map(|s| TensorType::new(DType::F64, s.iter().copied()))
        .collect()
}

fn dot(a: &[Tensor], b: &[Tensor]) -> Tensor {
    let mut terms = a.iter().zip(b).map(|(a, b)| (a * b).sum());
    let first = terms.next().unwrap();
    terms.fold(first, |a, b| a + b)
}

/// Value, gradient, tangent, the gradient of ⟨∇f, t⟩, and the tangent of ∇f.
fn derivatives(how: How, program: Program) -> Function {
    let f = move |v: &Values| program(how, &v[0], &v[1], &v[2]);
    build(&[types(), types()].concat(), |v| {
        let (x, t) = (v[..3].to_vec(), v[3..].to_vec());
        let (value, gradient) = value_and_grad(&x, f);
        let (_, along) = jvp(&x, &t, f);
        let reverse_on_reverse = grad(&x, |x| dot(&grad(x, f), &t));
        let (_, forward_on_reverse) = jvp(&x, &t, |x| grad(x, f));
        let reverse_on_forward = grad(&x, |x| jvp(x, &t, f).1);
        [vec![value, along], gradient, reverse_on_reverse, forward_on_reverse, reverse_on_forward]
            .concat()
    })
}

fn inputs(seed: u64) -> Vec<Literal> {
    let mut random = Random(seed);
    [types(), types()].concat().iter().map(|ty| random.literal(ty)).collect()
}

#[test]
fn every_construct_has_the_derivatives_of_what_it_stands_for() {
    for (name, program) in PROGRAMS {
        let [kept, several, unrolled] =
            [Kept, Several, Unrolled].map(|how| derivatives(how, *program));
        assert!(kept.body.equations.iter().any(|e| e.op.control().is_some()), "{name}");
        for seed in [3, 0x5eed] {
            let x = inputs(seed);
            let wanted = flat(&run(&unrolled, &x));
            assert_close(&flat(&run(&kept, &x)), &wanted, 1e-12, name);
            assert_close(&flat(&run(&several, &x)), &wanted, 1e-12, name);
        }
    }
}

#[test]
fn finite_differences_agree() {
    for (name, program) in PROGRAMS {
        let f = build(&types(), |v| vec![program(Kept, &v[0], &v[1], &v[2])]);
        let both = derivatives(Kept, *program);
        let x = inputs(7);
        let along = flat(&run(&both, &x))[1];
        assert_derivative(&[along], &f, &x[..3], &x[3..], 1e-7, name);
    }
}

/// The number of equations of a body, including its regions.
fn size(body: &Body) -> usize {
    body.equations.iter().map(|e| 1 + e.regions.iter().map(|r| size(r)).sum::<usize>()).sum()
}

#[test]
fn the_graph_of_a_loop_does_not_grow_with_its_steps() {
    let at = |steps: usize| {
        let ty = |shape: &[usize]| TensorType::new(DType::F64, shape.iter().copied());
        build(&[ty(&[3]), ty(&[steps, 3])], |v| {
            let f = |v: &Values| control::fold(&v[0], &v[1], |c, x| (c * x).sin()).sum();
            grad(&v.to_vec(), f)
        })
    };
    assert_eq!(size(&at(10).body), size(&at(100_000).body));
}

/// The loops of a function in order, each with the dtypes and shapes of its stacks.
fn stacks(function: &Function) -> Vec<Vec<String>> {
    let body = &function.body;
    let of = |e: &Equation| match &e.op {
        Op::Scan(op) => {
            Some(e.results[op.carries..].iter().map(|v| body.ty(*v).to_string()).collect())
        }
        _ => None,
    };
    body.equations.iter().filter_map(of).collect()
}

#[test]
fn the_tape_holds_what_the_transposed_step_reads_and_nothing_else() {
    let ty = |shape: &[usize]| TensorType::new(DType::F64, shape.iter().copied());
    let function = build(&[ty(&[3]), ty(&[7, 3]), ty(&[3])], |v| {
        grad(&v.to_vec(), |v: &Values| {
            // exp(k) is loop-invariant, so it is computed once and not stacked.
            control::fold(&v[0], &v[1], |c, x| (c * v[2].exp() + x).sin()).sum()
        })
    });
    // The stacks are the cosine of the sum, and the carry, which d/dk needs. x is an input, so its
    // slices are not stacked.
    assert_eq!(stacks(&function), [vec!["f64[7,3]", "f64[7,3]"], vec!["f64[7,3]"]], "{}", function);
    let step =
        &function.body.equations.iter().find(|e| matches!(e.op, Op::Scan(_))).unwrap().regions[0];
    assert!(step.equations.iter().all(|e| e.op.name() != "exp"), "{}", function);
}

#[test]
fn the_gradient_of_a_captured_matrix_is_one_product_behind_the_loop() {
    let ty = |shape: &[usize]| TensorType::new(DType::F64, shape.iter().copied());
    let types = [ty(&[2, 3]), ty(&[7, 2, 3]), ty(&[3, 3])];
    // A step uses the matrix twice.
    let loss = |how: How, v: &Values| {
        let (last, _) = how.scan(false, &vec![v[0].clone()], &vec![v[1].clone()], |h, x| {
            let h = (h[0].dot(&v[2]).sin().dot(&v[2]) + &x[0]).tanh();
            (vec![h], vec![])
        });
        last[0].square().sum()
    };
    let function = build(&types, |v| grad(&v.to_vec(), |v: &Values| loss(Kept, v)));
    let scans: Vec<_> =
        function.body.equations.iter().filter(|e| matches!(e.op, Op::Scan(_))).collect();
    let Op::Scan(backwards) = &scans[1].op else { unreachable!("both are scans") };
    // The backward loop carries the state's cotangent. Its only products are the two that compute
    // that cotangent.
    let count =
        |body: &Body| body.equations.iter().filter(|e| matches!(e.op, Op::DotGeneral(_))).count();
    assert_eq!(
        (scans.len(), backwards.carries, count(&scans[1].regions[0])),
        (2, 1, 2),
        "{function}"
    );
    // After the loop there is one product for each use, over steps and rows.
    let over_steps = |e: &Equation| matches!(&e.op, Op::DotGeneral(op) if op.contract.0.len() == 2);
    assert_eq!(function.body.equations.iter().filter(|e| over_steps(e)).count(), 2, "{function}");
    let unrolled = build(&types, |v| grad(&v.to_vec(), |v: &Values| loss(Unrolled, v)));
    let mut random = Random(0x5eed);
    let inputs: Vec<Literal> = types.iter().map(|ty| random.literal(ty)).collect();
    assert_close(
        &flat(&run(&function, &inputs)),
        &flat(&run(&unrolled, &inputs)),
        1e-12,
        "gradient",
    );

    // If the number of steps is only known at run time, the gradient's sum is carried. So steps
    // that are not taken cost nothing.
    let counted = build(&[ty(&[2, 3]), ty(&[3, 3]), TensorType::scalar(DType::I32)], |v| {
        let step =
            |w: &Tensor| control::fori_upto(&v[2], 7usize, &v[0], |_, h| h.dot(w).tanh()).sum();
        vec![grad(&v[1], step)]
    });
    let mut scans = counted
        .body
        .equations
        .iter()
        .filter_map(|e| if let Op::Scan(op) = &e.op { Some(op) } else { None });
    assert_eq!(scans.next_back().map(|op| op.carries), Some(2), "{counted}");
}

#[test]
fn a_linear_loop_with_a_counter_is_transposed() {
    // y = Σₜ (t + 1)·xₜ as a loop that carries a counter beside the sum.
    let ty = |shape: &[usize]| TensorType::new(DType::F64, shape.iter().copied());
    let function = build(&[ty(&[4, 2]), ty(&[2])], |v| {
        let f = |x: &Tensor| {
            let one = Tensor::constant(1.0f64);
            let zero = Tensor::zeros(&ty(&[2]));
            let step = |c: &(Tensor, Tensor), x: &Tensor| {
                let n = c.0.broadcast_in_dim(x.shape().to_vec(), &[]);
                ((&c.0 + 1.0, &c.1 + n * x), Vec::<Tensor>::new())
            };
            control::scan(&(one, zero), x, step).0.1
        };
        vec![transpose(&v[0], f)(&v[1])]
    });
    let x = Literal::from_vec(&[4, 2], vec![0.5f64; 8]).unwrap();
    let y = Literal::from_vec(&[2], vec![1.0f64, -2.0]).unwrap();
    let wanted = [1.0, -2.0, 2.0, -4.0, 3.0, -6.0, 4.0, -8.0];
    assert_close(&flat(&run(&function, &[x, y])), &wanted, 1e-15, "transpose");
}

fn error(types: &[TensorType], f: impl FnOnce(&[Tensor]) -> Tensor) -> String {
    let built = FunctionBuilder::build("f", |b| {
        let inputs: Values =
            types.iter().enumerate().map(|(i, ty)| b.input(&format!("x{i}"), ty.clone())).collect();
        let y = f(&inputs);
        b.output("y", y);
    });
    built.unwrap_err().to_string()
}

#[test]
fn reverse_mode_through_an_unbounded_loop_names_the_ways_out() {
    let ty = TensorType::scalar(DType::F64);
    let text = error(&[ty], |v| {
        let f =
            |x: &Tensor| control::while_loop(x, |c| c.lt(Tensor::constant(10.0f64)), |c| c * 2.0);
        vjp(&v[0], f).1(&Tensor::constant(1.0f64))
    });
    for part in ["without a bound", "while_at_most", "scan", "jvp", "control.rs:"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn mistakes_in_control_flow_say_what_and_where() {
    let ty = |shape: &[usize]| TensorType::new(DType::F32, shape.iter().copied());
    let grows = error(&[ty(&[2]), ty(&[5])], |v| {
        control::fold(&v[0], &v[1], |c, _| c.pad(&[(0, 1)], 0.0f32)).sum()
    });
    assert!(
        grows.contains("the carries have types (f32[2])") && grows.contains("control.rs:"),
        "{grows}"
    );
    let differs = error(&[ty(&[2])], |v| {
        let p = v[0].sum().gt(Tensor::constant(0.0f32));
        control::cond(&p, || v[0].clone(), || v[0].sum())
    });
    assert!(differs.contains("region 1 gives (f32[]), region 0 gives (f32[2])"), "{differs}");
    let scalar = error(&[ty(&[])], |v| control::map(&v[0], |x| x * 2.0));
    assert!(scalar.contains("has no first axis to slice along"), "{scalar}");
    let lengths =
        error(&[ty(&[2]), ty(&[3])], |v| control::map(&v.to_vec(), |x: &Values| &x[0] + &x[1]));
    assert!(
        lengths.contains("has 3 parts along its first axis, another tensor has 2"),
        "{lengths}"
    );
    let condition =
        error(&[ty(&[2])], |v| control::while_loop(&v[0], |c| c.lt(c.zeros_like()), |c| c * 2.0));
    assert!(condition.contains("it gives one bool[]"), "{condition}");
}

/// Doubles that count their sines and cosines.
mod counted {
    use std::cell::Cell;
    use std::cmp::Ordering;
    use wengert_core::interpret::Real;
    use wengert_core::{DType, Result};

    thread_local! {
        static COUNTS: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    }

    /// The number of sines and cosines that `f` evaluates.
    pub fn count<T>(f: impl FnOnce() -> T) -> (T, (usize, usize)) {
        COUNTS.set((0, 0));
        let result = f();
        (result, COUNTS.get())
    }

    #[derive(Clone, PartialEq, Debug)]
    pub struct Counted(pub f64);

    impl Real for Counted {
        const ROUNDS: bool = false;
        fn from_f64(value: f64) -> Self {
            Counted(value)
        }
        fn from_i64(value: i64) -> Self {
            Counted(value as f64)
        }
        fn to_f64(&self) -> f64 {
            self.0
        }
        fn round_to(&self, _dtype: DType) -> Self {
            self.clone()
        }
        fn add(&self, other: &Self) -> Self {
            Counted(self.0 + other.0)
        }
        fn sub(&self, other: &Self) -> Self {
            Counted(self.0 - other.0)
        }
        fn mul(&self, other: &Self) -> Self {
            Counted(self.0 * other.0)
        }
        fn div(&self, other: &Self) -> Result<Self> {
            Ok(Counted(self.0 / other.0))
        }
        fn neg(&self) -> Self {
            Counted(-self.0)
        }
        fn compare(&self, other: &Self) -> Option<Ordering> {
            self.0.partial_cmp(&other.0)
        }
        fn apply(&self, name: &str, f: impl Fn(f64) -> f64) -> Result<Self> {
            let (sines, cosines) = COUNTS.get();
            COUNTS.set((sines + usize::from(name == "sin"), cosines + usize::from(name == "cos")));
            Ok(Counted(f(self.0)))
        }
        fn apply2(&self, other: &Self, _name: &str, f: impl Fn(f64, f64) -> f64) -> Result<Self> {
            Ok(Counted(f(self.0, other.0)))
        }
        fn floor(&self) -> Self {
            Counted(self.0.floor())
        }
        fn is_zero(&self) -> bool {
            self.0 == 0.0
        }
        fn is_negative(&self) -> bool {
            self.0.is_sign_negative()
        }
    }
}

/// The gradient of a loop of x ← sin(k·x). The loop ends when its counter reaches an input.
fn sines(checkpoints: usize) -> Function {
    let types = [
        TensorType::scalar(DType::F64),
        TensorType::scalar(DType::F64),
        TensorType::scalar(DType::I32),
    ];
    build(&types, |v| {
        let f = |x: &Values| {
            let init = (Tensor::constant(0i32), x[0].clone());
            let goes_on = |c: &(Tensor, Tensor)| c.0.lt(&v[2]);
            let step = |c: &(Tensor, Tensor)| (&c.0 + 1i32, (&c.1 * &x[1]).sin());
            match checkpoints {
                0 => control::while_at_most(4096usize, &init, goes_on, step).1,
                s => control::while_checkpointed(s, &init, goes_on, step).1,
            }
        };
        grad(&v[..2].to_vec(), f)
    })
}

#[test]
fn checkpoints_cost_exactly_the_least_number_of_steps() {
    // (steps, checkpoints, recomputed steps): Griewank and Walther's t(l, s). The first carry
    // counts as one of the checkpoints.
    for (l, s, again) in
        [(10, 3, 15), (100, 10, 222), (1000, 10, 3636), (7, 1, 21), (1, 4, 0), (0, 2, 0), (5, 9, 4)]
    {
        let x = [Literal::from(0.7f64), Literal::from(1.9f64), Literal::from(l as i32)];
        let arrays: Vec<_> =
            x.iter().map(|l| wengert_core::interpret::Array::from_literal(l).unwrap()).collect();
        let checkpointed = sines(s);
        let (given, (sines_taken, cosines)) =
            counted::count(|| run_on::<counted::Counted>(&checkpointed, &arrays));
        // One forward run counts the steps. The second starts from checkpoints. Each step is
        // transposed once.
        assert_eq!((sines_taken - l, cosines), (again, l), "{l} steps, {s} checkpoints");
        let given: Vec<f64> = given.iter().map(|a| a.cells[0].real().0).collect();
        let taped = run(&sines(0), &x);
        assert_close(&given, &flat(&taped), 0.0, "the tape's gradient");
    }
}

#[test]
fn examples_take_their_own_ways_and_numbers_of_steps() {
    const B: usize = 3;
    for (name, program) in PROGRAMS {
        let gradient = |v: &Values| grad(v, |v: &Values| program(Kept, &v[0], &v[1], &v[2]));
        let one = build(&types(), gradient_of(gradient));
        let batched: Vec<TensorType> = types()
            .iter()
            .map(|ty| {
                ty.with_shape(std::iter::once(B.into()).chain(ty.shape.clone()).collect::<Vec<_>>())
            })
            .collect();
        let all = build(&batched, |v| vmap(&v.to_vec(), gradient));
        let mut random = Random(0xba7c);
        let examples: Vec<Vec<Literal>> =
            (0..B).map(|_| types().iter().map(|ty| random.literal(ty)).collect()).collect();
        let stacked: Vec<Literal> = (0..3)
            .map(|i| {
                let values: Vec<f64> = examples.iter().flat_map(|e| flat(&e[i..=i])).collect();
                let shape: Vec<usize> =
                    std::iter::once(B).chain(examples[0][i].shape().to_vec()).collect();
                Literal::from_vec(&shape, values).unwrap()
            })
            .collect();
        let together = run(&all, &stacked);
        for (e, example) in examples.iter().enumerate() {
            for (wanted, whole) in run(&one, example).iter().zip(&together) {
                let size = wanted.len();
                let given = flat(std::slice::from_ref(whole))[e * size..(e + 1) * size].to_vec();
                assert_close(&given, &flat(std::slice::from_ref(wanted)), 1e-12, name);
            }
        }
    }
}

fn gradient_of(f: impl Fn(&Values) -> Values) -> impl Fn(&[Tensor]) -> Vec<Tensor> {
    move |v| f(&v.to_vec())
}
