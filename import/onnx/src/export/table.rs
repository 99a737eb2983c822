//! The table: one rule for each op, and the ops without one.

use super::graph::{Exporter, Value};
use super::walk::Call;
use super::{composite, control, elementwise, indexing, movement, product, reduction, window};
use wengert_core::Result;

/// How an op is exported.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The op's name in text.
    pub op: &'static str,
    /// The ops of ONNX that it becomes, and the cases that are refused.
    pub onnx: &'static str,
    pub(super) export: Export,
}

/// Emits the nodes of an equation, and returns its results.
pub(super) type Export = fn(&mut Exporter, &Call<'_>) -> Result<Vec<Value>>;

/// A row of the table.
pub(super) const fn rule(op: &'static str, onnx: &'static str, export: Export) -> Rule {
    Rule { op, onnx, export }
}

/// All rules, family by family.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    [
        elementwise::RULES,
        movement::RULES,
        reduction::RULES,
        indexing::RULES,
        product::RULES,
        window::RULES,
        composite::RULES,
        control::RULES,
    ]
    .into_iter()
    .flatten()
}

/// The ops that are not exported, with the reasons.
pub fn unexported() -> &'static [(&'static str, &'static str)] {
    UNEXPORTED
}

const UNEXPORTED: &[(&str, &str)] = &[
    ("popcnt", "ONNX counts no bits"),
    ("clz", "ONNX counts no bits"),
    ("erf_inv", "ONNX has no inverse of erf"),
    ("lgamma", "ONNX has no gamma function"),
    ("digamma", "ONNX has no gamma function"),
    ("polygamma", "ONNX has no gamma function"),
    ("nextafter", "ONNX does not read the bits of a float"),
    ("bitcast_convert_type", "ONNX has it from op set 26 on, and runtimes do not"),
    ("random_bits", "each runtime of ONNX has random numbers of its own"),
    ("reduce", "ONNX has no reduction by a function"),
    ("reduce_window_argmax", "ONNX numbers the positions of a window otherwise"),
    ("reduce_window_argmin", "ONNX numbers the positions of a window otherwise"),
    ("window_gather", "ONNX numbers the positions of a window otherwise"),
    ("window_scatter_add", "ONNX numbers the positions of a window otherwise"),
    ("psum", "ONNX has no ranks"),
    ("pmax", "ONNX has no ranks"),
    ("pmin", "ONNX has no ranks"),
    ("pvary", "ONNX has no ranks"),
    ("all_gather", "ONNX has no ranks"),
    ("psum_scatter", "ONNX has no ranks"),
    ("all_to_all", "ONNX has no ranks"),
    ("ppermute", "ONNX has no ranks"),
    ("axis_index", "ONNX has no ranks"),
];

/// Why an op has no rule.
pub(super) struct Refused {
    pub reason: String,
    pub help: &'static str,
}

/// The rule of an op.
pub(super) fn find(name: &str) -> std::result::Result<&'static Rule, Refused> {
    rules().find(|rule| rule.op == name).ok_or_else(|| {
        let reason = UNEXPORTED.iter().find(|(op, _)| *op == name).map_or_else(
            || "the table of docs/onnx.md does not have it".to_owned(),
            |(_, reason)| (*reason).to_owned(),
        );
        let help = match name {
            "random_bits" => "make the random numbers an input of the function",
            _ => "compute it before or after the model, or by other ops",
        };
        Refused { reason, help }
    })
}
