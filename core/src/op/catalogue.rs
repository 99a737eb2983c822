//! The catalogue of ops: names, documentation and attributes, for lists and help.

use super::Derivative;
use super::attribute::AttributeStruct;

/// An entry of the catalogue of ops.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Name in text.
    pub name: &'static str,
    /// Documentation: the first line is the formula.
    pub doc: &'static str,
    /// Kind of the derivative rule.
    pub derivative: &'static str,
    /// The op in text, with example attributes.
    pub form: String,
    /// Names of the attributes.
    pub attributes: Vec<&'static str>,
}

impl Entry {
    /// The entry of an op with the attributes `A`, of a family if several ops share them.
    pub(super) fn of<A: AttributeStruct>(
        name: &'static str,
        doc: &'static str,
        rule: Derivative,
    ) -> Self {
        Entry::with(name, doc, rule, A::DOC, A::names())
    }

    /// [`of`](Self::of), compiled once for all ops.
    fn with(
        name: &'static str,
        doc: &'static str,
        rule: Derivative,
        form: &'static str,
        attributes: Vec<&'static str>,
    ) -> Self {
        let form = form.split('`').nth(1).unwrap_or_default();
        let arguments: Vec<&str> = form.split_whitespace().skip(1).collect();
        let form = [&[name], arguments.as_slice()].concat().join(" ");
        Entry { name, doc, derivative: rule.kind(), form, attributes }
    }
}
