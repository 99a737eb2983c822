//! The walk computes what the interpreter computes.

use wengert::core::interpret;
use wengert::core::{Literal, TensorType};
use wengert::isolate::walk::{Flow, Visit, walk};
use wengert_testing::{Random, functions};

#[test]
fn a_walk_gives_the_bits_of_the_interpreter() {
    let samples = functions::samples();
    let (mut compared, mut inside) = (0, 0);
    for seed in 0..80 {
        let Ok(function) = functions::function(seed, 12, &samples) else { continue };
        let mut random = Random(seed);
        let types = (0..function.inputs.len()).map(|n| function.input_type(n).clone());
        let types: Vec<TensorType> = types.collect();
        let inputs = types.iter().map(|ty| functions::literal(&mut random, ty, false));
        let inputs: Vec<Literal> = inputs.collect();
        let Ok(expected) = interpret::run(&function, &inputs) else { continue };
        let mut visitor = |visit: Visit<'_>| {
            inside += usize::from(!visit.frames.is_empty());
            Flow::Continue(())
        };
        let found = walk(&function, &inputs, &mut visitor).unwrap().unwrap();
        let bits = |all: &[Literal]| all.iter().map(Literal::to_bytes).collect::<Vec<_>>();
        assert_eq!(bits(&found), bits(&expected), "seed {seed}\n{function}");
        compared += 1;
    }
    assert!(compared > 40 && inside > 100, "{compared} functions, {inside} equations inside");
}

#[test]
fn a_walk_can_end_early_and_refuses_wrong_values() {
    let samples = functions::samples();
    let function = functions::function(3, 6, &samples).unwrap();
    let mut random = Random(3);
    let inputs: Vec<Literal> = (0..function.inputs.len())
        .map(|n| functions::literal(&mut random, function.input_type(n), false))
        .collect();
    let mut count = 0;
    let mut visitor = |_: Visit<'_>| {
        count += 1;
        Flow::Break(())
    };
    assert_eq!(walk(&function, &inputs, &mut visitor).unwrap(), None);
    assert_eq!(count, 1);
    let mut all = |_: Visit<'_>| Flow::Continue(());
    let error = walk(&function, &inputs[1..], &mut all).unwrap_err();
    assert!(error.message.contains("is"), "{error}");
}
