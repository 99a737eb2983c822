//! `probe`: an identity that reports its operand.

use super::attribute::{Attribute, Field, attributes, named};
use super::compute::Compute;
use super::derivative::Derivative;
use super::elementwise::Domain;
use super::sample::{Sample, floats, values};
use super::{Cost, Entry, Operation, Traits, operand_count};
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::graph::Region;
use crate::interpret::{Array, Real, Regions};
use crate::op::batch::Batch;
use crate::ty::TensorType;

/// The report of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProbeKind {
    /// The value.
    Print,
    /// Whether the value holds a NaN or an infinity.
    Finite,
}

impl ProbeKind {
    /// The name in text.
    pub const fn name(self) -> &'static str {
        match self {
            ProbeKind::Print => "print",
            ProbeKind::Finite => "finite",
        }
    }

    /// Every kind.
    pub const ALL: [ProbeKind; 2] = [ProbeKind::Print, ProbeKind::Finite];
}

impl Field for ProbeKind {
    fn to_attribute(&self) -> Attribute {
        Attribute::Text(self.name().into())
    }
    fn from_attribute(attribute: Attribute) -> Result<Self> {
        let found = match &attribute {
            Attribute::Text(text) => ProbeKind::ALL.into_iter().find(|kind| kind.name() == text),
            _ => None,
        };
        found.ok_or_else(|| {
            Diagnostic::new(format!("expected \"print\" or \"finite\", found {attribute:?}"))
        })
    }
}

attributes! {
    /// `probe %x {kind="print", name="h"}` is the identity. It also reports x to the run's
    /// observer.
    ///
    /// A probe has no side effect: compilation adds its report as a further output,
    /// `probe.print.h`, which a run separates from the function's own outputs. Its tangent is
    /// that of x, without a probe.
    Probe {
        /// The report.
        kind: ProbeKind,
        /// The name of the report; letters, digits, `_` and `.`.
        name: String,
    }
}

impl Operation for Probe {
    named!("probe");

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 1)?;
        if !crate::text::is_name(&self.name) {
            return Err(Diagnostic::new(format!("`{}` is no name of a probe", self.name))
                .help("use letters, digits, `_` and `.`, not starting with a digit"));
        }
        if self.kind == ProbeKind::Finite {
            Domain::Float.check(operands[0].dtype)?;
        }
        Ok(vec![operands[0].clone()])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        _results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        Ok(operands.to_vec())
    }

    fn compute<'a>(
        &'a self,
        _operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        Compute::Element { rule: Box::new(|c, index| c.operand(0, index)), indirect: vec![] }
    }

    fn derivative(&self) -> Derivative {
        Derivative::Nonlinear(|j| vec![j.tangents[0].clone()])
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.elementwise(self.clone())
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Free, elementwise: true, commutative: false }
    }

    fn entries() -> Vec<Entry> {
        let probe = |kind| Probe { kind, name: "h".into() };
        vec![Entry {
            name: "probe",
            doc: "The identity; it also reports x, or whether x is finite, to the run's observer.",
            derivative: "nonlinear",
            samples: vec![
                Sample::new(probe(ProbeKind::Print), vec![floats(&[2, 3], -2.0, 2.0)]),
                Sample::new(probe(ProbeKind::Print), vec![values(&[2], [1i32, -2])]),
                Sample::new(probe(ProbeKind::Finite), vec![floats(&[2, 3], -2.0, 2.0)]),
            ],
        }]
    }
}

impl Tensor {
    /// The same value, reported to the run's observer under this name.
    #[track_caller]
    pub fn probe(&self, name: &str) -> Tensor {
        Tensor::apply(Probe { kind: ProbeKind::Print, name: name.into() }, &[self])
    }

    /// The same value. It also reports to the run's observer whether the value is finite.
    #[track_caller]
    pub fn probe_finite(&self, name: &str) -> Tensor {
        Tensor::apply(Probe { kind: ProbeKind::Finite, name: name.into() }, &[self])
    }
}
