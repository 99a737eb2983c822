//! Round trips of attributes, regions and built functions through text.

use super::*;
use crate::build::tensor::Tensor;
use crate::graph::print::{PrintOptions, print_attribute, print_function};
use crate::{Dim, Literal, Scalar};
use proptest::prelude::*;

fn attribute() -> impl Strategy<Value = Attribute> {
    let dtype = || (0..DType::ALL.len()).prop_map(|i| DType::ALL[i]);
    let scalar = (dtype(), any::<u64>()).prop_map(|(d, bits)| Scalar::from_bits(d, bits));
    let dim = (any::<i32>(), prop::collection::btree_map("[A-E][a-z.]{0,0}", any::<i32>(), 0..4));
    let literal = (scalar.clone(), prop::collection::vec(0usize..4, 0..4));
    let leaf = prop_oneof![
        any::<bool>().prop_map(Attribute::Bool),
        dim.prop_map(|(c, terms)| {
            let terms = terms.into_iter().map(|(n, c)| (n.into(), i64::from(c)));
            Attribute::Dim(Dim::linear(i64::from(c), terms).unwrap())
        }),
        any::<i64>().prop_map(|c| Attribute::Dim(Dim::constant(c))),
        dtype().prop_map(Attribute::DType),
        any::<String>().prop_map(Attribute::Text),
        "[a-z0-9_]{1,9}".prop_map(Attribute::Function),
        scalar.prop_map(Attribute::Scalar),
        literal.prop_map(|(s, shape)| Attribute::Literal(Literal::full(&shape, s))),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop::collection::vec(inner, 0..4).prop_map(Attribute::List)
    })
}

proptest! {
    #[test]
    fn attributes_round_trip(attribute in attribute()) {
        let mut text = String::new();
        print_attribute(&mut text, &attribute);
        let mut c = Cursor::new("f", &text);
        let parsed = parse_attribute(&mut c).and_then(|a| c.expect_end().map(|()| a));
        prop_assert_eq!(parsed, Ok(attribute), "{}", text);
    }
}

/// Regions are parsed before the verifier checks whether the op takes any.
#[test]
fn regions_round_trip() {
    let text = "func @f(%x: f32[2]) -> (f32[2]) {\n  \
          %0: f32[2], %1: f32[2] = neg %x\n    \
            region (%2: f32[2], %3: i32[]) {\n      \
              %4: f32[2] = exp %2\n      \
              %5: f32[2] = neg %4\n        \
                region () {\n          \
                  return\n        \
                }\n      \
              return %5, %3\n    \
            }\n    \
            region (%6: f32[2]) {\n      \
              return %6, %6\n    \
            }\n  \
          %7: f32[2] = add %0, %1\n  \
          return %7\n\
        }\n";
    let (function, places) = read_function(&mut Cursor::new("f.ir", text), &[]).unwrap();
    assert_eq!(function.to_string(), text);
    let lines: Vec<u32> = places.equations.iter().map(|t| t.line).collect();
    assert_eq!(lines, [2, 4, 5, 14]);
    let regions = &function.body.equations[0].regions;
    assert_eq!((regions.len(), regions[0].equations[1].regions.len()), (2, 1));
    assert_eq!(function.clone().renumber(), function);

    let located = print_function(&function, &PrintOptions { locations: true });
    let (again, _) = read_function(&mut Cursor::new("g.ir", &located), &[]).unwrap();
    assert_eq!(again, function);
}

#[test]
fn what_the_builder_makes_round_trips() {
    let function = crate::build::FunctionBuilder::build("f", |f| {
        let x = f.input("x", TensorType::new(DType::F32, [2usize]));
        let scaled = &x * 2.0;
        // Declared after an equation, so values are renumbered.
        let w = f.state("w", Tensor::variable(x.ty().clone(), crate::Initializer::Zeros));
        f.output("y", &(&w + &scaled));
        f.update("w", &scaled);
    })
    .unwrap();
    let text = print_function(&function, &PrintOptions { locations: true });
    let parsed = parse_program(&text, "f.ir").unwrap();
    assert_eq!(parsed.functions()[0], function, "{text}");
    assert!(text.contains("loc 1 = \"core/src/graph/parse/tests.rs\":"), "{text}");
}
