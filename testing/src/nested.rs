//! Programs with nested constructs, and with every kind of carry, slice, capture and result. The
//! tests of the compiler and of devices run them.

use wengert_core::build::FunctionBuilder;
use wengert_core::build::control::{
    cond, fold, fori, fori_upto, map, scan, scan_reverse, switch, while_at_most, while_loop,
};
use wengert_core::graph::Function;
use wengert_core::{DType, Literal, Tensor, TensorType};

/// A function and the inputs of its runs.
pub struct Case {
    /// The subject of the program.
    pub name: &'static str,
    /// The function. It has inputs only, and no variables.
    pub function: Function,
    /// The inputs of each run.
    pub runs: Vec<Vec<Literal>>,
}

/// All programs.
pub fn cases() -> Vec<Case> {
    vec![
        a_loop_in_a_loop_with_slices_and_stacks_of_both(),
        three_deep_with_a_branch_in_the_middle(),
        loops_in_the_ways_of_a_branch(),
        products_in_a_step(),
        carries_of_every_origin(),
        results_of_branches_of_every_origin(),
        counts_and_conditions(),
        what_is_sliced_is_a_reshape_or_sliced_twice_or_empty(),
        a_long_reduction_and_a_composite_in_a_step(),
        constants_of_regions(),
    ]
}

fn ty(dtype: DType, shape: &[usize]) -> TensorType {
    TensorType::new(dtype, shape.iter().copied())
}

fn f32s(shape: &[usize]) -> TensorType {
    ty(DType::F32, shape)
}

/// Numbers between −1 and 1, all different.
fn numbers(shape: &[usize]) -> Literal {
    let count: usize = shape.iter().product();
    let values = (0..count).map(|i| ((i * 37 + 11) % 101) as f32 / 50.5 - 1.0).collect::<Vec<_>>();
    Literal::from_vec(shape, values).expect("as many values as the shape says")
}

fn function(build: impl FnOnce(&mut FunctionBuilder)) -> Function {
    FunctionBuilder::build("f", build).expect("the program is valid")
}

fn nothing() -> Vec<Tensor> {
    vec![]
}

fn a_loop_in_a_loop_with_slices_and_stacks_of_both() -> Case {
    let f = function(|f| {
        let x = f.input("x", f32s(&[3, 4, 2]));
        let k = f.input("k", f32s(&[2]));
        let start = f.input("start", f32s(&[2]));
        let (last, all) = scan(&start, &x, |c, rows| {
            let (c, inner) = scan(c, rows, |c, row| ((c * &k + row).tanh(), c * row));
            (&c + 1.0, (inner, c))
        });
        f.output("last", last);
        f.output("inner", all.0);
        f.output("outer", all.1);
    });
    Case {
        name: "a_loop_in_a_loop_with_slices_and_stacks_of_both",
        function: f,
        runs: vec![vec![numbers(&[3, 4, 2]), numbers(&[2]), numbers(&[2])]],
    }
}

fn three_deep_with_a_branch_in_the_middle() -> Case {
    let f = function(|f| {
        let x = f.input("x", f32s(&[2, 3, 2, 5]));
        let k = f.input("k", f32s(&[5]));
        let start = f.input("start", f32s(&[5]));
        let (last, all) = scan(&start, &x, |c, x| {
            scan_reverse(c, x, |c, x| {
                let up = c.sum().gt(Tensor::constant(0.1f32));
                let c = cond(&up, || fold(c, x, |c, x| (c * x).sin() + &k), || c * 0.5 + &k);
                (c.clone(), c.sum())
            })
        });
        f.output("last", last);
        f.output("all", all);
    });
    Case {
        name: "three_deep_with_a_branch_in_the_middle",
        function: f,
        runs: vec![vec![numbers(&[2, 3, 2, 5]), numbers(&[5]), numbers(&[5])]],
    }
}

