//! The page `docs/onnx.md`, from the table of ops.

use crate::op::rows;
use crate::refusal::Class;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const INTRODUCTION: &str = "\
# ONNX

<!-- Generated: `cargo run -p wengert-onnx --example page > docs/onnx.md` -->

```sh
graphrun import model.onnx -o model.graph
graphrun run model.graph@predict --input x=@x.npy
```

`run`, `inspect`, `check` and every other command that takes a `.graph` file take an `.onnx` file,
too. In Rust it is `wengert::onnx::read`, which gives a `GraphFile`: its program can be
differentiated, planned within a budget, certified and trained like any other.

## Limits

- Op sets 7 to 28 of ONNX itself. Op sets of other domains are imported where the table has their
  ops.
- Integers of 16 and of 4 bits, strings, complex numbers, and 8-bit floats without infinities
  (`fnuz`) are refused.
- Shapes are known at import, as numbers or as polynomials of dimension variables. An op whose
  result has a shape that depends on data (`NonZero`, `Unique`, `NonMaxSuppression`) is refused.
- What an op needs as a number, such as axes, has to be computable at import: from constants and
  shapes. `--bind-input NAME=@FILE.npy` fixes an input that holds such numbers.
- Integers of attributes, axes and extents lie within ±2^31, and a table that an op lists at import,
  such as the positions of a resize, has at most 2^24 elements.
- A `Loop` has a number of steps that is known, and is unrolled. `Scan` is a loop of the graph.
- Dropout is the identity. Random numbers are refused: each runtime has its own.
- A program is not exported.

## What becomes of a model

| part of the model | part of the program |
|---|---|
| graph | function `predict`, or `--function NAME` |
| input | input; what no name may have becomes `_` |
| symbolic extent | dimension variable |
| initializer of several floats | parameter, with its value in the file |
| other initializer, `Constant` | constant, folded at import |
| node | equations, whose location is the node's number in the file |
| local function | its nodes, in the place of each call |
| `If`, `Scan` | branch, loop |
| values in other files | read from the model's folder, never from outside |

A wrong model is an error that names the graph, the node, its op and version. What is not imported
is refused with one of these classes:

";

/// The text of the page.
pub fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str("| class | mend |\n|---|---|\n");
    for class in Class::ALL {
        let _ = writeln!(page, "| {class} | {} |", class.help());
    }
    let mut ops: BTreeMap<(&str, &str), Vec<i64>> = BTreeMap::new();
    for row in rows() {
        ops.entry((row.domain, row.name)).or_default().push(row.since);
    }
    let _ = write!(
        page,
        "\n## Ops\n\n{} ops. A rule holds from its version on, until that of the next one.\n\n\
         | op | rules from version |\n|---|---|\n",
        ops.len()
    );
    for ((domain, name), mut versions) in ops {
        versions.sort_unstable();
        let versions: Vec<String> = versions.iter().map(ToString::to_string).collect();
        let separator = if domain.is_empty() { "" } else { "::" };
        let _ = writeln!(page, "| {domain}{separator}{name} | {} |", versions.join(", "));
    }
    page
}
