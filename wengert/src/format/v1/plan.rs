//! Plans to and from version 1: the text of the plan, and its constants beside it.

use super::literals::{self, Literals};
use super::{Constant as Record, Constants};
use wengert_core::plan::parse::parse_plan;
use wengert_core::plan::{Constant, Plan, ValueId};
use wengert_core::{Diagnostic, Result, Verified};

/// The text, the record of the constants, and the contents of section `literals`.
pub fn to_parts(plan: &Plan) -> (String, Constants, Vec<u8>) {
    let mut elements = Vec::new();
    let constants = plan.constants.iter().map(|constant| {
        let (dtype, shape) = literals::put(&mut elements, &constant.literal);
        Record { value: constant.value.0, dtype, shape }
    });
    let constants = Constants { constants: constants.collect() };
    let text = Plan { constants: Vec::new(), ..plan.clone() }.to_string();
    (text, constants, elements)
}

/// The plan of these parts.
pub fn from_parts(text: &str, constants: Constants, elements: &[u8]) -> Result<Verified<Plan>> {
    let (mut plan, places) = parse_plan("plan", text)?;
    if !plan.constants.is_empty() {
        return Err(Diagnostic::new(
            "the text of the plan has constants: they belong into their own section",
        ));
    }
    let mut literals = Literals::new(elements);
    for record in constants.constants {
        let literal = literals.take(&record.dtype, &record.shape)?;
        plan.constants.push(Constant { value: ValueId(record.value), literal });
    }
    literals.end()?;
    Verified::read(plan, &places)
}