fn loops_in_the_ways_of_a_branch() -> Case {
    let f = function(|f| {
        let n = f.input("n", ty(DType::I32, &[]));
        let x = f.input("x", f32s(&[4, 3]));
        let ways: Vec<Box<dyn FnOnce() -> (Tensor, Tensor) + '_>> = vec![
            Box::new(|| scan(&Tensor::zeros(&f32s(&[3])), &x, |c, x| (c + x, c * x))),
            Box::new(|| (x.slice_axis(0, 0, 1).reshape([3usize]), x.clone())),
            Box::new(|| {
                let c = while_at_most(
                    5i64,
                    &x,
                    |c| c.sum().lt(Tensor::constant(20.0f32)),
                    |c| c * 2.0 + 1.0,
                );
                (c.slice_axis(0, 1, 2).reshape([3usize]), c)
            }),
        ];
        let (a, b) = switch(&n, ways);
        f.output("a", a);
        f.output("b", b);
    });
    let runs = [-1i32, 0, 1, 2, 9].map(|n| vec![Literal::from(n), numbers(&[4, 3])]).to_vec();
    Case { name: "loops_in_the_ways_of_a_branch", function: f, runs }
}

/// A cell like that of an LSTM: two products, four gates.
fn products_in_a_step() -> Case {
    let f = function(|f| {
        let x = f.input("x", f32s(&[5, 3, 4]));
        let w = f.input("w", f32s(&[4, 24]));
        let u = f.input("u", f32s(&[6, 24]));
        let b = f.input("b", f32s(&[24]));
        let state = (Tensor::zeros(&f32s(&[3, 6])), Tensor::zeros(&f32s(&[3, 6])));
        let ((h, c), all) = scan(&state, &x, |(h, c), x| {
            let gates =
                x.dot(&w) + h.dot(&u) + b.broadcast_in_dim(vec![3i64.into(), 24i64.into()], &[1]);
            let gate = |n: usize| gates.slice_axis(1, 6 * n, 6 * (n + 1));
            let c = gate(0).logistic() * c + gate(1).logistic() * gate(2).tanh();
            let h = gate(3).logistic() * c.tanh();
            ((h.clone(), c), h)
        });
        f.output("h", h);
        f.output("c", c);
        f.output("all", all);
    });
    Case {
        name: "products_in_a_step",
        function: f,
        runs: vec![vec![numbers(&[5, 3, 4]), numbers(&[4, 24]), numbers(&[6, 24]), numbers(&[24])]],
    }
}

fn carries_of_every_origin() -> Case {
    let f = function(|f| {
        let x = f.input("x", f32s(&[4]));
        let xs = f.input("xs", f32s(&[3, 4]));
        let made = x.sin();
        // The same buffer is the initial value of three carries, and every step reads it as well.
        // Two carries swap. One never changes. One becomes a slice, and one a capture. One is
        // empty.
        let empty = Tensor::zeros(&f32s(&[0, 2]));
        let init = (
            vec![made.clone(), made.clone(), x.clone(), x.clone(), made.clone(), x.clone(), empty],
            made.cos(),
        );
        let ((carries, dying), ys) = scan(&init, &xs, |(c, d), row| {
            let next = vec![
                c[1].clone(),
                &c[0] * &made,
                c[2].clone(),
                row.clone(),
                made.clone(),
                c[3].clone() + &c[4],
                c[6].clone(),
            ];
            (
                (next, d * row + d),
                vec![c[0].clone(), row.clone(), x.clone(), d * 2.0, d * 2.0, c[6].clone()],
            )
        });
        for (n, c) in carries.iter().chain([&dying]).enumerate() {
            f.output(&format!("c{n}"), c);
        }
        for (n, y) in ys.iter().enumerate() {
            f.output(&format!("y{n}"), y);
        }
        f.output("made", made);
    });
    Case {
        name: "carries_of_every_origin",
        function: f,
        runs: vec![vec![numbers(&[4]), numbers(&[3, 4])]],
    }
}

fn results_of_branches_of_every_origin() -> Case {
    let f = function(|f| {
        let p = f.input("p", ty(DType::Bool, &[]));
        let x = f.input("x", f32s(&[4]));
        let y = f.input("y", f32s(&[4]));
        let made = &x * &y;
        let out = cond(
            &p,
            || vec![x.clone(), x.clone(), made.sin(), Tensor::zeros(&f32s(&[0]))],
            || {
                let twice = &y + &made;
                vec![twice.clone(), twice, made.clone(), Tensor::zeros(&f32s(&[0]))]
            },
        );
        for (n, o) in out.iter().enumerate() {
            f.output(&format!("o{n}"), o);
        }
    });
    let runs = [true, false].map(|p| vec![Literal::from(p), numbers(&[4]), numbers(&[4])]).to_vec();
    Case { name: "results_of_branches_of_every_origin", function: f, runs }
}

