//! Mistakes with optimisers, groups, schedules, averages and accumulation.

use super::{building, says};
use wengert::optim::{Ema, Groups, Rate, accumulate, clip_by_value};
use wengert::prelude::*;

/// A function that updates `model.0` and `model.1` in one step.
macro_rules! updating {
    (|$f:ident, $model:ident, $gradient:ident| $body:block) => {
        building(|$f| {
            let vector = |n: usize| Tensor::variable(f32([n]), Initializer::Zeros);
            let $model = $f.state("model", (vector(2), vector(3)));
            let $gradient = grad(&$model, |(a, b): &(Tensor, Tensor)| a.sum() + b.sum());
            $body
        })
    };
}

#[test]
fn a_pattern_that_matches_nothing() {
    says(
        updating!(|f, model, gradient| {
            let groups = Groups::new().freeze("model.0").no_decay("*.bias"); //~ group
            AdamW::new(0.1).groups(groups).step(f, &model, &gradient); //~ here
        }),
        "
        @f: no variable of the model matches `*.bias`
          --> {group}: the group is given here
          --> {here}: updated here
          help: variables are `model.0`, `model.1`
        ",
    );
}

#[test]
fn a_text_that_is_no_pattern() {
    says(
        updating!(|f, model, gradient| {
            let groups = Groups::new().freeze("model.[0"); //~ group
            Lion::new(0.1).groups(groups).step(f, &model, &gradient); //~ here
        }),
        "
        @f: `model.[0` is no pattern of key paths: invalid range pattern
          --> {group}: the group is given here
          --> {here}: updated here
          help: a pattern is a path with *, ? and [abc], such as `model.head.*`
        ",
    );
}

#[test]
fn a_factor_that_is_negative() {
    says(
        updating!(|f, model, gradient| {
            let groups = Groups::new().scale_rate("model.0", -1.0); //~ group
            Sgd::new(0.1).groups(groups).step(f, &model, &gradient); //~ here
        }),
        "
        @f: a rate is multiplied by -1
          --> {group}: the group is given here
          --> {here}: updated here
          help: a factor is a number of at least 0; `freeze` keeps variables as they are
        ",
    );
}

#[test]
fn a_pattern_of_a_rest_that_matches_nothing() {
    says(
        updating!(|f, model, gradient| {
            let rest = AdamW::new(0.1).groups(Groups::new().no_decay("embedding.*")); //~ group
            Muon::new(0.1).rest(rest).step(f, &model, &gradient); //~ here
        }),
        "
        @f: no variable of the model matches `embedding.*`
          --> {group}: the group is given here
          --> {here}: updated here
          help: variables are `model.0`, `model.1`
        ",
    );
}

#[test]
fn all_variables_frozen() {
    says(
        updating!(|f, model, gradient| {
            let groups = Groups::new().freeze("model.*");
            RmsProp::new(0.1).groups(groups).step(f, &model, &gradient); //~ here
        }),
        "
        @f: all variables are frozen, so there is nothing to update
          --> {here}: updated here
          help: freeze fewer: `Groups::freeze`
        ",
    );
}

#[test]
fn numbers_out_of_range() {
    let cases: [(&str, &str, &dyn Fn() -> String); 7] = [
        ("β₁ is 1", "at least 0 and less than 1", &|| {
            updating!(|f, m, g| { Adam::new(0.1).betas(1.0, 0.9).step(f, &m, &g) })
        }),
        ("β₂ is -0.1", "at least 0 and less than 1", &|| {
            updating!(|f, m, g| { Lion::new(0.1).betas(0.9, -0.1).step(f, &m, &g) })
        }),
        ("α is NaN", "at least 0 and less than 1", &|| {
            updating!(|f, m, g| { RmsProp::new(0.1).alpha(f64::NAN).step(f, &m, &g) })
        }),
        ("the initial sum of squares is -1", "a number of at least 0", &|| {
            updating!(|f, m, g| { Adagrad::new(0.1).initial_sum(-1.0).step(f, &m, &g) })
        }),
        ("the threshold of clipping is 0", "a number of at least", &|| {
            updating!(|f, m, g| { Adafactor::new(0.1).clipping(0.0).step(f, &m, &g) })
        }),
        ("the bases of SOAP follow every 0 steps", "at least 1", &|| {
            updating!(|f, m, g| { Soap::new(0.1).interval(0).step(f, &m, &g) })
        }),
        ("β₂ is 2", "at least 0 and less than 1", &|| {
            updating!(|f, m, g| {
                Muon::new(0.1).rest(AdamW::new(0.1).betas(0.9, 2.0)).step(f, &m, &g)
            })
        }),
    ];
    for (message, help, made) in cases {
        let text = made();
        assert!(text.contains(message) && text.contains(help), "{text}");
        assert!(text.contains("optimisers.rs:") && text.contains("updated here"), "{text}");
    }
}

