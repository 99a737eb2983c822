//! Verifier of nests: the invariants that back ends rely on.
//!
//! Structure (module `structure`), which makes a nest meaningful:
//!
//! - **N1** Names are valid in the text format: those of the nest, of buffers (unique), and of
//!   axes (unique among those visible together, and not `floor_div` or `mod`).
//! - **N2** Sizes are limited: at most [`MAX_RANK`] dimensions, axes and guards, and
//!   [`MAX_TERMS`] terms per access. The bytes of a buffer, and the iterations of a phase over
//!   all rows, are below 2^63, counting empty extents as 1.
//! - **N3** Ids are in the order of the text: parameters, then row storages; parallel axes, then
//!   those of each phase, each in one place; registers as they are defined, each once.
//! - **N4** Registers are read where they are visible: after their definition in the same body,
//!   or in later phases if they belong to the row (reductions' results, and all registers of a
//!   phase without inner axes).
//! - **N5** Instructions exist for their dtypes: [`ScalarOp::check`](super::ScalarOp::check).
//!   No buffer or register is of 8-bit floats.
//!   Constants, loads, fills and stores agree with register and buffer. `index` results in an
//!   integer, `test` in a bool.
//! - **N6** Index expressions are in normal form over visible axes and over visible registers of
//!   i32 or i64.
//! - **N7** An access has an index for each dimension.
//! - **N8** A load has a fill if and only if it has guards.
//! - **N9** `in` is only loaded from, `out` only stored to.
//! - **N10** Only loads clamp, and only dimensions that are not empty.
//! - **N11** A combine program is straight-line over its own registers, with the dtypes of its
//!   identity. Reductions and prefixes have as many values and results, of those dtypes.
//! - **N12** Lanes of a tree are a power of two up to [`MAX_LANES`]; a block is 0 or a multiple
//!   of them.
//! - **N13** Prefixes are in phases with inner axes and run in one direction. A phase with a
//!   reverse prefix has no reductions.
//! - **N20** The row storages of a nest take at most [`MAX_ROW_BYTES`] together, empty extents
//!   counted as 1. A back end keeps them for each thread.
//! - **N21** A [pitch](crate::pitch) is that of a parameter of at least two dimensions, and
//!   greater than its last extent.
//! - **N22** A total is of one value, in a phase with inner axes, and of at least one row, by a
//!   tree of one block. All totals of a nest have the same number of lanes, at most
//!   [`TOTAL_LANES`]. A total is stored to an `out`, without guards, at indices that have neither
//!   registers nor the last parallel axis.
//!
//! Memory (module `accesses`), which makes rows independent and every access defined:
//!
//! - **N14** Accesses that do not clamp are in bounds by interval analysis ([`super::bounds`]).
//! - **N15** No two iterations write one element by one store: the indices determine the row and
//!   the inner axes, by the method of [`Agreement`](super::bounds::Agreement). For row storage
//!   they determine the inner axes, for a total the band and the inner axes.
//! - **N16** Two stores to one buffer write different elements, by disjoint ranges or residues of
//!   some index. For row storage this holds within one phase. At most [`MAX_STORES`] stores write
//!   one buffer.
//! - **N17** Each element of an `out` is written. If no store to it has guards, the number of
//!   iterations (of one row of each band, for a total) equals the number of elements, so with N14
//!   to N16 each is written exactly once.
//!   With guards, only "at most once" and the existence of some store are proven; the interpreter
//!   checks the rest as it runs.
//! - **N18** An `inout` element is read before it is written, by the iteration that writes it. A
//!   load in the phase of a store is before the store, has the same indices, and does not clamp. A
//!   load in an earlier phase agrees with it in indices that determine the row and that it cannot
//!   clamp. A load in a later phase is disjoint.
//! - **N19** Row storage is written before it is read. The elements that a load may read are
//!   among those that one unguarded store of an earlier phase has written. A load in the phase of
//!   a store is before it at the same indices, or disjoint.
//!
//! Memory invariants are not checked in loops that never run.

mod accesses;
mod depend;
mod structure;

use super::parse::{Part, Places};
use super::print::{InstrText, ReductionText};
use super::{Axis, AxisId, Instr, Nest, Phase};
use crate::diagnostic::{Diagnostic, Result};
use std::fmt::Display;

/// Dimensions of a buffer, axes visible together, and guards of an access.
pub const MAX_RANK: usize = 32;

/// Terms of the expressions of one access, including those inside divisions.
pub const MAX_TERMS: usize = 256;

/// Nesting depth of divisions.
pub const MAX_DIVISIONS: usize = 16;

