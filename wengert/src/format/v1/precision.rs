//! Policies of precision to and from version 1.

use super as v1;
use crate::format::container::damaged;
use wengert_compiler::precision::Precision;
use wengert_core::Result;

/// Converts a policy to a record.
pub fn to_record(policy: &Precision) -> v1::Precision {
    let equations = policy.kept_equations();
    v1::Precision {
        half: policy.half().name().into(),
        ops: policy.kept_ops().map(str::to_owned).collect(),
        paths: policy.kept_paths().map(str::to_owned).collect(),
        equations: equations.map(|(name, number)| (name.to_owned(), number as u64)).collect(),
    }
}

/// Converts a record to a policy.
///
/// # Errors
/// There is no such policy or op; a text is no pattern; a number does not fit.
pub fn from_record(record: v1::Precision) -> Result<Precision> {
    let mut policy = Precision::named(&record.half)?;
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

    fn sample() -> Precision {
        let policy = Precision::f16().keep_op("softmax").unwrap().keep_path("model.*.w").unwrap();
        policy.keep_equation("loss", 12).keep_equation("loss", 3)
    }

    #[test]
    fn round_trip() {
        for policy in [Precision::bf16(), sample()] {
            let bytes = codec::encode("precision", &to_record(&policy)).unwrap();
            assert_eq!(from_record(codec::decode("precision", &bytes).unwrap()).unwrap(), policy);
        }
        let text = "f16, in f32: softmax, model.*.w, loss:3, loss:12";
        assert_eq!(sample().to_string(), text);
    }

    #[test]
    fn names_must_be_known() {
        let says = |change: &dyn Fn(&mut v1::Precision), text: &str| {
            let mut record = to_record(&sample());
            change(&mut record);
            let error = from_record(record).unwrap_err();
            assert!(error.message.contains(text), "{error}");
        };
        says(&|record| record.half = "f64".into(), "there is no precision `f64`");
        says(&|record| record.ops[0] = "sotfmax".into(), "there is no op `sotfmax`");
        says(&|record| record.paths[0] = "a***".into(), "`a***` is no pattern");
    }
}
