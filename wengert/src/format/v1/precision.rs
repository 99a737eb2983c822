//! Policies of precision to and from version 1.

use super as v1;
use crate::format::container::damaged;
use wengert_compiler::precision::{Dtypes, Precision};
use wengert_core::Result;

/// Converts a policy to its records. The second one is of a policy that gives more than products a
/// dtype, or is for some functions only: an earlier reader refuses that section.
pub fn to_record(policy: &Precision) -> (v1::Precision, Option<v1::PrecisionDtypes>) {
    fn owned<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<String> {
        texts.map(str::to_owned).collect()
    }
    let Dtypes { param_dtype, compute_dtype, output_dtype } = policy.dtypes();
    let equations = policy.kept_equations();
    let record = v1::Precision {
        half: compute_dtype.name().into(),
        ops: owned(policy.kept_ops()),
        paths: owned(policy.kept_paths()),
        equations: equations.map(|(name, number)| (name.to_owned(), number as u64)).collect(),
    };
    let dtypes = v1::PrecisionDtypes {
        param_dtype: param_dtype.name().into(),
        output_dtype: output_dtype.name().into(),
        params: owned(policy.param_paths()),
        kept_params: owned(policy.kept_params()),
        functions: owned(policy.only_functions()),
    };
    let usual = Dtypes { compute_dtype, ..Dtypes::default() };
    let has_patterns = [&dtypes.params, &dtypes.kept_params, &dtypes.functions];
    let is_usual =
        policy.dtypes() == usual && has_patterns.iter().all(|patterns| patterns.is_empty());
    (record, (!is_usual).then_some(dtypes))
}

/// Converts records to a policy.
///
/// # Errors
/// There is no such policy, dtype or op; a text is no pattern; a number does not fit.
pub fn from_record(
    record: v1::Precision,
    dtypes: Option<v1::PrecisionDtypes>,
) -> Result<Precision> {
    let mut policy = match record.half.as_str() {
        "f32" => Precision::custom(Dtypes::default())?,
        name => Precision::named(name)?,
    };
    if let Some(dtypes) = dtypes {
        policy = policy
            .param_dtype(dtypes.param_dtype.parse()?)?
            .output_dtype(dtypes.output_dtype.parse()?)?;
        for path in &dtypes.params {
            policy = policy.param_path(path)?;
        }
        for path in &dtypes.kept_params {
            policy = policy.keep_param(path)?;
        }
        for function in &dtypes.functions {
            policy = policy.only_function(function)?;
        }
    }
    for op in &record.ops {
        policy = policy.keep_op(op)?;
    }
    for path in &record.paths {
        policy = policy.keep_path(path)?;
    }
    for (function, number) in &record.equations {
        let number = usize::try_from(*number)
            .map_err(|_| damaged(format!("@{function} has no equation {number}")))?;
        policy = policy.keep_equation(function, number);
    }
    Ok(policy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::codec;
    use wengert_core::DType;

    fn sample() -> Precision {
        let policy = Precision::f16().keep_op("softmax").unwrap().keep_path("model.*.w").unwrap();
        policy.keep_equation("loss", 12).keep_equation("loss", 3)
    }

    /// A policy with everything.
    fn custom() -> Precision {
        let policy = sample().param_dtype(DType::BF16).unwrap().output_dtype(DType::F16).unwrap();
        let policy = policy.param_path("model.*").unwrap().keep_param("model.head.*").unwrap();
        policy.only_function("predict*").unwrap()
    }

    #[test]
    fn round_trip() {
        let all = Precision::custom(Dtypes::default()).unwrap();
        let only = Precision::bf16().only_function("f").unwrap();
        for policy in [Precision::bf16(), sample(), custom(), all, only] {
            let (record, dtypes) = to_record(&policy);
            let bytes = codec::encode("precision", &record).unwrap();
            let dtypes = dtypes.map(|dtypes| {
                let bytes = codec::encode("precision.dtypes", &dtypes).unwrap();
                codec::decode("precision.dtypes", &bytes).unwrap()
            });
            let record = codec::decode("precision", &bytes).unwrap();
            assert_eq!(from_record(record, dtypes).unwrap(), policy);
        }
        let text = "f16, in f32: softmax, model.*.w, loss:3, loss:12";
        assert_eq!(sample().to_string(), text);
        // Policies that earlier versions know have the section that they read, and no other.
        assert!(to_record(&sample()).1.is_none());
    }

    #[test]
    fn names_must_be_known() {
        let says = |change: &dyn Fn(&mut v1::Precision, &mut v1::PrecisionDtypes), text: &str| {
            let (mut record, dtypes) = to_record(&custom());
            let mut dtypes = dtypes.unwrap();
            change(&mut record, &mut dtypes);
            let error = from_record(record, Some(dtypes)).unwrap_err();
            assert!(error.message.contains(text), "{error}");
        };
        says(&|record, _| record.half = "f64".into(), "there is no precision `f64`");
        says(&|record, _| record.ops[0] = "sotfmax".into(), "there is no op `sotfmax`");
        says(&|record, _| record.paths[0] = "a***".into(), "`a***` is no pattern");
        says(&|_, dtypes| dtypes.param_dtype = "f12".into(), "unknown dtype `f12`");
        says(&|_, dtypes| dtypes.output_dtype = "i32".into(), "with results in i32");
        says(&|_, dtypes| dtypes.functions[0] = "a***".into(), "`a***` is no pattern");
    }
}
