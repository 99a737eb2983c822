//! The operands and attributes of a node, as rules ask for them.

use super::sound;
use crate::budget::{ENTRY, NODE, UNITS};
use crate::import::{Around, Importer, Names};
use crate::model::{Attribute, Element, Graph, Node, element};
use crate::narrow::Narrow;
use crate::refusal::{Class, refuse};
use crate::value::Value;
use wengert_core::{DType, Diagnostic, Dim, Literal, Result, Tensor};

/// The largest integer that rules compute with, so that a product of two and a sum are exact. Only
/// the bounds of a slice may be larger, where they mean the end.
const LARGEST: i64 = 1 << 31;

/// The integers, none of which is beyond [`LARGEST`].
fn bounded(integers: Vec<i64>, what: &str) -> Result<Vec<i64>> {
    match integers.iter().find(|n| n.unsigned_abs() > LARGEST.unsigned_abs()) {
        Some(n) => Err(Diagnostic::new(format!("{what} has {n}, which is beyond ±2^31"))),
        None => Ok(integers),
    }
}

/// A node that is imported.
pub(crate) struct Call<'c, 'm, 'f> {
    importer: &'c Importer<'m, 'f>,
    node: &'c Node,
    /// The version of its domain.
    pub version: i64,
    inputs: Vec<Option<Value>>,
    /// The names that its graphs may use.
    names: &'c Names,
    around: Around<'c>,
}

impl<'c, 'm, 'f> Call<'c, 'm, 'f> {
    pub fn new(
        importer: &'c Importer<'m, 'f>,
        node: &'c Node,
        version: i64,
        inputs: Vec<Option<Value>>,
        names: &'c Names,
        around: Around<'c>,
    ) -> Self {
        Call { importer, node, version, inputs, names, around }
    }

    /// The outputs of a graph in an attribute, which may use the names around the node.
    pub fn body(&self, graph: &Graph, inputs: Vec<Value>) -> Result<Vec<Value>> {
        self.importer.body(graph, inputs, self.names, self.around)
    }

    /// As [`body`](Self::body), for a graph that becomes a region of a branch or loop.
    pub fn region(&self, graph: &Graph, inputs: Vec<Value>) -> Result<Vec<Value>> {
        self.importer.counted.inside(|| self.body(graph, inputs))
    }

    /// The number of elements of a table with these extents that is listed at import.
    ///
    /// # Errors
    /// They are too many, or an extent is negative.
    pub fn listed(&self, extents: &[i64]) -> Result<usize> {
        self.made(extents, 1)
    }

    /// The number of parts or steps, each of which becomes a node or more.
    ///
    /// # Errors
    /// They are too many, or negative.
    pub fn parts(&self, count: i64) -> Result<usize> {
        self.made(&[count], NODE)
    }

    /// The number of extents that are computed.
    ///
    /// # Errors
    /// They are too many.
    pub fn entries(&self, count: usize) -> Result<usize> {
        self.made(&[i64::try_from(count).unwrap_or(i64::MAX)], ENTRY)
    }

    fn made(&self, extents: &[i64], units: u64) -> Result<usize> {
        let product = extents.iter().try_fold(1u64, |all, extent| {
            all.checked_mul(u64::try_from(*extent).ok()?).filter(|all| *all <= UNITS)
        });
        let taken = product.ok_or_else(|| {
            Diagnostic::new(format!("a table of extents {extents:?} is made at import"))
                .help(format!("a table has at most {UNITS} elements"))
        })?;
        self.importer.budget.take(taken * units)?;
        Ok(usize::try_from(taken).expect("it is within the budget"))
    }

    /// Number of operands, absent ones at the end not counted.
    pub fn count(&self) -> usize {
        self.inputs.iter().rposition(Option::is_some).map_or(0, |last| last + 1)
    }

    /// Whether the node has its training form.
    pub fn trains(&self) -> bool {
        self.importer.training.is_on
    }

    /// An operand that is a running statistic.
    pub fn statistic(&self, n: usize) -> Result<Tensor> {
        match self.inputs.get(n).and_then(Option::as_ref) {
            Some(value) => self.importer.statistic(value),
            None => self.tensor(n),
        }
    }

    /// Replaces an operand that is a running statistic, in training.
    pub fn update_statistic(&self, n: usize, new: &Tensor) {
        if let Some(value) = self.inputs.get(n).and_then(Option::as_ref) {
            self.importer.update_statistic(value, new.clone());
        }
    }

