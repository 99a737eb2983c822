//! The verifier of the Graph stage.
//!
//! Every function is checked when it is built, parsed, read from a file or differentiated, and
//! after every pass that changed it. So all code may rely on these invariants:
//!
//! - **G1 names.** The names of the function and of its inputs are valid in the text language. An
//!   output has such a name or a decimal number. Names of inputs are unique, names of outputs of
//!   one role are unique, and names of functions of a program are unique.
//! - **G2 signature.** Inputs and outputs are parallel to those of the body.
//! - **G3 numbering.** Values are numbered in the order of definition: the inputs of the body,
//!   then the results of each equation in turn. The table of types has exactly these values. So
//!   each value is defined once. ([`Body::renumber`](super::Body::renumber) establishes it after
//!   a pass.)
//! - **G4 order.** An equation uses only values that are defined before it. An output of a body
//!   is defined in the body.
//! - **G5 types.** The results of an equation have the types that the op's `infer` returns for
//!   its operands and regions.
//! - **G6 shapes.** A type has at most [`MAX_RANK`] axes. Extents that are numbers are at least
//!   0, and the value takes at most [`MAX_BYTES`]. A dimension has at most [`MAX_TERMS`]
//!   terms of at most [`MAX_FACTORS`] variables. Their names are valid in the text
//!   language and not reserved by it ([`is_variable`]).
//! - **G7 regions.** An equation has as many regions as its op takes. Each is a body that
//!   satisfies G3 to G6 by itself (it is closed: values of the body around it are not visible).
//!   Regions nest at most [`MAX_DEPTH`] deep.
//! - **G8 roles.** A key is `u32[2]`. Each state input has a state output of the same name and
//!   type. A state output does not have the name of an input of another role: a session would
//!   then overwrite a value that the function assumes constant.
//! - **G10 calls.** All calls of one name run the same body. With all calls inlined, a function
//!   has at most [`MAX_EQUATIONS`] equations.
//! - **G11 mesh.** A mesh has distinct names and positive extents ([`crate::mesh`]). Types and
//!   collectives name its axes only. A collective that states a number of ranks states that of the
//!   mesh.
//! - **G12 agreement.** A collective that exchanges data over an axis is not in a branch or loop
//!   whose condition varies over that axis, nor in a function that is called there.
//! - **G9 locations.** Location ids are in the table. Entry 0 is "unknown". A derived location
//!   refers to an earlier entry, so every chain of derivations ends.

mod mesh;
mod signature;
pub(crate) mod types;

pub use crate::dim::{MAX_FACTORS, MAX_TERMS};
pub use types::{MAX_BYTES, MAX_RANK, is_variable};

use self::mesh::Exchanges;
use super::callees::check_extent;
use super::{Body, Equation, Function, MAX_EQUATIONS, Program, ValueId};
use crate::diagnostic::{Diagnostic, Result, bail, ensure};
use crate::id::Id;
use crate::location::{Location, LocationId, LocationTable};
use crate::mesh::Varying;
use crate::text::cursor::MAX_DEPTH;
use crate::text::is_name;
use crate::ty::TensorType;
use std::collections::BTreeSet;
use types::{well_formed, well_formed_dim};

/// The part of a function that violates an invariant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// The function as a whole.
    Function,
    /// An input, by its position.
    Input(usize),
    /// An output, by its position.
    Output(usize),
    /// A callee, by its position in [`Body::callees`](super::Body::callees).
    Callee(usize),
    /// An equation, by its position in the text (callees come first, regions after their
    /// equation).
    Equation(usize),
}

/// A violated invariant.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Violation {
    /// The violating part.
    pub place: Place,
    /// The name of that part in text, such as `%3`; empty for the function.
    pub name: String,
    /// The equation's location.
    pub location: LocationId,
    /// The violation.
    pub diagnostic: Diagnostic,
}

/// Checks all invariants. The error is the first violation, with its number, place and source
/// line.
pub fn verify(function: &Function) -> Result<()> {
    check(function).map_err(|violation| {
        let Violation { name, location, mut diagnostic, .. } = *violation;
        let (origin, chain) =
            (function.locations.origin(location).clone(), function.locations.get(location));
        let what = match chain {
            Location::Derived { .. } => function.locations.describe(location),
            _ => String::new(),
        };
        // The place of the violation comes first.
        let operands = std::mem::take(&mut diagnostic.places);
        let mut diagnostic = context(function, &name, diagnostic).at(origin, what);
        diagnostic.places.extend(operands);
        diagnostic
    })
}

/// Prefixes a violation with the names of the function and of the violating part.
pub(super) fn context(function: &Function, name: &str, diagnostic: Diagnostic) -> Diagnostic {
    let diagnostic = if name.is_empty() { diagnostic } else { diagnostic.context(name) };
    diagnostic.context(format_args!("@{}", function.name))
}

/// Checks every function, and the invariants between functions.
pub fn verify_program(program: &Program) -> Result<()> {
    let mut names = BTreeSet::new();
    for function in program.functions() {
        ensure!(
            names.insert(function.name.as_str()),
            "G1: function `@{}` is defined twice", function.name;
            help "give it another name"
        );
        verify(function)?;
    }
    Ok(())
}

