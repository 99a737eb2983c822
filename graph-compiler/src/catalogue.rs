//! `docs/passes.md`, made from the tables of passes and rules.

use crate::pipeline::{Keeps, PIPELINE, Pass, Step, passes};
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
    let name = |pass: &Pass| format!("`{}`", pass.name);
    for step in PIPELINE {
        match step {
            Step::Once(pass) => item(name(pass)),
            Step::Fixpoint(passes) => {
                let names: Vec<String> = passes.iter().map(name).collect();
                item(format!("{}, to a fixed point", names.join(", ")));
            }
        }
    }
    item("`epilogue`: absorbs elementwise consumers of a matrix product into its call".into());
    item("`fuse`: groups equations into kernels".into());
    item("`lower`: lowers kernels to nests".into());
    page.push_str(
        "\n## Passes over graphs\n\n| pass | what it does | results keep |\n|---|---|---|\n",
    );
    for pass in passes() {
        let keeps = match pass.keeps {
            Keeps::Bits => "every bit",
            Keeps::Value => "their value; roundings differ",
        };
        writeln!(page, "| `{}` | {} | {keeps} |", pass.name, pass.doc)
            .expect("writing to a string cannot fail");
    }
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