    /// A key for a dropout.
    pub fn key(&self) -> Tensor {
        self.importer.key()
    }

    /// Number of results that the node names.
    pub fn results(&self) -> usize {
        self.node.outputs.len()
    }

    /// Whether the node names its result number `n`.
    pub fn wants(&self, n: usize) -> bool {
        self.node.outputs.get(n).is_some_and(Option::is_some)
    }

    /// Operand number `n`, if it is there.
    pub fn given(&self, n: usize) -> Option<&Value> {
        self.inputs.get(n).and_then(Option::as_ref)
    }

    /// Operand number `n`.
    pub fn value(&self, n: usize) -> Result<&Value> {
        self.given(n).ok_or_else(|| Diagnostic::new(format!("it has no operand {n}")))
    }

    /// Operand number `n` as a tensor.
    pub fn tensor(&self, n: usize) -> Result<Tensor> {
        let tensor = self.importer.tensor(self.value(n)?)?;
        match tensor.error() {
            Some(error) => Err(error.clone()),
            None => Ok(tensor),
        }
    }

    /// Operand number `n` as a tensor that may be the carrier of a dtype that programs lack.
    pub fn carried(&self, n: usize) -> Result<(Tensor, Option<Narrow>)> {
        match self.value(n)? {
            Value::Narrow(narrow, carrier) => Ok((sound(carrier)?.clone(), Some(*narrow))),
            _ => Ok((self.tensor(n)?, None)),
        }
    }

    /// An attribute that is the number of a dtype; `None` if it is 0 or not there.
    pub fn element(&self, name: &str) -> Result<Option<Element>> {
        match self.int(name, 0)? {
            0 => Ok(None),
            number => element(i32::try_from(number).unwrap_or(0)).map(Some),
        }
    }

    /// Operand number `n` as a tensor of at least `rank` axes.
    pub fn ranked(&self, n: usize, rank: usize) -> Result<Tensor> {
        let tensor = self.tensor(n)?;
        match tensor.rank() >= rank {
            true => Ok(tensor),
            false => Err(Diagnostic::new(format!(
                "operand {n} is {}, which has fewer than {rank} axes",
                tensor.ty()
            ))),
        }
    }

    /// Whether all operands are known at import.
    pub fn is_known(&self) -> bool {
        self.inputs.iter().flatten().all(Value::is_constant)
    }

    /// The most results that are kept as result `n`, whose number depends on data.
    pub fn most(&self, n: usize) -> Result<usize> {
        self.importer.counted.most(self.result(n))
    }

    /// Keeps the number of results of result `n`, an i64.
    pub fn count_of(&self, n: usize, number: Tensor) {
        self.importer.counted.count(self.result(n), number);
    }

    /// The name of a result.
    fn result(&self, n: usize) -> &str {
        self.node.outputs.get(n).and_then(Option::as_deref).unwrap_or_default()
    }

    /// A value of a sequence as a tensor.
    pub fn as_tensor(&self, value: &Value) -> Result<Tensor> {
        self.importer.tensor(value)
    }

    /// Operand number `n` as a tensor, if it is there.
    pub fn optional(&self, n: usize) -> Result<Option<Tensor>> {
        self.given(n).map(|_| self.tensor(n)).transpose()
    }

    /// All operands as tensors.
    pub fn tensors(&self) -> Result<Vec<Tensor>> {
        (0..self.count()).map(|n| self.tensor(n)).collect()
    }

    /// The integers of operand number `n`, which may depend on dimension variables.
    pub fn dims(&self, n: usize) -> Result<Vec<Dim>> {
        let dims = self.value(n)?.dims();
        Ok(dims.map_err(|e| e.context(format_args!("operand {n}")))?.values)
    }

    /// The numbers of operand number `n`, which must be known.
    pub fn known(&self, n: usize) -> Result<Literal> {
        self.value(n)?.known().map_err(|e| e.context(format_args!("operand {n}")))
    }

    /// The integers of operand number `n`, which must be known.
    pub fn ints(&self, n: usize) -> Result<Vec<i64>> {
        let integers = self.known(n)?.convert(DType::I64);
        let integers = integers.scalars().filter_map(|s| s.to_i64()).collect();
        bounded(integers, &format!("operand {n}"))
    }

