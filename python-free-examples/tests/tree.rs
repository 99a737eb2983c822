//! The stack machine against recursion over trees, and the network's accuracy on expressions larger
//! than those in training.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use python_free_examples::tree::{Evaluator, batch, forest, program};
use wengert::prelude::*;
use wengert::random::SplitMix64;

/// All numbers of a value, as outputs.
fn outputs(f: &mut FunctionBuilder, name: &str, value: &impl Differentiable) {
    for (path, tensor) in value.tensors() {
        f.output(&format!("{name}.{path}"), tensor);
    }
}

#[test]
fn one_graph_for_all_trees_has_the_gradients_of_recursion() {
    for (number, tree) in forest(6, 1..=9, 11).iter().enumerate() {
        let nodes = tree.postfix();
        let leaves: Vec<usize> = (0..nodes.len()).filter(|i| nodes[*i].0 == 0).collect();
        // Two positions more than there are nodes, and values between true and false.
        let length = nodes.len() + 2;
        let mut random = SplitMix64::new(number as u64);
        let values: Vec<f64> = (0..length).map(|_| random.unit_f64()).collect();
        let kinds: Vec<i32> = nodes.iter().map(|n| n.0).chain([5, 5]).collect();
        let kinds = Literal::from_vec(&[length], kinds).unwrap();
        let values = Literal::from_vec(&[length], values).unwrap();

        let mut program = Program::new();
        program
            .function("both", |f| {
                let values = f.input("values", f64([length]));
                let model = f.param("model", nn::with_dtype(&Evaluator::new(4), DType::F64));
                let loss = |logits: Tensor| logits.log_softmax(0).slice_axis(0, 1, 2).sum();
                let mut places = leaves.iter();
                let tree = tree.map(&mut |_| {
                    let place = *places.next().unwrap();
                    values.slice_axis(0, place, place + 1).sum()
                });
                let (value, (by_model, by_leaves)) =
                    value_and_grad(&(model.clone(), tree), |(model, tree)| loss(model.tree(tree)));
                f.output("recursion.value", value);
                outputs(f, "recursion.model", &by_model);
                // The gradient by a tree is a tree of the same shape.
                outputs(f, "recursion.leaf", &by_leaves);

                let kinds = Tensor::constant(kinds.clone());
                let (value, (by_model, by_leaves)) =
                    value_and_grad(&(model, values), |(model, values)| {
                        loss(model.postfix(&kinds, values))
                    });
                f.output("machine.value", value);
                outputs(f, "machine.model", &by_model);
                f.output("machine.leaves", by_leaves);
            })
            .unwrap();
        let mut session = Session::open(Device::Cpu).unwrap();
        session.initialize(&program, 5).unwrap();
        let found =
            session.compile(&program, "both", bind!()).unwrap().run(&[("values", values)]).unwrap();
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-13, "{tree}: {a} instead of {b}");
        let by_recursion = |start: &'static str| {
            found.iter().unwrap().filter(move |(name, _)| name.starts_with(start))
        };
        let mut compared = 0;
        for (name, value) in by_recursion("recursion.model").chain(by_recursion("recursion.value"))
        {
            let machine = found.get(&name.replace("recursion", "machine")).unwrap();
            machine.scalars().zip(value.scalars()).for_each(|(a, b)| near(a.to_f64(), b.to_f64()));
            compared += 1;
        }
        assert_eq!(compared, 12, "leaves, not, three pairs and what comes out; and the value");
        let by_leaves = found.get("machine.leaves").unwrap();
        assert_eq!(by_recursion("recursion.leaf").count(), leaves.len());
        for (place, (_, value)) in leaves.iter().zip(by_recursion("recursion.leaf")) {
            near(by_leaves.get(*place).to_f64(), value.get(0).to_f64());
            assert!(value.get(0).to_f64() != 0.0);
        }
        let others = (0..length).filter(|place| !leaves.contains(place));
        others.for_each(|place| near(by_leaves.get(place).to_f64(), 0.0));
    }
}

#[test]
fn it_learns_what_is_true() {
    let program = program(16).unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    session.initialize(&program, 1).unwrap();
    for i in 1..=160 {
        let data = batch(&forest(64, 1..=6, i)).unwrap();
        let length = data[0].1.shape()[1];
        let mut step =
            session.compile(&program, "train_step", bind!(B = 64, T = length as i64)).unwrap();
        step.run(&data).unwrap();
    }
    let trees = forest(400, 7..=12, 0);
    let [kinds, values, truth] = batch(&trees).unwrap();
    let length = kinds.1.shape()[1] as i64;
    let mut evaluate = session.compile(&program, "evaluate", bind!(B = 400, T = length)).unwrap();
    let found = evaluate.run(&[kinds, values]).unwrap();
    let found = found.get("probability").unwrap().scalars().map(|p| p.to_f64() > 0.5);
    let right = found
        .zip(truth.1.scalars())
        .filter(|(p, truth)| f64::from(u8::from(*p)) == truth.to_f64())
        .count();
    assert!(right >= 396, "{right} of 400");
}
