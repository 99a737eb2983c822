//! Conversion of location tables to and from version 1 of the format.

use super::{Location as Record, Locations};
use crate::format::container::damaged;
use std::collections::BTreeMap;
use std::sync::Arc;
use wengert_core::graph::Program;
use wengert_core::{Id, Location, LocationId, LocationTable, Result};

/// The tables of all functions.
pub fn to_record(program: &Program) -> Locations {
    let mut texts = Texts::default();
    let functions = program
        .functions()
        .iter()
        .map(|function| {
            function
                .locations
                .iter()
                .map(|(_, location)| match location {
                    Location::Unknown => Record::Unknown,
                    Location::Source { file, line, column } => {
                        Record::Source { file: texts.number(file), line: *line, column: *column }
                    }
                    Location::Derived { of, rule } => {
                        Record::Derived { of: of.0, rule: texts.number(rule) }
                    }
                })
                .collect()
        })
        .collect();
    Locations { texts: texts.all, functions }
}

#[derive(Default)]
struct Texts {
    all: Vec<String>,
    numbers: BTreeMap<Arc<str>, u32>,
}

impl Texts {
    fn number(&mut self, text: &Arc<str>) -> u32 {
        *self.numbers.entry(text.clone()).or_insert_with(|| {
            self.all.push(text.to_string());
            self.all.len() as u32 - 1
        })
    }
}

/// The tables of `functions` functions.
pub fn from_record(record: Locations, functions: usize) -> Result<Vec<LocationTable>> {
    if record.functions.len() != functions {
        return Err(damaged(format!(
            "section `locations` has {} lists for {functions} functions",
            record.functions.len()
        )));
    }
    let texts: Vec<Arc<str>> = record.texts.into_iter().map(Arc::from).collect();
    let text = |number: u32| {
        texts
            .get(number as usize)
            .cloned()
            .ok_or_else(|| damaged(format!("section `locations` has no text {number}")))
    };
    record
        .functions
        .into_iter()
        .map(|list| {
            let mut table = LocationTable::default();
            for (i, entry) in list.into_iter().enumerate() {
                let location = match entry {
                    Record::Unknown => Location::Unknown,
                    Record::Source { file, line, column } => {
                        Location::Source { file: text(file)?, line, column }
                    }
                    // Only earlier entries are accepted, so chains of derivations end.
                    Record::Derived { of, rule } if (of as usize) < i => {
                        Location::Derived { of: LocationId(of), rule: text(rule)? }
                    }
                    Record::Derived { of, .. } => {
                        return Err(damaged(format!(
                            "location {i} is derived from location {of}, which is not before it"
                        )));
                    }
                };
                if table.intern(location) != LocationId::new(i) {
                    return Err(damaged(format!(
                        "location {i} occurs twice, or location 0 is known"
                    )));
                }
            }
            Ok(table)
        })
        .collect()
}
