//! `.plan` files: a function compiled for a target and for the values of its dimension variables.
//!
//! The frozen format is the *text* of plans and nests, whose grammar `docs/ir.md` defines, within
//! the checksummed container. The elements of constants are stored beside it as bytes. A plan is
//! made of nests, scalar instructions, index expressions, calls and nested steps, some sixty
//! types that grow with the compiler. Frozen structs for all of them would be a second definition
//! of the same language, with a converter in both directions that nothing else tests. The text
//! already exists, has a bounded parser hardened by fuzzing, is exact (`parse(print(x)) == x`),
//! can be extended without breaking old files (defaults are omitted), and is readable. Its cost
//! is small: parsing is linear, and a plan has one nest for each distinct kernel, however many
//! layers use it.
//!
//! A file may hold several plans of one function, each slower than the one before and with less
//! memory. A loader takes the first that fits ([`crate::Session::load_plans`]). Sections of the
//! second plan are called `plan.2` and so on.
//!
//! PTX or machine code is never stored: a back end generates it when the plan is loaded. A loaded
//! plan is checked again by the verifier, which shares no code with the planner, and a device
//! refuses the plan of another target.

use super::container::{self, Kind, Section, damaged};
use super::{codec, v1};
use crate::atomic;
use crate::data::map::Map;
use crate::signature::Signature;
use std::path::Path;
use wengert_core::plan::{Account, Plan};
use wengert_core::{Diagnostic, Result, Verified, diagnostic};

/// Most plans in a file.
pub const MOST: usize = 16;

/// Default limit on the operations of one run of a plan from a file
/// ([`crate::DeviceOptions::work_limit`]): some days on a CPU, or 2^40 steps.
pub const WORK_LIMIT: u64 = 1 << 50;

/// Writes a `.plan` file. The same plan gives the same bytes.
pub fn write(path: impl AsRef<Path>, plan: &Verified<Plan>) -> Result<()> {
    write_all(path, std::slice::from_ref(plan))
}

/// Writes a `.plan` file of several plans of a function, each with less memory than the one
/// before.
///
/// Errors: there is none, or more than [`MOST`]; they differ in function, binding or target; one
/// does not take less memory than the one before; the file cannot be written.
pub fn write_all(path: impl AsRef<Path>, plans: &[Verified<Plan>]) -> Result<()> {
    let path = path.as_ref();
    let cannot =
        |error: Diagnostic| error.context(format_args!("cannot write `{}`", path.display()));
    let bytes = to_bytes(plans).map_err(cannot)?;
    atomic::write_bytes(path, &bytes)
}

/// Reads and verifies a `.plan` file. Returns its first plan, the one with most memory and least
/// time.
pub fn read(path: impl AsRef<Path>) -> Result<Verified<Plan>> {
    Ok(read_all(path)?.swap_remove(0))
}

/// Reads and verifies a `.plan` file. Returns its plans by decreasing memory.
pub fn read_all(path: impl AsRef<Path>) -> Result<Vec<Verified<Plan>>> {
    let path = path.as_ref();
    let _span = tracing::debug_span!("read", name = %path.display()).entered();
    from_bytes(&Map::open(path)?)
        .map_err(|error| error.context(format_args!("cannot read `{}`", path.display())))
}

/// The contents of a file, in the newest version of the format.
///
/// Errors: those of [`write_all`].
pub fn to_bytes(plans: &[Verified<Plan>]) -> Result<Vec<u8>> {
    go_together(plans)?;
    let mut parts = Vec::with_capacity(plans.len());
    for plan in plans {
        let (text, constants, literals) = v1::plan::to_parts(plan);
        parts.push([text.into_bytes(), codec::encode("constants", &constants)?, literals]);
    }
    let names: Vec<[String; 3]> = (0..plans.len()).map(names).collect();
    let sections = names.iter().flatten().zip(parts.iter().flatten());
    let sections: Vec<Section<'_>> =
        sections.map(|(name, bytes)| Section { name, bytes }).collect();
    Ok(container::write(Kind::Plan, v1::VERSION, &sections))
}

/// Reads and verifies the contents of a file. Errors do not name the file.
pub fn from_bytes(bytes: &[u8]) -> Result<Vec<Verified<Plan>>> {
    let (_, sections) = container::read(Kind::Plan, &[v1::VERSION], bytes)?;
    let count = (1..=MOST)
        .rev()
        .find(|n| sections.iter().any(|s| names(n - 1).iter().any(|m| m == s.name)));
    let names: Vec<[String; 3]> = (0..count.unwrap_or(1)).map(names).collect();
    if let Some(extra) =
        sections.iter().find(|s| !names.iter().flatten().any(|name| name == s.name))
    {
        return Err(damaged(format!(
            "section `{}` is unknown to version {}",
            extra.name,
            v1::VERSION
        )));
    }
    let section = |name: &str| {
        let found = sections.iter().find(|s| s.name == name).map(|s| s.bytes);
        found.ok_or_else(|| damaged(format!("section `{name}` is missing")))
    };
    let mut plans = Vec::with_capacity(names.len());
    for [text, constants, literals] in &names {
        let plan = std::str::from_utf8(section(text)?);
        let plan = plan.map_err(|_| damaged(format!("section `{text}` is not UTF-8 text")))?;
        let constants = codec::decode(constants, section(constants)?)?;
        plans.push(v1::plan::from_parts(plan, constants, section(literals)?)?);
    }
    go_together(&plans)?;
    Ok(plans)
}

/// Names of the sections of a plan.
fn names(n: usize) -> [String; 3] {
    ["plan", "constants", "literals"].map(|name| match n {
        0 => name.to_owned(),
        _ => format!("{name}.{}", n + 1),
    })
}

/// Checks that the plans are of one function, binding and target, by decreasing memory.
fn go_together(plans: &[Verified<Plan>]) -> Result<()> {
    if plans.is_empty() || plans.len() > MOST {
        return Err(diagnostic!("a .plan file holds 1 to {MOST} plans, not {}", plans.len()));
    }
    for pair in plans.windows(2) {
        let alike = pair[0].function == pair[1].function
            && pair[0].binding == pair[1].binding
            && pair[0].target == pair[1].target
            && Signature::of_plan(&pair[0]) == Signature::of_plan(&pair[1]);
        if !alike {
            return Err(Diagnostic::new(
                "the plans of a file are of one function, binding and target",
            ));
        }
        let [first, second] = [0, 1].map(|n| Account::sizes(&pair[n]).total());
        if first <= second {
            return Err(diagnostic!(
                "each plan of a file takes less memory than the one before: \
                 {second} bytes follow {first}"
            ));
        }
    }
    Ok(())
}
