//! Values of inputs and variables; printing and comparison of values.

use crate::cli::ValueArgs;
use crate::console::Outcome;
use crate::source::{Source, pair};
use serde_json::{Value, json};
use wengert::available_memory::Promise;
use wengert::core::graph::InputRole;
use wengert::data::spec::{self, Found, Spec};
use wengert::data::{self, Arrays};
use wengert::random::{hash_name, key};
use wengert::signature::Signature;
use wengert::{Binding, DType, Literal, Scalar, TensorType, diagnostic};

/// Everything that a function needs to run, before random and zero inputs are generated.
pub struct Gathered {
    /// Values of the dimension variables.
    pub binding: Binding,
    /// Inputs and keys.
    inputs: Vec<Found>,
    /// Variables from files, and variables that the function takes.
    pub variables: Arrays,
}

impl Gathered {
    /// Promises memory for the inputs still to be made, until the promise is dropped.
    pub fn promise(&self) -> Promise {
        Promise::to_allocate(
            self.inputs.iter().map(Found::bytes_to_make).fold(0, u64::saturating_add),
        )
    }

    /// Makes all inputs.
    pub fn make(self) -> Outcome<Given> {
        let inputs = self.inputs.into_iter().map(Found::make).collect::<wengert::Result<_>>()?;
        Ok(Given { binding: self.binding, inputs, variables: self.variables })
    }
}

/// Everything that a function needs to run.
pub struct Given {
    /// Values of the dimension variables.
    pub binding: Binding,
    /// Inputs and keys.
    pub inputs: Vec<(String, Literal)>,
    /// Variables from files, and variables that the function takes.
    pub variables: Arrays,
}

impl Given {
    /// Inputs in the form of [`wengert::Compiled::run`].
    pub fn inputs(&self) -> Vec<(&str, &Literal)> {
        self.inputs.iter().map(|(name, literal)| (name.as_str(), literal)).collect()
    }

    /// A value for every input of the function, in order.
    pub fn in_order(&self, signature: &Signature) -> Vec<Literal> {
        let find =
            |name: &str| self.inputs.iter().find(|(n, _)| n == name).map(|(_, literal)| literal);
        let value = |name: &String| find(name).or_else(|| self.variables.get(name)).cloned();
        let values = signature.inputs.iter().map(|input| value(&input.name));
        values.map(|value| value.expect("`gather` found a value for every input")).collect()
    }
}

/// Finds a value for every input and variable of the selected function: from `--input`, then from
/// `--params` and the file's own weights; keys from `--seed`. `fill` is the default for inputs
/// without a value; without it they are an error.
pub fn gather(
    source: &Source,
    signature: &Signature,
    args: &ValueArgs,
    binds: &[String],
    fill: Option<&Spec>,
) -> Outcome<Gathered> {
    let limit = args.reading.limit();
    let mut variables = source.weights()?;
    if let Some(path) = &args.params {
        variables.extend(data::read_all_within(path, limit)?);
    }
    let mut variables = source.cast_to_param(variables)?;
    let mut binding = source.binding(binds)?;
    let mut specs: Vec<(&str, Spec)> = Vec::new();
    for text in &args.inputs {
        let (name, spec) = pair("input", text)?;
        specs.push((
            name,
            Spec::parse(spec).map_err(|e| e.context(format_args!("input `{name}`")))?,
        ));
    }
    // The inputs that take a spec: all but variables with a value from a file.
    let mut wanted: Vec<(&str, &TensorType)> = Vec::new();
    for input in &signature.inputs {
        let (name, ty) = (input.name.as_str(), &input.ty);
        let given = specs.iter().any(|(n, _)| *n == name);
        match variables.get(name) {
            Some(value) if input.is_variable() && !given => {
                spec::bind(name, ty, value, &mut binding)
                    .map_err(|e| e.context(format_args!("variable of @{}", signature.name)))?;
                continue;
            }
            _ if given => {}
            _ if input.role == InputRole::Key => {
                specs.push((name, Spec::Value(key(args.seed, hash_name(name)))))
            }
            _ => match fill {
                Some(fill) => specs.push((name, fill.clone())),
                None if input.is_variable() => {
                    let role = input.role.name();
                    return Err(diagnostic!("{role} `{name}` ({ty}) has no value")
                        .help(format!(
                            "give a file with `--params`, or one tensor with `--input {name}=SPEC`"
                        ))
                        .into());
                }
                // `resolve` reports the missing value.
                None => {}
            },
        }
        wanted.push((name, ty));
    }
    let mut inputs = spec::find(&wanted, &specs, &mut binding, limit)
        .map_err(|e| e.context(format_args!("@{}", signature.name)))?;
    for input in signature.inputs.iter().filter(|input| input.is_variable()) {
        if let Some(at) = inputs.iter().position(|found| found.name == input.name) {
            let (name, value) = inputs.remove(at).make()?;
            variables.insert(name, value);
        }
    }
    Ok(Gathered { binding, inputs, variables })
}

/// `{"dtype": …, "shape": […], "values": […]}`, elements in row-major order; NaN and infinities
/// are strings.
pub fn to_json(literal: &Literal) -> Value {
    let element = |scalar: Scalar| match scalar.dtype() {
        DType::Bool => json!(scalar.get::<bool>()),
        DType::U64 => json!(scalar.get::<u64>()),
        // The shortest decimal of the dtype, not of its value as f64.
        d if d.is_real() => match scalar.to_string().parse::<f64>() {
            Ok(value) if value.is_finite() => json!(value),
            _ => json!(scalar.to_string()),
        },
        _ => json!(scalar.to_i64()),
    };
    let values: Vec<Value> = literal.scalars().map(element).collect();
    json!({ "dtype": literal.dtype().name(), "shape": literal.shape(), "values": values })
}

