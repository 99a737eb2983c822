//! `docs/passes.md`, made from the tables of passes and rules.

use crate::pipeline::{Keeps, PIPELINE, Pass, Step, passes};
use crate::rewrite::TOPICS;
use std::fmt::Write;

/// The page, in Markdown.
pub fn page() -> String {
    let mut page = String::from(
        "# Passes\n\n\
         <!-- Generated: `cargo run -p wengert-compiler --example passes > docs/passes.md` -->\n\n\
         What happens to a function between its binding (no dimension variables) and its plan. The passes over graphs fix what is\n\
         computed, bit for bit; `fuse` and `lower` decide where and when. The verifier runs after every pass. Each change that a\n\
         pass makes spends one unit of its fuel, by which a miscompilation is bisected.\n\n\
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
                item(format!("{}, until none changes anything", names.join(", ")));
            }
        }
    }
    item("`epilogue`: what follows a matrix product element by element becomes part of its call".into());
    item("`fuse`: equations become kernels".into());
    item("`lower`: kernels become nests".into());
    page.push_str("\n## Passes over graphs\n\n| pass | what it does | results keep |\n|---|---|---|\n");
    for pass in passes() {
        let keeps = match pass.keeps {
            Keeps::Bits => "every bit",
            Keeps::Value => "their value; roundings differ",
        };
        writeln!(page, "| `{}` | {} | {keeps} |", pass.name, pass.doc)
            .expect("writing to a string cannot fail");
    }
    page.push_str(
        "\n## Rules of `simplify`\n\nTried in this order at every equation. None changes a bit of any result, but those of NaNs. The examples of \
         a rule, in\n`graph-compiler/src/rewrite`, are its tests: both sides are evaluated on random and special values.\n",
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
