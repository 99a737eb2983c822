//! The catalogue as a document: `docs/ops.md` is the output of [`markdown`]. A test checks it.

use super::{Entry, catalogue};
use std::collections::BTreeSet;
use std::fmt::Write;
use wengert_core::op::COMPOSITES;
use wengert_core::{DType, TensorType};

/// The catalogue of ops as a Markdown document.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Ops\n\n\
         Generated from the catalogue (`Op::catalogue()`) by `WENGERT_BLESS=1 cargo nextest\n\
         run -p wengert-core docs`; do not edit.\n\n\
         Names follow `jax.lax` where it has the op. The operands of an elementwise op have\n\
         one shape (the methods of `Tensor` broadcast). Elementwise ops compute halves in f32\n\
         and round once. *Dtypes* are the dtypes of the first operand. The derivative of an op\n\
         is one rule: `zero`, `linear` (stated by its transpose), `multilinear`, `nonlinear`\n\
         (stated by its jvp), `linear in one` (both), `linear in the last` (the tangent is an\n\
         op: by decomposition, and stated by its transpose), `composite` (by decomposition),\n\
         `by decomposition` (of a decomposition that serves the derivative only), `by its\n\
         regions` or `by its function` (differentiates them), or `custom` (by regions or\n\
         functions that the user gives).\n\n\
         | op | meaning | attributes | dtypes | derivative |\n\
         |---|---|---|---|---|\n",
    );
    for entry in catalogue() {
        let meaning: Vec<&str> =
            entry.doc.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        let attributes: Vec<String> = attributes(&entry).iter().map(|a| format!("`{a}`")).collect();
        let row = [
            format!("`{}`", entry.name),
            meaning.join(" "),
            attributes.join(", "),
            dtypes(&entry),
            entry.derivative.to_string(),
        ]
        .map(|cell| cell.replace('|', "\\|"));
        writeln!(text, "| {} |", row.join(" | ")).expect("writing to a string cannot fail");
    }
    text += "\n## Composites\n\n\
             These functions are methods of a key, a `Tensor` of type `u32[2]`, and not ops.\n\
             Names follow `jax.random` where it has the function. A call emits the ops of the\n\
             last column, so graphs, their text and their files contain those ops. Derivatives\n\
             and batching are those of the ops.\n\n\
             | name | method | meaning | made of |\n\
             |---|---|---|---|\n";
    for composite in COMPOSITES {
        let ops: Vec<String> = composite.ops().iter().map(|op| format!("`{op}`")).collect();
        let (name, method, doc) = (composite.name, composite.method, composite.doc);
        writeln!(text, "| `{name}` | `{method}` | {doc} | {} |", ops.join(", "))
            .expect("writing to a string cannot fail");
    }
    text
}

/// Names of the attributes that occur in the samples.
fn attributes(entry: &Entry) -> BTreeSet<&'static str> {
    let samples = entry.samples.iter().map(|s| &s.op);
    let ops = samples.chain(entry.collectives.iter().map(|s| &s.op));
    ops.flat_map(|op| op.attributes().into_keys()).collect()
}

/// The dtypes that the op accepts for its first operand, if all operands of that dtype change
/// with it.
fn dtypes(entry: &Entry) -> String {
    let of_ranks = |dtype: DType| {
        let mut samples = entry.collectives.iter().filter(|sample| sample.shape.is_some());
        samples.any(|sample| sample.op.infer(&sample.operands(dtype), &[]).is_ok())
    };
    let on_a_rank = |dtype: DType| {
        entry.samples.iter().any(|sample| {
            let types: Vec<TensorType> =
                sample.literals(DType::F32, 0).iter().map(|l| l.ty()).collect();
            let Some(first) = types.first().map(|t| t.dtype) else { return false };
            let change =
                |t: &TensorType| if t.dtype == first { t.with_dtype(dtype) } else { t.clone() };
            sample.infer(&types.iter().map(change).collect::<Vec<_>>()).is_ok()
        })
    };
    let accepts = |dtype: &DType| on_a_rank(*dtype) || of_ranks(*dtype);
    let accepted: Vec<DType> = DType::ALL.into_iter().filter(accepts).collect();
    let set = |of: fn(DType) -> bool| DType::ALL.into_iter().filter(|d| of(*d)).collect::<Vec<_>>();
    let named: [(&str, Vec<DType>); 7] = [
        ("", vec![]),
        ("all", set(|_| true)),
        ("all but 8-bit floats", set(|d| !d.is_float8())),
        ("floats", set(DType::is_float)),
        ("integers", set(DType::is_integer)),
        ("integers, bool", set(|d| d.is_integer() || d == DType::Bool)),
        ("floats, integers", set(|d| d.is_float() || d.is_integer())),
    ];
    match named.iter().find(|(_, dtypes)| *dtypes == accepted) {
        Some((name, _)) => name.to_string(),
        None => accepted.iter().map(|d| d.name()).collect::<Vec<_>>().join(", "),
    }
}
