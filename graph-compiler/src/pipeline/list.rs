//! The list of all passes.

use super::graph::{GraphPass, Step};
use super::kernels::{self, KernelPass};
use crate::pass::{Keeps, Pass};
use crate::{approximate, calls, fuse, memory, pitches, rewrite};

/// All passes in their order.
pub(crate) struct Pipeline {
    /// Passes over graphs.
    pub graph: &'static [Step],
    /// Passes from a body to kernels.
    pub kernels: &'static [KernelPass],
    /// Passes over kernels, up to a plan.
    pub memory: memory::Passes,
}

/// Passes that make graphs smaller without changing a bit.
const CLEAN: &[GraphPass] = &[
    Pass {
        name: "simplify",
        doc: "Applies the rewrite rules, including constant folding.",
        keeps: Keeps::Bits,
        run: |function, context| Ok(rewrite::simplify(function, context.fuel)),
    },
    Pass {
        name: "cse",
        doc: "Eliminates common subexpressions, also across the boundaries of loops and branches.",
        keeps: Keeps::Bits,
        run: |function, context| Ok(rewrite::cse(function, context.fuel)),
    },
    Pass {
        name: "dce",
        doc: "Eliminates dead code, including unused operands and results of loops and branches.",
        keeps: Keeps::Bits,
        run: |function, context| Ok(rewrite::dce(function, context.fuel)),
    },
    Pass {
        name: "trim",
        doc: "Sinks captured scalar constants, iotas and broadcasts into loops and branches, moves \
              invariant carries out of loops, and inlines regions that run exactly once.",
        keeps: Keeps::Bits,
        run: |function, context| Ok(rewrite::trim(function, context.fuel)),
    },
    Pass {
        name: "hoist",
        doc: "Hoists loop-invariant equations out of loops.",
        keeps: Keeps::Bits,
        run: |function, context| Ok(rewrite::hoist(function, context.fuel)),
    },
];

