//! Comparison of the names of weights with the names of variables.
//!
//! A misspelt name in a weights file would leave a layer with its initial values and train it
//! from scratch, so names are compared when weights are loaded. A weight that is no variable is
//! **unknown**; a variable without a value in the file is **missing**. Both are errors unless the
//! caller requests a partial load.

use crate::data::Arrays;
use std::collections::BTreeMap;
use wengert_core::nearest::nearest;
use wengert_core::{DType, Diagnostic, Result, TensorType, diagnostic};

/// Differences between the names of weights and of variables.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NameDifferences {
    /// Names of weights that are no variables, each with the most similar variable's name, if one
    /// is similar.
    pub unknown: Vec<(String, Option<String>)>,
    /// Variables without weights.
    pub missing: Vec<String>,
}

impl NameDifferences {
    /// Compares weights with the variables, some of which are required.
    pub fn between<'a>(
        weights: &Arrays,
        variables: &BTreeMap<String, TensorType>,
        needed: impl IntoIterator<Item = &'a str>,
    ) -> NameDifferences {
        let missing: Vec<String> = needed
            .into_iter()
            .filter(|name| !weights.contains_key(*name))
            .map(str::to_owned)
            .collect();
        let unknown = weights.keys().filter(|name| !variables.contains_key(*name)).map(|name| {
            // Missing variables are suggested first.
            let of = |names: &mut dyn Iterator<Item = &'_ String>| {
                nearest(name, names.map(String::as_str).collect::<Vec<_>>()).map(str::to_owned)
            };
            (name.clone(), of(&mut missing.iter()).or_else(|| of(&mut variables.keys())))
        });
        NameDifferences { unknown: unknown.collect(), missing }
    }

    /// True if the names agree.
    pub fn is_empty(&self) -> bool {
        self.unknown.is_empty() && self.missing.is_empty()
    }

    /// The error for these differences of the weights in `source`; `None` if the names agree.
    pub fn error(&self, source: &str) -> Option<Diagnostic> {
        if self.is_empty() {
            return None;
        }
        Some(diagnostic!("the weights in {source} do not fit the program: {self}"))
    }
}

impl std::fmt::Display for NameDifferences {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unknown = self.unknown.iter().map(|(name, near)| match near {
            Some(near) => format!("`{name}` (did you mean `{near}`?)"),
            None => format!("`{name}`"),
        });
        let missing = self.missing.iter().map(|name| format!("`{name}`"));
        let mut parts = Vec::new();
        match self.unknown.len() {
            0 => {}
            1 => parts.push(format!("no variable has the name {}", shortened(unknown))),
            n => parts.push(format!("no variables have these {n} names: {}", shortened(unknown))),
        }
        match self.missing.len() {
            0 => {}
            1 => parts.push(format!("variable {} has no value", shortened(missing))),
            n => parts.push(format!("{n} variables have no value: {}", shortened(missing))),
        }
        f.write_str(&parts.join("; "))
    }
}

/// The first names of a list.
fn shortened(names: impl ExactSizeIterator<Item = String>) -> String {
    const SHOWN: usize = 12;
    let more = names.len().saturating_sub(SHOWN);
    let mut shown: Vec<String> = names.take(SHOWN).collect();
    if more > 0 {
        shown.push(format!("… and {more} more"));
    }
    shown.join(", ")
}

/// Checks that weights have the types of the variables of their names.
pub(crate) fn check_types(
    weights: &Arrays,
    variables: &BTreeMap<String, TensorType>,
    source: &str,
) -> Result<()> {
    for (name, value) in weights {
        match variables.get(name) {
            Some(ty) if value.ty() != *ty => {
                let error = diagnostic!(
                    "variable `{name}` is {ty}, the weights in {source} have {}",
                    value.ty()
                );
                let may_cast = ty.dtype.is_half() && value.ty() == ty.with_dtype(DType::F32);
                return Err(match may_cast {
                    true => error.help(
                        "`precision::cast_to_param` rounds weights of f32, and so does the option \
                         `--param-dtype`",
                    ),
                    false => error,
                });
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::Literal;

    #[test]
    fn names_are_listed_with_the_nearest() {
        let ty = TensorType::scalar(DType::F32);
        let variables = BTreeMap::from(
            ["m.weight", "m.bias", "adam.m"].map(|name| (name.to_owned(), ty.clone())),
        );
        let weights = |names: &[&str]| -> Arrays {
            names.iter().map(|name| (name.to_string(), Literal::from(1.0f32))).collect()
        };
        let between = |names: &[&str]| {
            NameDifferences::between(&weights(names), &variables, ["m.weight", "m.bias"])
        };
        assert!(between(&["m.weight", "m.bias"]).is_empty());
        let one = between(&["m.wieght", "m.bias", "adam.m"]).error("`w`").unwrap().message;
        assert!(
            one.contains("no variable has the name `m.wieght` (did you mean `m.weight`?)"),
            "{one}"
        );
        assert!(one.ends_with("variable `m.weight` has no value"), "{one}");
        let many = between(&["a", "encoder"]).to_string();
        assert!(
            many.contains("these 2 names: `a`") && many.contains("2 variables have no value"),
            "{many}"
        );
        let types = BTreeMap::from([("m.bias".to_owned(), TensorType::new(DType::F32, [2usize]))]);
        let error = check_types(&weights(&["m.bias"]), &types, "`w`").unwrap_err().message;
        assert!(error.contains("`m.bias` is f32[2], the weights in `w` have f32[]"), "{error}");
    }
}