#[test]
fn schedules_that_make_no_sense() {
    says(
        updating!(|f, model, gradient| {
            let rate = Rate::cosine_restarts(0.1, 0.0, 0, 2); //~ rate
            Sgd::new(rate.warmup(3)).step(f, &model, &gradient);
        }),
        "
        @f: a cosine over 0 steps, and 2 times as many after it
          --> {rate}: the rate is given here
          help: both numbers are at least 1
        ",
    );
    for (rate, message) in [
        (Rate::one_cycle(0.1, 3, 0.3), "one cycle of 3 steps rises over 0.3 of them"),
        (Rate::one_cycle(0.1, 100, 1.0), "one cycle of 100 steps rises over 1 of them"),
        (Rate::step_decay(0.1, 0, 0.5), "multiplied by 0.5 after every 0 steps"),
        (Rate::exponential(0.1, 0.0), "multiplied by 0 after every 1 steps"),
    ] {
        let text = updating!(|f, model, gradient| {
            Sgd::new(rate.clone()).step(f, &model, &gradient);
        });
        assert!(text.contains(message) && text.contains("the rate is given here"), "{text}");
    }
}

#[test]
fn a_limit_that_is_negative() {
    says(
        updating!(|f, model, gradient| {
            let clipped = clip_by_value(&gradient, -1.0); //~ clip
            Sgd::new(0.1).step(f, &model, &clipped);
        }),
        "
        @f: a gradient is clipped to values of at most -1
          --> {clip}: clipped here
          help: give the greatest magnitude, a number of at least 0
        ",
    );
}

#[test]
fn averages_of_what_is_no_state() {
    says(
        building(|f| {
            let w = f.param("w", Tensor::variable(f32("3"), Initializer::Zeros));
            Ema::new(0.9).step(f, &(w.clone(), w)); //~ here
        }),
        "
        @f: `0` cannot be averaged: it is not state
          --> {here}: averaged here
          help: give `step` the model that `state` of the function returned
        ",
    );
    for (ema, message) in [
        (Ema::new(1.0), "weights are averaged with a decay of 1"),
        (Ema::new(f64::NAN), "weights are averaged with a decay of NaN"),
        (Ema::new(0.9).warmup(0.0), "the warm-up of an average has a power of 0"),
    ] {
        let text = building(|f| {
            let w = f.state("w", Tensor::variable(f32("3"), Initializer::Zeros));
            ema.step(f, &w);
        });
        assert!(text.contains(message) && text.contains("averaged here"), "{text}");
    }
}

#[test]
fn a_batch_that_cannot_be_divided() {
    says(
        building(|f| {
            let x = f.input("x", f32("10,3")); //~ x
            f.output("y", accumulate(4, &x, |x| x.sum())); //~ here
        }),
        "
        @f: a batch cannot be divided into 4 equal parts: it has type f32[10,3]
          --> {x}: the batch is made here
          --> {here}: the batch is divided here
          help: give the first axis an extent that is a multiple of 4: a number, or `4*B` with a \
            dimension variable B
        ",
    );
    let cases: [(&str, &dyn Fn() -> String); 5] = [
        ("`1` has type i32[B]", &|| {
            building(|f| {
                let batch = (f.input("x", f32("4*B")), f.input("y", i32("B")));
                f.output("y", accumulate(4, &batch, |(x, _)| x.sum()));
            })
        }),
        ("it has type f32[]", &|| {
            building(|f| {
                let x = f.input("x", f32(""));
                f.output("y", accumulate(4, &x, |x| x.sum()));
            })
        }),
        ("a batch is divided into 0 parts", &|| {
            building(|f| {
                let x = f.input("x", f32("4"));
                f.output("y", accumulate(0, &x, |x| x.sum()));
            })
        }),
        ("parts of a batch give a tensor of bool[], which has no sum", &|| {
            building(|f| {
                let x = f.input("x", f32("4"));
                f.output("y", accumulate(2, &x, |x| x.gt(0.0).all()));
            })
        }),
        ("matmul", &|| {
            building(|f| {
                let x = f.input("x", f32("4,3"));
                f.output("y", accumulate(2, &x, |x| x.matmul(x).sum()));
            })
        }),
    ];
    for (message, made) in cases {
        let text = made();
        assert!(text.contains(message) && text.contains("optimisers.rs:"), "{text}");
    }
}
