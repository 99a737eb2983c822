//! Plans for ranks that are not here: the state of ZeRO against its formula.
#![allow(clippy::unwrap_used)] // Helpers outside of `#[test]` functions unwrap too.

use std::path::Path;
use wengert::core::graph::Function;
use wengert::models::{Gpt, GptSettings};
use wengert::operators::value_and_grad;
use wengert::optim::AdamW;
use wengert::prelude::*;
use wengert::ranks::{DataParallel, Sharding, Shards};
use wengert::scale::{Exchange, Machine, Request, State};
use wengert::target;

const RANKS: usize = 8;

/// A step of AdamW on one sequence for each of 8 ranks. Nothing has values.
fn step(settings: &GptSettings) -> Function {
    let mut program = Program::new();
    let built = program.function("step", |f| {
        let tokens = TensorType::new(DType::I32, [RANKS, settings.positions]);
        let (x, y) = (f.input("x", tokens.clone()), f.input("y", tokens));
        let model = f.state("model", Gpt::new(settings));
        let (loss, gradient) = value_and_grad(&model, |m| m.loss(&x, &y));
        AdamW::new(1e-3).step(f, &model, &gradient);
        f.output("loss", loss);
    });
    built.unwrap();
    program.get("step").unwrap().clone()
}

/// The state at each stage.
fn states(settings: &GptSettings) -> Vec<State> {
    let parallel = DataParallel::new(["x", "y"]).ranks(RANKS).microbatches(RANKS);
    let whole = parallel.apply(&step(settings)).unwrap();
    let stages = Sharding::ALL.iter().map(|sharding| {
        let stored = Shards::choose(&whole, *sharding, []).apply(&whole).unwrap();
        State::of(&whole, &stored, "data")
    });
    stages.collect()
}

/// For P parameters: 4P bytes of parameters, 8P of states and 4P of gradients.
fn check(settings: &GptSettings, parameters: usize) {
    assert_eq!(settings.parameters(), parameters);
    let (p, n) = (parameters as f64, RANKS as f64);
    let formula = [16.0 * p, 8.0 * p + 8.0 * p / n, 4.0 * p + 12.0 * p / n, 16.0 * p / n];
    for (stage, (state, wanted)) in states(settings).iter().zip(formula).enumerate() {
        let ratio = state.total() as f64 / wanted;
        assert!((ratio - 1.0).abs() < 0.02, "stage {stage}: {ratio}, {state:?}");
    }
}

#[test]
fn the_state_of_gpt2_124m_is_that_of_the_formula() {
    check(&GptSettings::SMALL, 124_439_808);
}

#[test]
fn the_state_of_gpt2_1558m_is_that_of_the_formula() {
    check(&GptSettings::XL, 1_557_611_200);
}

/// Sums that every stage has, and the plan of each, for a small network.
#[test]
fn a_plan_has_the_state_of_the_types() {
    let settings = GptSettings { vocabulary: 64, positions: 16, width: 64, heads: 4, layers: 2 };
    let function = step(&settings);
    let machine = Machine::read(Path::new("h200-nvl8")).unwrap();
    let mut totals = vec![];
    for sharding in Sharding::ALL {
        let request = Request {
            function: &function,
            examples: vec!["x".into(), "y".into()],
            data: RANKS,
            tensor: None,
            microbatches: RANKS,
            sharding,
            exchange: Exchange::Hierarchical,
            machine: &machine,
            target: target(&machine.target).unwrap(),
        };
        let found = request.predict().unwrap();
        let state = found.memory.state.unwrap();
        let account = &found.memory.account;
        assert_eq!(account.parameters + account.state, state.parameters + state.optimizer);
        assert_eq!((found.examples, found.tokens), (RANKS, Some(RANKS as u64 * 16)));
        assert!(found.memory.sums_at_peak <= account.peak.bytes);
        // A sum moves 2·7/8 of its bytes in a ring of 8, another collective 7/8.
        for transfers in &found.transfers {
            let share = if transfers.kind.name() == "psum" { 1.75 } else { 0.875 };
            let ratio = transfers.sent[0] / transfers.bytes;
            assert!((ratio - share).abs() < 1e-9, "{transfers:?}");
        }
        assert_eq!(found.step(false), found.computation() + found.transfer());
        assert!(found.step(true) < found.step(false) && found.efficiency(false) < 1.0);
        totals.push(state.total());
    }
    assert!(totals.windows(2).all(|pair| pair[0] > pair[1]), "{totals:?}");
}
