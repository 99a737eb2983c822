//! The certificate of a function's precision: what is known about the error of its outputs.
//!
//! A function with gradients is a function with more outputs, so values and gradients are treated
//! alike. For each output in floats there are three figures:
//!
//! | figure | what it is | module |
//! |---|---|---|
//! | worst-case bound | no machine exceeds it at these inputs | [`worst_case`](worst_case()) |
//! | first-order estimate | the sum of the effects of all roundings, to first order | [`first_order`](first_order()) |
//! | observed error | what one machine gives, beside the function in f64 | [`Deviation`] |
//!
//! The bound holds for every order of sums, and is often thousands of times the observed error. If
//! the machine has [approximate instructions](wengert_core::nest::approximate), it counts their
//! greatest errors. The estimate says which equations contribute; it counts roundings only. The
//! observed error is that of one run.
//! [`keep`](keep()) chooses equations to keep in f32 in mixed precision.

mod bounded;
mod choice;
mod elements;
mod first_order;
mod functions;
mod keep;
mod observed;
mod ranges;
mod worst_case;

pub use bounded::{Bounded, Place};
pub use first_order::{ELEMENTS, Estimate, FirstOrder, Norm, PROJECTIONS, Rounding, first_order};
pub use keep::{Kept, KeptEquation, Run, keep};
pub use observed::{Deviation, reference};
pub use worst_case::{Bounds, worst_case};

use observed::relative;
use std::collections::BTreeMap;
use wengert_core::graph::{Function, OutputRole};
use wengert_core::target::Approximations;
use wengert_core::{Diagnostic, Literal, Location, LocationId, Result, TensorType};

/// What is known about the errors of a function at some inputs.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The outputs in floats, in the order of the function.
    pub outputs: Vec<Output>,
    /// Why there is no first-order estimate, if there is none: an op has no derivative.
    pub no_estimate: Option<Diagnostic>,
    /// The parts of the equations in the first-order estimates, the greatest first.
    pub contributions: Vec<Contribution>,
}

/// What is known about the error of an output.
#[derive(Clone, Debug)]
pub struct Output {
    /// Its name.
    pub name: String,
    /// Whether it is a state.
    pub role: OutputRole,
    /// Its type.
    pub ty: TensorType,
    /// The bound of its greatest error, or where there is none.
    pub worst_case: std::result::Result<Figure, Lost>,
    /// The first-order estimate, unless [`Certificate::no_estimate`] says why there is none. It is
    /// infinite or NaN where a value or a derivative is.
    pub first_order: Option<(Figure, Norm)>,
    /// The observed error.
    pub observed: Deviation,
}

/// An error of an output.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figure {
    /// The error.
    pub absolute: f64,
    /// The error divided by the greatest magnitude of the output, or by its Euclidean norm if the
    /// error is one.
    pub relative: f64,
}

/// The equation at which the bound of an output was lost.
#[derive(Clone, PartialEq, Debug)]
pub struct Lost {
    /// The name of its op.
    pub op: &'static str,
    /// The line that a person wrote.
    pub location: Location,
}

/// The part of all equations of one op at one location in the estimate of an output.
#[derive(Clone, PartialEq, Debug)]
pub struct Contribution {
    /// The name of the op.
    pub op: &'static str,
    /// The line that a person wrote.
    pub location: Location,
    /// The location with the rules by which the equation was derived from it.
    pub described: String,
    /// The output, of those with an estimate, on which the part is greatest relative to its
    /// magnitude.
    pub output: String,
    /// The part in the estimate of that output.
    pub part: Figure,
    /// The part as a fraction of the estimate of that output.
    pub share: f64,
}

/// The certificate of a function (without dimension variables) at some inputs. `computed` are the
/// outputs that a machine gave for them, on a target with these approximations.
///
/// # Errors
/// Those of the interpreter. An output has another shape than the function says.
pub fn certify(
    function: &Function,
    inputs: &[Literal],
    computed: &[Literal],
    approximations: Approximations,
) -> Result<Certificate> {
    let exact = reference(function, inputs)?;
    let bounds = worst_case(function, inputs, approximations)?;
    let (estimates, no_estimate) = match first_order(function, inputs) {
        Ok(estimates) => (Some(estimates), None),
        Err(error) => (None, Some(error)),
    };
    let mut outputs = Vec::new();
    let mut ratios = Vec::new();
    for (n, output) in function.outputs.iter().enumerate() {
        let ty = function.output_type(n);
        if !ty.dtype.is_float() {
            continue;
        }
        let observed = Deviation::of(&computed[n], &exact[n])?;
        let magnitude = observed.magnitude;
        let figure = |absolute, of| Figure { absolute, relative: relative(absolute, of) };
        let worst_case = bounds.error(n).map(|bound| figure(bound, magnitude)).map_err(|place| {
            let unknown = Place { location: LocationId(0), op: "input" };
            let Place { location, op } = place.unwrap_or(unknown);
            Lost { op, location: function.locations.origin(location).clone() }
        });
        let estimate = estimates.as_ref().and_then(|estimates| estimates.outputs[n].as_ref());
        let first_order = estimate.map(|estimate| {
            let of = match estimate.norm {
                Norm::Greatest => magnitude,
                Norm::Euclidean => observed.magnitude_norm,
            };
            // Where a derivative is infinite, the parts tell nothing.
            if estimate.error.is_finite() && of > 0.0 {
                ratios.push((output.name.as_str(), estimate, of));
            }
            (figure(estimate.error, of), estimate.norm)
        });
        outputs.push(Output {
            name: output.name.clone(),
            role: output.role,
            ty: ty.clone(),
            worst_case,
            first_order,
            observed,
        });
    }
    let roundings = estimates.as_ref().map_or(&[][..], |estimates| &estimates.roundings);
    let contributions = contributions(function, roundings, &ratios);
    Ok(Certificate { outputs, no_estimate, contributions })
}

/// The contributions, the greatest first. `estimates` are those of outputs, with their magnitudes.
fn contributions(
    function: &Function,
    roundings: &[Rounding],
    estimates: &[(&str, &Estimate, f64)],
) -> Vec<Contribution> {
    let mut places: BTreeMap<(LocationId, &'static str), Vec<usize>> = BTreeMap::new();
    for (n, rounding) in roundings.iter().enumerate() {
        places.entry((rounding.location, rounding.op)).or_default().push(n);
    }
    let mut found: Vec<Contribution> = Vec::new();
    for ((location, op), members) in places {
        let mut greatest: Option<Contribution> = None;
        for (output, estimate, magnitude) in estimates {
            let absolute: f64 = members.iter().map(|n| estimate.parts[*n]).sum();
            let part = Figure { absolute, relative: relative(absolute, *magnitude) };
            let is_greater =
                greatest.as_ref().is_none_or(|most| part.relative > most.part.relative);
            if absolute > 0.0 && is_greater {
                greatest = Some(Contribution {
                    op,
                    location: function.locations.origin(location).clone(),
                    described: function.locations.describe(location),
                    output: (*output).to_owned(),
                    part,
                    share: absolute / estimate.error,
                });
            }
        }
        found.extend(greatest);
    }
    found.sort_by(|a, b| b.part.relative.total_cmp(&a.part.relative));
    found
}