/// All passes in their order.
pub(crate) static PIPELINE: Pipeline = Pipeline {
    graph: &[
        Step::Once(Pass {
            name: "inline",
            doc: "Replaces each `custom_vjp` by its forward half, so that `cse` can merge it with \
                  the copy that computes the residuals.",
            keeps: Keeps::Bits,
            run: |function, context| calls::inline_rules(function, context.fuel),
        }),
        Step::Fixpoint(CLEAN),
        Step::Once(Pass {
            name: "windows",
            doc: "Replaces an update of a small window of a large tensor by a scatter, which can \
                  leave the rest of the tensor in its place.",
            keeps: Keeps::Bits,
            run: |function, context| calls::windows(function, context.target, context.fuel),
        }),
        Step::Once(Pass {
            name: "steps",
            doc: "Turns rows that the steps of a loop take at its counter into slices of the loop, \
                  and computes indices of scatters that depend on the counter in front of it.",
            keeps: Keeps::Bits,
            run: |function, context| Ok(rewrite::steps(function, context.fuel)),
        }),
        Step::Once(Pass {
            name: "decompose",
            doc: "Replaces composites, and calls that the target does not claim, by their \
                  decompositions.",
            keeps: Keeps::Value,
            run: |function, context| calls::decompose(function, context.target, context.fuel),
        }),
        Step::Once(Pass {
            name: "accumulate",
            doc: "Fuses the sum of a tensor and a `scatter_add` onto zeros into a `scatter_add` \
                  onto that tensor.",
            keeps: Keeps::Value,
            run: |function, context| Ok(rewrite::accumulate(function, context.fuel)),
        }),
        Step::Once(Pass {
            name: "masks",
            doc: "Derives comparison masks from the result of a select, such as a ReLU, instead of \
                  from its operand. The operand need not be kept for the mask.",
            keeps: Keeps::Bits,
            run: |function, context| Ok(rewrite::masks(function, context.fuel)),
        }),
        Step::Once(Pass {
            name: "unstack",
            doc: "Rematerialises cheap values in the steps of a loop from the values that the \
                  steps read anyway, instead of loading them from a stack that an earlier loop \
                  stores.",
            keeps: Keeps::Bits,
            run: |function, context| Ok(rewrite::unstack(function, context.fuel)),
        }),
        Step::Fixpoint(CLEAN),
        Step::Once(Pass {
            name: "lay_out",
            doc: "Hoists the transposes of loop-invariant right-hand sides of products out of \
                  `scan` loops.",
            keeps: Keeps::Bits,
            run: |function, context| Ok(rewrite::lay_out(function, context.target, context.fuel)),
        }),
        Step::Once(Pass {
            name: "lay_out_float8",
            doc: "On targets that multiply 8-bit floats, transposes the operands of such products \
                  that do not lie along the sum.",
            keeps: Keeps::Bits,
            run: |function, context| {
                Ok(rewrite::lay_out_float8(function, context.target, context.fuel))
            },
        }),
        Step::Once(Pass {
            name: "round_once",
            doc: "Adds the bias and the residual of a product of halves in f32, the residual \
                  first, and rounds once.",
            keeps: Keeps::Value,
            run: |function, context| Ok(rewrite::round_once(function, context.fuel)),
        }),
        Step::Once(Pass {
            name: "round_chains",
            doc: "Keeps the values of elementwise ops on halves that only one other such op reads \
                  in f32, and rounds at the end of a chain.",
            keeps: Keeps::Value,
            run: |function, context| Ok(rewrite::round_chains(function, context.fuel)),
        }),
        Step::Once(Pass {
            name: "recompute",
            doc: "On targets short of memory, rematerialises large functions of one tensor, such \
                  as activations, for distant readers.",
            keeps: Keeps::Bits,
            run: |function, context| Ok(rewrite::recompute(function, context.target, context.fuel)),
        }),
        Step::Once(Pass {
            name: "split_reductions",
            doc: "Splits long reductions with few results into two stages, so that many processors \
                  take part.",
            keeps: Keeps::Value,
            run: |function, context| {
                Ok(rewrite::split_reductions(function, context.target, context.fuel))
            },
        }),
        Step::Once(Pass {
            name: "narrow",
            doc: "Divides concatenations and selections of many operands into trees, so that the \
                  parameters of kernels are few.",
            keeps: Keeps::Bits,
            run: |function, context| Ok(rewrite::narrow(function, context.fuel)),
        }),
        Step::Trial(Pass {
            name: "buckets",
            doc: "On several ranks, joins small collectives of one kind, such as the sums of small \
                  gradients. The function stays as it is if its plan takes less memory.",
            keeps: Keeps::Bits,
            run: |function, context| Ok(rewrite::buckets(function, context.fuel)),
        }),
    ],
    kernels: &[
        Pass {
            name: "float8",
            doc: "On targets that multiply 8-bit floats, replaces products of converted ones by \
                  products of the 8-bit floats and their scales.",
            keeps: Keeps::Value,
            run: |unit| {
                calls::float8(&mut unit.view, unit.shared.target);
                Ok(())
            },
        },
        Pass {
            name: "addends",
            doc: "Absorbs additions of a bias and a residual to a matrix product into its call.",
            keeps: Keeps::Bits,
            run: |unit| {
                if unit.shared.fuse && unit.shared.target.addends {
                    calls::addends(&mut unit.view, unit.shared.target);
                }
                Ok(())
            },
        },
        Pass {
            name: "outs",
            doc: "Gives the backward pass of attention its forward result in place of the sums of \
                  products with it.",
            keeps: Keeps::Value,
            run: |unit| {
                calls::outs(&mut unit.view, unit.shared.target);
                Ok(())
            },
        },
        Pass {
            name: "fuse",
            doc: "Groups equations into kernels.",
            keeps: Keeps::Bits,
            run: |unit| {
                unit.fused = fuse::fuse(&unit.view, unit.shared.target, unit.shared.fuse);
                Ok(())
            },
        },
        Pass {
            name: "regions",
            doc: "Runs the passes of this list for the regions of loops and branches.",
            keeps: Keeps::Bits,
            run: kernels::regions,
        },
        Pass {
            name: "lower",
            doc: "Lowers kernels to nests, and gives values in memory buffers.",
            keeps: Keeps::Bits,
            run: kernels::lower,
        },
        Pass {
            name: "follow",
            doc: "Gives a product a follower: a nest that runs on each tile of its result.",
            keeps: Keeps::Bits,
            run: |unit| {
                if unit.shared.fuse && unit.shared.target.followers {
                    calls::follow(&mut unit.kernels, unit.shared.target);
                }
                Ok(())
            },
        },
        Pass {
            name: "pad",
            doc: "Gives temporaries with long rows a pitch that aligns every row, on targets whose \
                  vector accesses and libraries of products need it.",
            keeps: Keeps::Bits,
            run: |unit| {
                if unit.shared.fuse && unit.shared.target.row_alignment > 1 {
                    pitches::pad(&mut unit.kernels, unit.shared.target.row_alignment as usize);
                }
                Ok(())
            },
        },
        Pass {
            name: "approximate",
            doc: "Replaces functions of f32 in nests by approximate instructions, on targets that \
                  have some and are asked for them.",
            keeps: Keeps::Value,
            run: |unit| {
                approximate::approximate(&mut unit.kernels, unit.shared.target);
                Ok(())
            },
        },
    ],
    memory: memory::Passes {
        order: &[
            Pass {
                name: "plan_regions",
                doc: "Plans the regions of loops and branches with this list and the next. The \
                      arena of a construct's regions is workspace of its kernel.",
                keeps: Keeps::Bits,
                run: memory::plan_regions,
            },
            Pass {
                name: "schedule",
                doc: "Orders the kernels to lower the peak of live bytes.",
                keeps: Keeps::Bits,
                run: memory::schedule,
            },
        ],
        layout: &[
            Pass {
                name: "homes",
                doc: "Gives inputs, constants, variables and outputs their memories. A kernel \
                      writes a result there directly if the old value is dead by then.",
                keeps: Keeps::Bits,
                run: memory::homes,
            },
            Pass {
                name: "moves",
                doc: "Adds a copy for each result that no kernel writes to its memory.",
                keeps: Keeps::Bits,
                run: memory::moves,
            },
            Pass {
                name: "slots",
                doc: "Computes results in place of operands that die. Buffers that follow one \
                      another in the same bytes form a slot.",
                keeps: Keeps::Bits,
                run: memory::slots,
            },
            Pass {
                name: "offsets",
                doc: "Assigns each slot an offset in the arena, with the method of \
                      `memory::assign`.",
                keeps: Keeps::Bits,
                run: memory::offsets,
            },
        ],
    },
};

/// The passes over graphs in the order of their first run, each once.
pub fn passes() -> Vec<&'static GraphPass> {
    let mut passes: Vec<&GraphPass> = Vec::new();
    for step in PIPELINE.graph {
        let more = match step {
            Step::Once(pass) | Step::Trial(pass) => std::slice::from_ref(pass),
            Step::Fixpoint(passes) => passes,
        };
        for pass in more {
            if !passes.iter().any(|p| p.name == pass.name) {
                passes.push(pass);
            }
        }
    }
    passes
}