fn counts_and_conditions() -> Case {
    let f = function(|f| {
        let n = f.input("n", ty(DType::I32, &[]));
        let x = f.input("x", f32s(&[3]));
        let counted = fori_upto(&n, 6i64, &x, |i, c| {
            c + i.convert(DType::F32).broadcast_in_dim(vec![3i64.into()], &[])
        });
        let fixed = fori(4i64, &x, |i, c| {
            c * i.convert(DType::F32).broadcast_in_dim(vec![3i64.into()], &[])
        });
        let none = fori(0i64, &x, |_, c| c * 7.0);
        let open = while_loop(
            &(n.clone(), x.clone()),
            |(n, _)| n.lt(Tensor::constant(5i32)),
            |(n, x)| (n + 1i32, x * 2.0),
        );
        // The condition is a carry, and the condition of another loop contains a loop.
        let flag = n.gt(Tensor::constant(0i32));
        let flagged = while_at_most(
            9i64,
            &(flag, x.clone()),
            |(p, _)| p.clone(),
            |(_, x)| (x.sum().lt(Tensor::constant(10.0f32)), x + 1.5),
        );
        let looped = while_at_most(
            4i64,
            &x,
            |c| fori(3i64, c, |_, c| c * 1.5).sum().lt(Tensor::constant(30.0f32)),
            |c| c + 2.0,
        );
        f.output("counted", counted);
        f.output("fixed", fixed);
        f.output("none", none);
        f.output("n", open.0);
        f.output("x", open.1);
        f.output("p", flagged.0);
        f.output("y", flagged.1);
        f.output("looped", looped);
    });
    let runs = [-2i32, 0, 1, 3, 6, 100].map(|n| vec![Literal::from(n), numbers(&[3])]).to_vec();
    Case { name: "counts_and_conditions", function: f, runs }
}

fn what_is_sliced_is_a_reshape_or_sliced_twice_or_empty() -> Case {
    let f = function(|f| {
        let x = f.input("x", f32s(&[12]));
        let rows = x.reshape([4usize, 3]);
        let parts = (&x * 2.0).reshape([4usize, 3]);
        let empty = Tensor::zeros(&f32s(&[4, 0]));
        let slices =
            vec![rows.clone(), rows, parts, x.reshape([4usize, 3, 1]).reshape([4usize, 3]), empty];
        let (sum, all) = scan(&Tensor::zeros(&f32s(&[3])), &slices, |c, x| {
            (c + &x[0] * &x[1] + &x[2], (x[3].clone() - c, x[4].clone()))
        });
        let flat = all.0.reshape([12usize]);
        f.output("sum", sum);
        f.output("flat", flat);
        f.output("empty", all.1);
    });
    Case {
        name: "what_is_sliced_is_a_reshape_or_sliced_twice_or_empty",
        function: f,
        runs: vec![vec![numbers(&[12])]],
    }
}

fn a_long_reduction_and_a_composite_in_a_step() -> Case {
    let f = function(|f| {
        let x = f.input("x", f32s(&[2, 300, 300]));
        let (last, all) = scan(&Tensor::zeros(&f32s(&[300])), &x, |c, x| {
            let soft = x.softmax(1);
            (c + soft.sum_axes(&[0]), x.sum() + soft.sum())
        });
        f.output("last", last);
        f.output("all", all);
        f.output("mapped", map(&x, |x| x.log_softmax(0).sum_axes(&[1])));
    });
    Case {
        name: "a_long_reduction_and_a_composite_in_a_step",
        function: f,
        runs: vec![vec![numbers(&[2, 300, 300])]],
    }
}

fn constants_of_regions() -> Case {
    let table = Literal::from_vec(&[3], vec![1.0f32, 2.0, 5.0]).expect("three");
    let f = function(|f| {
        let x = f.input("x", f32s(&[4, 3]));
        let (a, _) = scan(&Tensor::constant(table.clone()), &x, |c, x| {
            let p = c.sum().gt(Tensor::constant(0.0f32));
            let c = cond(
                &p,
                || c * &Tensor::constant(table.clone()),
                || Tensor::constant(table.clone()),
            );
            (&c + x, nothing())
        });
        f.output("a", a);
    });
    Case { name: "constants_of_regions", function: f, runs: vec![vec![numbers(&[4, 3])]] }
}