/// Lanes of a tree.
pub const MAX_LANES: u32 = 4096;

/// Lanes of the tree of a total. A GPU has a team of threads for each.
pub const TOTAL_LANES: u32 = 32;

/// Stores to one buffer.
pub const MAX_STORES: usize = 64;

/// Bytes of all row storages of a nest together: 1 TiB.
pub const MAX_ROW_BYTES: usize = 1 << 40;

/// Checks all invariants; the error names the nest, the phase and the instruction.
pub fn verify(nest: &Nest) -> Result<()> {
    verify_at(nest, &Places::default())
}

/// Checks all invariants. The error also has the position in the text that the nest was read from.
pub fn verify_at(nest: &Nest, places: &Places) -> Result<()> {
    verify_structure(nest, places)?;
    accesses::check(nest).map_err(|f| f.diagnostic(nest, places))
}

/// Checks N1 to N13 and N20 to N22. The interpreter needs no more, since it checks memory as it
/// runs.
pub fn verify_structure(nest: &Nest, places: &Places) -> Result<()> {
    structure::check(nest).map_err(|f| f.diagnostic(nest, places))
}

/// A violated invariant: the error and the part of the nest at fault.
struct Failure {
    part: Part,
    diagnostic: Diagnostic,
}

/// An error of invariant `number` about `part`.
fn failure(part: Part, number: u32, message: impl Display) -> Failure {
    Failure { part, diagnostic: Diagnostic::new(format!("{message} (N{number})")) }
}

impl Failure {
    fn help(mut self, help: impl Into<String>) -> Failure {
        self.diagnostic = self.diagnostic.help(help);
        self
    }

    fn diagnostic(self, nest: &Nest, places: &Places) -> Diagnostic {
        // A malformed nest may have names and instructions of any length.
        let short = |text: String| {
            let line = text.lines().next().unwrap_or_default();
            if line.chars().count() <= 120 {
                line.to_string()
            } else {
                line.chars().take(120).chain(['…']).collect()
            }
        };
        let instr =
            |p: usize, i: usize| nest.phases[p].body.get(i).map(|i| InstrText(nest, i).to_string());
        let reduction = |p: usize, i: usize| {
            nest.phases[p].reductions.get(i).map(|r| ReductionText(nest, r).to_string())
        };
        let what = match self.part {
            Part::Nest => None,
            Part::Parallel => Some("parallel axes".to_string()),
            Part::Buffer(id) => Some(
                nest.buffers.get(id).map_or(id.to_string(), |b| format!("buffer `%{}`", b.name)),
            ),
            Part::Phase(p) => Some(format!("phase {p}")),
            Part::Instr(p, i) => instr(p, i).map(|t| format!("phase {p}, `{t}`")),
            Part::Reduction(p, i) => reduction(p, i).map(|t| format!("phase {p}, `{t}`")),
        };
        let context = short(format!("nest @{}", nest.name))
            + &what.map_or(String::new(), |w| ", ".to_string() + &short(w));
        self.diagnostic.context(context).at(places.get(self.part), "")
    }
}

/// The axes visible in a phase.
fn visible<'a>(nest: &'a Nest, phase: &'a Phase) -> impl Iterator<Item = (AxisId, &'a Axis)> {
    nest.parallel.iter().chain(&phase.axes).map(|a| (*a, &nest.axes[*a]))
}

/// False if the body of the phase never runs.
fn runs(nest: &Nest, phase: &Phase) -> bool {
    visible(nest, phase).all(|(_, a)| a.extent > 0)
}

/// An access of a body and its position.
#[derive(Clone, Copy)]
struct Site<'a> {
    phase: usize,
    position: usize,
    access: &'a super::Access,
    store: bool,
    /// Whether the store is of a total.
    total: bool,
}

impl Site<'_> {
    fn part(&self) -> Part {
        Part::Instr(self.phase, self.position)
    }
}

/// Every access of the phases that run, in order.
fn sites(nest: &Nest) -> Vec<Site<'_>> {
    let mut sites = Vec::new();
    for (p, phase) in nest.phases.iter().enumerate().filter(|(_, phase)| runs(nest, phase)) {
        for (position, instr) in phase.body.iter().enumerate() {
            match instr {
                Instr::Load { access, .. } => {
                    sites.push(Site { phase: p, position, access, store: false, total: false })
                }
                Instr::Store { access, total, .. } => {
                    let total = total.is_some();
                    sites.push(Site { phase: p, position, access, store: true, total })
                }
                _ => {}
            }
        }
    }
    sites
}