/// As [`verify`], but the error has the place as a [`Place`], which the parser maps to a position
/// in the text.
pub(super) fn check(function: &Function) -> Result<(), Box<Violation>> {
    let mut checker = Checker {
        function,
        equations: 0,
        next_name: 0,
        under: Varying::default(),
        exchanges: Exchanges::default(),
    };
    checker.signature()?;
    checker.mesh()?;
    checker.locations()?;
    checker.callees()?;
    checker.body(&function.body, 0, Place::Function)?;
    checker.roles()
}

struct Checker<'a> {
    function: &'a Function,
    /// Equations seen so far, in the order of the text.
    equations: usize,
    /// The number that the printer gives to the next unnamed value.
    next_name: usize,
    /// The axes over which the conditions around the body vary.
    under: Varying,
    exchanges: Exchanges,
}

fn fail(
    place: Place,
    name: impl Into<String>,
    location: LocationId,
    diagnostic: Diagnostic,
) -> Box<Violation> {
    Box::new(Violation { place, name: name.into(), location, diagnostic })
}

const NOWHERE: LocationId = LocationId(0);

impl Checker<'_> {
    fn locations(&self) -> Result<(), Box<Violation>> {
        location_table(&self.function.locations)
            .map_err(|d| fail(Place::Function, "", NOWHERE, d))?;
        for (i, input) in self.function.inputs.iter().enumerate() {
            self.location(input.location)
                .map_err(|d| fail(Place::Input(i), format!("%{}", input.name), NOWHERE, d))?;
        }
        Ok(())
    }

    fn location(&self, id: LocationId) -> Result<()> {
        let count = self.function.locations.len();
        ensure!(id.index() < count, "G9: location {id} is not in the table of {count} locations");
        Ok(())
    }

    /// Checks each callee once.
    fn callees(&mut self) -> Result<(), Box<Violation>> {
        let mut names = BTreeSet::new();
        for (i, callee) in self.function.body.callees().into_iter().enumerate() {
            let place = Place::Callee(i);
            let is_new = names.insert(callee.name);
            let check = || {
                ensure!(is_name(callee.name), "G1: not a valid function name");
                ensure!(is_new, "G10: calls of one name run different bodies";
                    help "give them two names");
                check_extent(callee.body)
            };
            check().map_err(|d| fail(place, format!("@{}", callee.name), NOWHERE, d))?;
            self.body(callee.body, 1, place)?;
        }
        let whole = self.function.body.extent().equations;
        let check = || {
            ensure!(
                whole <= MAX_EQUATIONS,
                "G10: with all calls inlined, the function has {whole} equations; it may have at \
                 most {MAX_EQUATIONS}";
                help "repeat by `scan` or `fori` instead of calls"
            );
            Ok(())
        };
        check().map_err(|d| fail(Place::Function, "", NOWHERE, d))
    }

    /// `owner` is the place of errors about the body as a whole: the function, or the equation
    /// with the region.
    fn body(&mut self, body: &Body, depth: u32, owner: Place) -> Result<(), Box<Violation>> {
        let types = body.values.as_slice();
        let mut next = 0;
        for (i, input) in body.inputs.iter().enumerate() {
            let (place, name, location) = match owner {
                Place::Function => {
                    let input = &self.function.inputs[i];
                    (Place::Input(i), Name::Of(&input.name), input.location)
                }
                _ => (owner, Name::Number(self.take_number()), NOWHERE),
            };
            let wrong = |d| fail(place, name.to_string(), location, d);
            defines(body, *input, next).map_err(wrong)?;
            well_formed(&types[next]).map_err(wrong)?;
            self.varies(&types[next]).map_err(wrong)?;
            next += 1;
        }
        for equation in &body.equations {
            next = self.equation(body, equation, next, depth)?;
        }
        let check = || {
            let types = types.len();
            ensure!(next == types, "G3: {types} values have types, {next} are defined");
            if let Some(output) = body.outputs.iter().find(|o| o.index() >= next) {
                bail!("G4: output value {} is not defined", output.index());
            }
            Ok(())
        };
        check().map_err(|d| fail(owner, "", NOWHERE, d))
    }

    /// Checks an equation. Returns the number of values defined after it.
    fn equation(
        &mut self,
        body: &Body,
        equation: &Equation,
        defined: usize,
        depth: u32,
    ) -> Result<usize, Box<Violation>> {
        let place = Place::Equation(self.equations);
        self.equations += 1;
        let name = Name::Number(self.next_name);
        let location = equation.location;
        let wrong = |d: Diagnostic| fail(place, name.to_string(), location, d);
        self.location(location).map_err(|d| fail(place, name.to_string(), NOWHERE, d))?;
        operands_are_defined(equation, defined).map_err(wrong)?;
        let mut next = defined;
        for result in &equation.results {
            self.take_number();
            defines(body, *result, next).map_err(wrong)?;
            well_formed(&body.values[*result]).map_err(wrong)?;
            self.varies(&body.values[*result]).map_err(wrong)?;
            next += 1;
        }
        let mut dims = Ok(());
        equation.op.visit_dims(&mut |d| {
            if dims.is_ok() {
                dims = well_formed_dim(d);
            }
        });
        dims.map_err(wrong)?;

        regions_fit(equation, depth).map_err(wrong)?;
        // Callees are already checked.
        let called = equation.op.callee().is_some();
        let condition = Self::condition(body, equation);
        let outside = self.under.clone();
        self.under = outside.union(&condition);
        for region in equation.regions.iter().filter(|_| !called) {
            self.body(region, depth + 1, place)?;
        }
        self.under = outside;
        self.collective(equation).map_err(wrong)?;

        let operands = body.types(&equation.operands);
        let inferred = equation.op.infer(&operands, &equation.regions).map_err(|mut d| {
            d.message = format!("G5: {}", d.message);
            wrong(self.with_operands(d, body, equation, depth == 0))
        })?;
        results_are(body, equation, &inferred).map_err(wrong)?;
        Ok(next)
    }

    /// Adds the definitions of the first operands to an error.
    fn with_operands(
        &self,
        mut d: Diagnostic,
        body: &Body,
        equation: &Equation,
        outermost: bool,
    ) -> Diagnostic {
        const SHOWN: usize = 4;
        let mut seen = BTreeSet::new();
        for operand in equation.operands.iter().filter(|o| seen.insert(**o)).take(SHOWN) {
            let input = body.inputs.iter().position(|i| i == operand).filter(|_| outermost);
            let maker = body.equations.iter().find(|e| e.results.contains(operand));
            let location =
                input.map(|i| self.function.inputs[i].location).or(maker.map(|e| e.location));
            if let Some(location) = location {
                let origin = self.function.locations.origin(location).clone();
                d = d.at(origin, format!("an operand, {}, is made here", body.ty(*operand)));
            }
        }
        d
    }

    fn take_number(&mut self) -> usize {
        self.next_name += 1;
        self.next_name - 1
    }
}

