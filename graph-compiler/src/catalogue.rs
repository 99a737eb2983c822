//! `docs/passes.md`, made from the tables of passes and rules.

use crate::memory::Passes;
use crate::pipeline::{Keeps, PIPELINE, Pipeline, Step, passes};
use crate::rewrite::TOPICS;
use std::fmt::Write;

/// The page, in Markdown.
pub fn page() -> String {
    let mut page = String::from(
        "# Passes\n\n\
         <!-- Generated: `cargo run -p wengert-compiler --example passes > docs/passes.md` -->\n\n\
         These passes compile a bound function (without dimension variables) to a plan. The\n\
         passes over graphs fix the result, bit for bit. `fuse` and `lower` only choose where\n\
         and when it is computed. The verifier runs after every pass that makes a change. Each\n\
         change spends one unit of the pass's fuel, so a bisection over the fuel finds a\n\
         miscompiling change.\n\n\
         ## Order\n\n",
    );
    let mut number = 0;
    let mut item = |text: String| {
        number += 1;
        writeln!(page, "{number}. {text}").expect("writing to a string cannot fail");
    };
    let code = |name: &str| format!("`{name}`");
    for step in PIPELINE.graph {
        match step {
            Step::Once(pass) | Step::Trial(pass) => item(code(pass.name)),
            Step::Fixpoint(passes) => {
                let names: Vec<String> = passes.iter().map(|pass| code(pass.name)).collect();
                item(format!("{}, to a fixed point", names.join(", ")));
            }
        }
    }
    let Pipeline { kernels, memory: Passes { order, layout }, .. } = &PIPELINE;
    kernels.iter().for_each(|pass| item(code(pass.name)));
    order.iter().for_each(|pass| item(code(pass.name)));
    layout.iter().for_each(|pass| item(code(pass.name)));
    let title =
        "\n## Passes over graphs\n\n| pass | what it does | results keep |\n|---|---|---|\n";
    page.push_str(title);
    for pass in passes() {
        let keeps = match pass.keeps {
            Keeps::Bits => "every bit",
            Keeps::Value => "their value; roundings differ",
        };
        writeln!(page, "| `{}` | {} | {keeps} |", pass.name, pass.doc)
            .expect("writing to a string cannot fail");
    }
    page.push_str(
        "\n## Passes from a graph to a plan\n\n\
         All but `float8`, `outs` and `approximate` keep every bit. The first ones run for the\n\
         body of each region, then for that of the function. The last four run again for each\n\
         order of kernels that a memory budget makes planning try.\n\n\
         | pass | what it does |\n|---|---|\n",
    );
    let mut row = |name: &str, doc: &str| {
        writeln!(page, "| `{name}` | {doc} |").expect("writing to a string cannot fail");
    };
    kernels.iter().for_each(|pass| row(pass.name, pass.doc));
    order.iter().for_each(|pass| row(pass.name, pass.doc));
    layout.iter().for_each(|pass| row(pass.name, pass.doc));
    page.push_str(
        "\n## Rules of `simplify`\n\n\
         `simplify` tries the rules in this order at every equation. A rule preserves every\n\
         bit of every result, except the bits of NaNs. The examples of a rule, in\n\
         `graph-compiler/src/rewrite`, are its tests: both sides are evaluated on random and\n\
         special values.\n",
    );
    for topic in TOPICS {
        write!(page, "\n### {}\n\n| rule | what it does |\n|---|---|\n", topic.name)
            .expect("writing to a string cannot fail");
        for rule in topic.rules {
            let doc = rule.doc.replace('|', "\\|");
            writeln!(page, "| `{}` | {doc} |", rule.name).expect("writing to a string cannot fail");
        }
    }
    page
}
