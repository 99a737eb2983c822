//! `.plan` files: a function compiled for a target and for the values of its dimension variables.
//!
//! What is frozen here is the *text* of plans and nests, whose grammar `docs/ir.md` owns, within the checksummed container; the
//! elements of constants lie beside it as bytes. A plan is made of nests, scalar instructions, index expressions, calls and nested
//! steps, some sixty types that grow with the compiler. Frozen structs for all of them would be a second definition of the
//! same language, with a converter in both directions that nothing else exercises; the text exists already, has a
//! bounded parser that fuzzing hardens, is exact (`parse(print(x)) == x`), is extended without breaking old files (defaults are
//! omitted), and can be read by a person. It costs little: parsing is linear, and a plan has one nest for each distinct
//! kernel, however many layers use it.
//!
//! PTX or machine code is never stored: a back end makes it when the plan is loaded. A loaded plan is proved again by the verifier,
//! which shares no code with the planner, and a device refuses the plan of another target.

use super::container::{self, Kind, Section, damaged};
use super::{codec, v1};
use crate::atomic;
use crate::data::map::Map;
use std::path::Path;
use wengert_core::Result;
use wengert_core::plan::Plan;

/// Writes a `.plan` file. The same plan gives the same bytes.
pub fn write(path: impl AsRef<Path>, plan: &Plan) -> Result<()> {
    let path = path.as_ref();
    let bytes =
        to_bytes(plan).map_err(|error| error.context(format_args!("cannot write `{}`", path.display())))?;
    atomic::write_bytes(path, &bytes)
}

/// Reads and verifies a `.plan` file.
pub fn read(path: impl AsRef<Path>) -> Result<Plan> {
    let path = path.as_ref();
    from_bytes(&Map::open(path)?)
        .map_err(|error| error.context(format_args!("cannot read `{}`", path.display())))
}

/// The contents of the file, in the newest version of the format.
pub fn to_bytes(plan: &Plan) -> Result<Vec<u8>> {
    let (text, constants, literals) = v1::plan::to_parts(plan);
    let constants = codec::encode("constants", &constants)?;
    let sections = [
        Section { name: "plan", bytes: text.as_bytes() },
        Section { name: "constants", bytes: &constants },
        Section { name: "literals", bytes: &literals },
    ];
    Ok(container::write(Kind::Plan, v1::VERSION, &sections))
}

/// Reads and verifies the contents of a file. Errors do not name the file.
pub fn from_bytes(bytes: &[u8]) -> Result<Plan> {
    let (_, sections) = container::read(Kind::Plan, &[v1::VERSION], bytes)?;
    if let Some(extra) = sections.iter().find(|s| !["plan", "constants", "literals"].contains(&s.name)) {
        return Err(damaged(format!("section `{}` is unknown to version {}", extra.name, v1::VERSION)));
    }
    let section = |name: &str| {
        let found = sections.iter().find(|s| s.name == name).map(|s| s.bytes);
        found.ok_or_else(|| damaged(format!("section `{name}` is missing")))
    };
    let text = std::str::from_utf8(section("plan")?).map_err(|_| damaged("section `plan` is no text"))?;
    let constants = codec::decode("constants", section("constants")?)?;
    v1::plan::from_parts(text, constants, section("literals")?)
}