/// The difference of two tensors.
#[derive(Clone, PartialEq, Debug)]
pub struct Difference {
    /// A description in one sentence.
    pub message: String,
    /// Number of elements outside the tolerance.
    pub elements: usize,
}

/// Compares with tolerance: |found − expected| ≤ atol + rtol · |expected|, where a NaN equals a
/// NaN. With both tolerances 0 the bits must be equal.
pub fn compare(
    found: &Literal,
    expected: &Literal,
    rtol: f64,
    atol: f64,
) -> Result<(), Difference> {
    if found.ty() != expected.ty() {
        let message = format!("it is {}, expected is {}", found.ty(), expected.ty());
        return Err(Difference { message, elements: expected.len() });
    }
    let exact = rtol == 0.0 && atol == 0.0;
    let near = |a: Scalar, b: Scalar| {
        let (x, y) = (a.to_f64(), b.to_f64());
        // An infinity equals only itself: it must not make its own tolerance infinite.
        let within = y.is_finite() && (x - y).abs() <= atol + rtol * y.abs();
        a == b || (!exact && ((x.is_nan() && y.is_nan()) || x == y || within))
    };
    // The worst element by the excess over the tolerance. A NaN or an infinity on one side only
    // ranks highest.
    let mut worst: Option<(f64, usize)> = None;
    let mut elements = 0;
    for i in 0..found.len() {
        let (a, b) = (found.get(i), expected.get(i));
        if near(a, b) {
            continue;
        }
        elements += 1;
        let excess = (a.to_f64() - b.to_f64()).abs()
            / (atol + rtol * b.to_f64().abs()).max(f64::MIN_POSITIVE);
        let excess = if excess.is_nan() { f64::INFINITY } else { excess };
        if worst.is_none_or(|(most, _)| excess > most) {
            worst = Some((excess, i));
        }
    }
    match worst {
        None => Ok(()),
        Some((_, i)) => Err(Difference {
            message: format!(
                "{elements} of {} elements differ; most at {:?}: {} is found, {} is expected",
                found.len(),
                index(found.shape(), i),
                found.get(i),
                expected.get(i)
            ),
            elements,
        }),
    }
}

fn index(shape: &[usize], mut flat: usize) -> Vec<usize> {
    let mut index: Vec<usize> = shape
        .iter()
        .rev()
        .map(|extent| {
            let i = flat % extent;
            flat /= extent;
            i
        })
        .collect();
    index.reverse();
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Literal {
        Literal::from_vec(&[values.len()], values.to_vec()).unwrap()
    }

    #[test]
    fn without_tolerance_bits_are_compared() {
        assert!(compare(&floats(&[f32::NAN, 1.0]), &floats(&[f32::NAN, 1.0]), 0.0, 0.0).is_ok());
        assert!(compare(&floats(&[-0.0]), &floats(&[0.0]), 0.0, 0.0).is_err());
        assert!(compare(&floats(&[-0.0]), &floats(&[0.0]), 0.0, 1e-9).is_ok());
    }

    #[test]
    fn tolerances_bound_the_difference() {
        let ok = |a, b, rtol, atol| compare(&floats(&[a]), &floats(&[b]), rtol, atol).is_ok();
        assert!(ok(101.0, 100.0, 0.01, 0.0) && !ok(101.1, 100.0, 0.01, 0.0));
        assert!(ok(0.5, 0.0, 0.0, 0.5) && !ok(0.6, 0.0, 0.0, 0.5));
        assert!(ok(f32::NAN, f32::NAN, 0.1, 0.0) && !ok(f32::NAN, 1.0, 1e9, 1e9));
        assert!(ok(f32::INFINITY, f32::INFINITY, 0.1, 0.0) && !ok(1.0, f32::INFINITY, 0.1, 0.0));
        assert!(!ok(f32::INFINITY, 1.0, 0.1, 0.0));
    }

    #[test]
    fn the_worst_element_is_named() {
        let expected = Literal::from_vec(&[2, 2], vec![1.0f32, 2.0, 3.0, 4.0]).unwrap();
        let found = Literal::from_vec(&[2, 2], vec![1.0f32, 2.5, 13.0, 4.0]).unwrap();
        let difference = compare(&found, &expected, 0.1, 0.0).unwrap_err();
        assert_eq!(
            difference.message,
            "2 of 4 elements differ; most at [1, 0]: 13.0 is found, 3.0 is expected"
        );
        let other = compare(&found, &floats(&[1.0]), 0.1, 0.0).unwrap_err();
        assert_eq!(other.message, "it is f32[2,2], expected is f32[1]");
    }

    #[test]
    fn json_has_the_shortest_decimals() {
        assert_eq!(to_json(&floats(&[0.1, f32::NAN]))["values"], json!([0.1, "nan"]));
        assert_eq!(to_json(&Literal::from(u64::MAX))["values"], json!([u64::MAX]));
        assert_eq!(
            to_json(&Literal::from(true)).to_string(),
            r#"{"dtype":"bool","shape":[],"values":[true]}"#
        );
    }

    #[test]
    fn the_full_text_reads_back() {
        let literal = floats(&(0..2000).map(|i| i as f32 / 7.0).collect::<Vec<_>>());
        assert_eq!(Spec::parse(format!("{literal:#}")).unwrap(), Spec::Value(literal));
    }
}
