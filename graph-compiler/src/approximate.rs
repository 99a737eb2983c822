//! The pass `approximate`: approximate instructions in nests, on targets that are asked for them.
//!
//! It runs behind all passes that make nests, so those that follow a product or convolution have
//! them as well. Halves are computed in f32 within a nest. Functions of f64, combiners of
//! reductions, and calls such as attention stay as they are.
//!
//! Interpreters and CPUs compute the exact functions, so the pass changes results on GPUs alone.

use crate::kernels::{Kernels, Work};
use wengert_core::nest::Nest;
use wengert_core::nest::approximate::approximated;
use wengert_core::{Target, Verified};

/// Puts approximate instructions in the place of exact ones, if the target uses them.
pub(crate) fn approximate(kernels: &mut Kernels, target: &Target) {
    if !target.approximations.are_used() {
        return;
    }
    for kernel in &mut kernels.kernels {
        match &mut kernel.work {
            Work::Nest(nest) => replace(nest),
            Work::Followed(followed) => replace(&mut followed.follower),
            // The regions of control flow have been through the passes.
            Work::Call(_) | Work::Control(_) => {}
        }
    }
}

fn replace(nest: &mut Verified<Nest>) {
    if let Some(changed) = approximated(nest) {
        *nest = Verified::new(changed)
            .expect("an approximate instruction takes the registers of the exact one of f32");
    }
}

#[cfg(test)]
mod tests {
    use crate::kernels::{Kernels, Work};
    use crate::pipeline::{Options, compile_kernels};
    use wengert_core::Target;
    use wengert_core::graph::parse_program;
    use wengert_core::target::Approximations;

    /// The kernels on a target with approximate instructions, unused and used.
    fn both(text: &str) -> [Kernels; 2] {
        let program = parse_program(text, "test.ir").unwrap_or_else(|e| panic!("{e}"));
        let gpu = Target { approximations: Approximations::Available, ..Target::cpu() };
        [gpu.clone(), gpu.with_approximate_functions()].map(|target| {
            let function = &program.functions()[0];
            let compiled = compile_kernels(function, &target, &Options::default());
            compiled.unwrap_or_else(|e| panic!("{e}")).kernels
        })
    }

    #[test]
    fn a_nest_has_them_on_request() {
        let [exact, approximate] = both(
            "func @f(%x: f32[2,3], %y: f64[2,3]) -> (a: f32[2,3], b: f64[2,3]) {
                %0: f32[2,3] = softmax %x {axis=1}
                %1: f64[2,3] = exp %y
                return %0, %1 }",
        );
        assert!(!exact.to_string().contains("approx_"), "{exact}");
        let text = approximate.to_string();
        for name in ["f32 = approx_exp", "f32 = approx_div", "f64 = exp"] {
            assert!(text.contains(name), "{text}");
        }
        // Nothing else has changed.
        assert_eq!(text.replace("approx_", ""), exact.to_string());
    }

    #[test]
    fn nests_that_follow_products_and_those_in_loops_have_them() {
        let [exact, approximate] = both(
            "func @f(%x: f32[8,8], %w: f32[8,8]) -> (y: f32[8,8]) {
                %0: f32[8,8] = scan %x, %w {captures=1, carries=1, length=3} region \
                    (%c: f32[8,8], %v: f32[8,8]) {
                  %3: f32[8,8] = dot_general %c, %v {contract=[[1],[0]]}
                  %4: f32[8,8] = tanh %3
                  return %4
                }
                %5: f32[8,8] = dot_general %0, %w {contract=[[1],[0]]}
                %6: f32[8,8] = logistic %5
                return %6 }",
        );
        assert!(!exact.to_string().contains("approx_"), "{exact}");
        assert!(approximate.to_string().contains("approx_tanh"), "{approximate}");
        let follows = |work: &Work| match work {
            Work::Followed(followed) => followed.follower.to_string().contains("approx_exp"),
            _ => false,
        };
        assert!(approximate.kernels.iter().any(|kernel| follows(&kernel.work)), "{approximate}");
    }
}
