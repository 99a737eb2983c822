//! Groups of variables by patterns of their key paths.

use super::{NONE, begun, numbers};
use wengert::optim::{Groups, Rate};
use wengert::prelude::*;

type Model = ((Tensor, Tensor), Tensor);

fn variable(shape: &[usize]) -> Tensor {
    let ty = TensorType::new(DType::F32, shape.iter().copied());
    Tensor::variable(ty, Initializer::Normal { mean: 0.0, std: 1.0 })
}

/// A step on `model.0.0`, a matrix, `model.0.1` and `model.1`, vectors, all with a gradient of 1/2
/// plus a tenth of themselves.
fn program(step: impl FnOnce(&mut FunctionBuilder, &Model, &Model)) -> Program {
    let mut program = Program::new();
    program
        .function("step", |f| {
            let model = f.state("model", ((variable(&[3, 4]), variable(&[4])), variable(&[3])));
            let loss = |t: &Tensor| (t * 0.5 + t.square() * 0.05).sum();
            let gradient = grad(&model, |((a, b), c)| loss(a) + loss(b) + loss(c));
            step(f, &model, &gradient);
        })
        .unwrap();
    program
}

const PATHS: [&str; 3] = ["model.0.0", "model.0.1", "model.1"];

/// The variables after some steps.
fn after(program: &Program, steps: usize) -> Vec<Vec<f64>> {
    let mut session = begun(program);
    let mut step = session.compile(program, "step", bind!()).unwrap();
    (0..steps).for_each(|_| drop(step.run(&NONE).unwrap()));
    PATHS.map(|path| numbers(&mut session, path)).to_vec()
}

/// Each optimiser, with groups and a weight decay. `name` is that of its state.
macro_rules! for_each_optimiser {
    (|$name:ident, $optimiser:ident| $body:block) => {{
        macro_rules! one {
            ($n:expr, $made:expr) => {{
                let $name = $n;
                let $optimiser = |groups: Groups| $made.groups(groups);
                $body
            }};
        }
        one!("sgd", Sgd::new(0.1).momentum(0.9).weight_decay(0.1));
        one!("adam", Adam::new(0.1));
        one!("adamw", AdamW::new(0.1).weight_decay(0.1));
        one!("muon", Muon::new(0.1).rest(AdamW::new(0.1).named("muon")));
        one!("lion", Lion::new(0.1).weight_decay(0.1));
        one!("rmsprop", RmsProp::new(0.1).momentum(0.5).centered().weight_decay(0.1));
        one!("adagrad", Adagrad::new(0.1).weight_decay(0.1));
        one!("adafactor", Adafactor::new(0.1).weight_decay(0.1));
        one!("soap", Soap::new(0.1));
    }};
}

#[test]
fn frozen_variables_keep_every_bit_and_have_no_state() {
    for_each_optimiser!(|name, optimiser| {
        let step = |groups: Groups| {
            program(|f, model, gradient| optimiser(groups).step(f, model, gradient))
        };
        let frozen = step(Groups::new().freeze("model.0.*"));
        let function = frozen.get("step").unwrap();
        let states: Vec<&str> = function.inputs.iter().map(|i| i.name.as_str()).collect();
        assert!(states.iter().any(|path| path.starts_with(name)), "{name}: {states:?}");
        assert!(!states.iter().any(|path| path.starts_with(name) && path.contains("model.0")));
        let (begin, end) = (after(&frozen, 0), after(&frozen, 3));
        assert_eq!(begin[..2], end[..2], "{name}");
        assert_ne!(begin[2], end[2], "{name}");
        // The other variables are as without the group.
        assert_eq!(after(&step(Groups::new()), 3)[2], end[2], "{name}");
        // A rate of 0 keeps values, too, but has moments.
        let still = step(Groups::new().scale_rate("*.1", 0.0));
        assert_eq!(after(&still, 3)[1..], begin[1..], "{name}");
    });
}

#[test]
fn rates_are_multiplied_by_the_factors_of_all_patterns_that_match() {
    // Each is a power of two, so that the product is exact.
    let groups = Groups::new().scale_rate("model.*", 0.5).scale_rate("model.0.?", 4.0);
    let of = |rate: Rate, groups: Groups| {
        program(|f, model, gradient| Sgd::new(rate).groups(groups).step(f, model, gradient))
    };
    let rates = || [Rate::from(0.125), Rate::scheduled(|step| step * 0.125)];
    for (rate, [double, half]) in rates().into_iter().zip([
        [Rate::from(0.25), Rate::from(0.0625)],
        [Rate::scheduled(|step| step * 0.25), Rate::scheduled(|step| step * 0.0625)],
    ]) {
        let grouped = after(&of(rate, groups.clone()), 2);
        let [double, half] = [double, half].map(|rate| after(&of(rate, Groups::new()), 2));
        assert_eq!(grouped[..2], double[..2]);
        assert_eq!(grouped[2], half[2]);
        assert_ne!(double, half);
    }
}

#[test]
fn some_variables_do_not_decay() {
    let of = |optimiser: AdamW| {
        after(&program(|f, model, gradient| optimiser.step(f, model, gradient)), 3)
    };
    let adamw = || AdamW::new(0.1).weight_decay(0.5);
    let (all, none) = (of(adamw()), of(adamw().weight_decay(0.0)));
    let by_type = of(adamw().decay_where(|_, ty| ty.rank() > 1));
    let by_pattern = of(adamw().groups(Groups::new().no_decay("model.0.1").no_decay("model.1")));
    assert_eq!(by_type, by_pattern);
    assert_eq!((&by_type[0], &by_type[1..]), (&all[0], &none[1..]));
    assert!((0..3).all(|n| all[n] != none[n]));
    // Both conditions hold.
    let both =
        of(adamw().decay_where(|_, ty| ty.rank() == 1).groups(Groups::new().no_decay("model.1")));
    assert_eq!(both, [none[0].clone(), all[1].clone(), none[2].clone()]);
    // A decay that is a gradient.
    let of = |optimiser: Sgd| {
        after(&program(|f, model, gradient| optimiser.step(f, model, gradient)), 3)
    };
    let sgd = || Sgd::new(0.1).weight_decay(0.5);
    let grouped = of(sgd().groups(Groups::new().no_decay("model.0.*")));
    let (all, none) = (of(sgd()), of(sgd().weight_decay(0.0)));
    assert_eq!((&grouped[..2], &grouped[2]), (&none[..2], &all[2]));
}

/// Groups of Muon are for all variables, those of its rest for the variables that it leaves.
#[test]
fn groups_of_muon_and_its_rest() {
    let of = |muon: Muon| after(&program(|f, model, gradient| muon.step(f, model, gradient)), 2);
    let begin = of(Muon::new(0.0).rest(AdamW::new(0.0)));
    let free = of(Muon::new(0.1));
    let some = of(Muon::new(0.1).groups(Groups::new().freeze("model.0.*")));
    assert_eq!(some, [begin[0].clone(), begin[1].clone(), free[2].clone()]);
    let rest = AdamW::new(0.1).groups(Groups::new().freeze("model.0.*"));
    let some = of(Muon::new(0.1).rest(rest));
    assert_eq!(some, [free[0].clone(), begin[1].clone(), free[2].clone()]);
}