/// The name of a value in text, formatted only for an error.
#[derive(Clone, Copy)]
enum Name<'a> {
    Of(&'a str),
    Number(usize),
}

impl std::fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Name::Of(name) => write!(f, "%{name}"),
            Name::Number(number) => write!(f, "%{number}"),
        }
    }
}

/// G9 for the table itself.
fn location_table(table: &LocationTable) -> Result<()> {
    for (id, location) in table.iter() {
        ensure!(
            (id == NOWHERE) == (*location == Location::Unknown),
            "G9: only entry 0 of the locations is unknown; entry {id} violates this"
        );
        if let Location::Derived { of, .. } = location {
            ensure!(*of < id, "G9: location {id} is derived from {of}, which is not earlier");
        }
    }
    Ok(())
}

/// G3 for one value.
fn defines(body: &Body, value: ValueId, next: usize) -> Result<()> {
    let (value, count) = (value.index(), body.values.len());
    ensure!(
        value == next && next < count,
        "G3: value {value} is defined where value {next} of {count} is expected"
    );
    Ok(())
}

/// G4 for the operands of an equation before which `defined` values are defined.
fn operands_are_defined(equation: &Equation, defined: usize) -> Result<()> {
    match equation.operands.iter().find(|operand| operand.index() >= defined) {
        Some(operand) => bail!(
            "G4: `{}` uses value {}, which is not defined before it",
            equation.op.name(),
            operand.index()
        ),
        None => Ok(()),
    }
}

/// G7, but for what the regions hold.
fn regions_fit(equation: &Equation, depth: u32) -> Result<()> {
    let (wanted, found) = (equation.op.region_count(), equation.regions.len());
    let least = wanted.start();
    ensure!(
        wanted.contains(&found),
        "G7: `{}` takes {}{least} region{}, found {found}",
        equation.op.name(),
        if wanted.end() > least { "at least " } else { "" },
        if *least == 1 { "" } else { "s" }
    );
    // The body of a callee is checked by itself, as if it stood in no region.
    let called = equation.regions.iter().filter(|_| equation.op.callee().is_some());
    let inner = called.map(|region| region.extent().depth).max().unwrap_or(0);
    ensure!(found == 0 || depth + inner < MAX_DEPTH, "G7: regions nest deeper than {MAX_DEPTH}");
    Ok(())
}

/// G5 for the results of an equation.
fn results_are(body: &Body, equation: &Equation, inferred: &[TensorType]) -> Result<()> {
    let name = equation.op.name();
    let (given, defined) = (inferred.len(), equation.results.len());
    let s = if given == 1 { "" } else { "s" };
    ensure!(given == defined, "G5: `{name}` has {given} result{s}, {defined} are defined");
    for (result, ty) in equation.results.iter().zip(inferred) {
        let said = &body.values[*result];
        ensure!(
            said == ty,
            "G5: `{name}` gives {ty}, the definition says {said}";
            help "results have the types that the op infers from its operands and attributes"
        );
    }
    Ok(())
}