    /// The only number of operand number `n`, which must be known, if it is there.
    pub fn number(&self, n: usize) -> Result<Option<f64>> {
        if self.given(n).is_none() {
            return Ok(None);
        }
        let literal = self.known(n)?;
        match literal.len() {
            1 => Ok(Some(literal.get(0).to_f64())),
            _ => Err(Diagnostic::new(format!("operand {n} is {}, not one number", literal.ty()))),
        }
    }

    /// An attribute.
    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        match self.node.attributes.get(name)? {
            Attribute::Of(outer) => self.around.attributes?.get(outer),
            attribute => Some(attribute),
        }
    }

    fn wrong<T>(&self, name: &str, attribute: &Attribute, wanted: &str) -> Result<T> {
        Err(Diagnostic::new(format!("attribute `{name}` is {}, not {wanted}", attribute.kind())))
    }

    /// An integer attribute, if it is there.
    pub fn some_int(&self, name: &str) -> Result<Option<i64>> {
        match self.attribute(name) {
            None => Ok(None),
            Some(Attribute::Int(value)) => {
                Ok(bounded(vec![*value], &format!("attribute `{name}`"))?.pop())
            }
            Some(other) => self.wrong(name, other, "an integer"),
        }
    }

    /// An integer attribute.
    pub fn int(&self, name: &str, usual: i64) -> Result<i64> {
        Ok(self.some_int(name)?.unwrap_or(usual))
    }

    /// An integer attribute that is 0 or 1.
    pub fn flag(&self, name: &str, usual: bool) -> Result<bool> {
        Ok(self.int(name, i64::from(usual))? != 0)
    }

    /// A float attribute, if it is there.
    pub fn some_float(&self, name: &str) -> Result<Option<f64>> {
        match self.attribute(name) {
            None => Ok(None),
            Some(Attribute::Float(value)) => Ok(Some(f64::from(*value))),
            Some(other) => self.wrong(name, other, "a float"),
        }
    }

    /// A float attribute.
    pub fn float(&self, name: &str, usual: f64) -> Result<f64> {
        Ok(self.some_float(name)?.unwrap_or(usual))
    }

    /// A list of floats, if it is there.
    pub fn some_floats(&self, name: &str) -> Result<Option<Vec<f64>>> {
        match self.attribute(name) {
            None => Ok(None),
            Some(Attribute::Floats(values)) => {
                Ok(Some(values.iter().map(|v| f64::from(*v)).collect()))
            }
            Some(other) => self.wrong(name, other, "a list of floats"),
        }
    }

    /// A list of integers, if it is there.
    pub fn some_ints(&self, name: &str) -> Result<Option<Vec<i64>>> {
        let list = self.some_bounds(name)?;
        list.map(|list| bounded(list, &format!("attribute `{name}`"))).transpose()
    }

    /// A list of integers of any size, if it is there.
    pub fn some_bounds(&self, name: &str) -> Result<Option<Vec<i64>>> {
        match self.attribute(name) {
            None => Ok(None),
            Some(Attribute::Ints(values)) => Ok(Some(values.clone())),
            Some(other) => self.wrong(name, other, "a list of integers"),
        }
    }

    /// A text, if it is there.
    pub fn some_text(&self, name: &str) -> Result<Option<&str>> {
        match self.attribute(name) {
            None => Ok(None),
            Some(Attribute::Text(value)) => Ok(Some(value)),
            Some(other) => self.wrong(name, other, "a text"),
        }
    }

    /// A text.
    pub fn text<'t>(&'t self, name: &str, usual: &'t str) -> Result<&'t str> {
        Ok(self.some_text(name)?.unwrap_or(usual))
    }

    /// Refuses an attribute with another value than these.
    pub fn refuse<T>(&self, name: &str, value: impl std::fmt::Display) -> Result<T> {
        Err(refuse(Class::Attribute, format!("attribute `{name}` is {value}")))
    }

    /// The axis of a number that may be negative.
    pub fn axis(&self, number: i64, rank: usize) -> Result<usize> {
        let axis = if number < 0 { number + rank as i64 } else { number };
        match usize::try_from(axis) {
            Ok(axis) if axis < rank => Ok(axis),
            _ => Err(Diagnostic::new(format!("axis {number} of a tensor of {rank} axes"))),
        }
    }

    /// The axes of numbers that may be negative.
    pub fn axes(&self, numbers: &[i64], rank: usize) -> Result<Vec<usize>> {
        numbers.iter().map(|number| self.axis(*number, rank)).collect()
    }
}
