//! Tests of dimensions.

use super::*;
use std::collections::BTreeSet;

#[test]
fn a_poisoned_dimension_passes_its_error_on() {
    let error = Arc::new(Diagnostic::new("the first error"));
    let p = Dim::poisoned(error.clone());
    let (two, b) = (Dim::constant(2), b());
    let made = [
        p.checked_add(&b),
        b.checked_sub(&p),
        p.checked_scale(3),
        p.checked_mul(&p),
        b.checked_mul(&p),
        p.checked_floor_div(0),
        two.checked_exact_div(&p),
    ];
    for dim in made {
        assert_eq!(dim.unwrap().error(), Some(&*error));
    }
    assert_eq!(p.bind(&Binding::new()).unwrap_err(), *error);
    assert_eq!(p.solve(1, &mut Binding::new()).unwrap_err(), *error);
    assert_eq!((p.as_extent(), p.to_string()), (Some(1), "?".into()));
    assert_ne!(p, Dim::constant(1));
}

fn b() -> Dim {
    Dim::variable("B")
}

#[test]
fn arithmetic_is_in_normal_form() {
    let d = b().checked_scale(2).unwrap().checked_add(&1i64.into()).unwrap();
    assert_eq!(d.to_string(), "2*B+1");
    assert_eq!(d.checked_sub(&d).unwrap(), Dim::constant(0));
    assert_eq!(d.checked_floor_div(2).unwrap(), b());
    assert_eq!(d.checked_scale(3).unwrap().checked_exact_div(&d).unwrap(), Dim::constant(3));
    assert_eq!(Dim::constant(0).checked_exact_div(&d).unwrap(), Dim::constant(0));
    assert!(b().checked_exact_div(&d).is_none() && d.checked_exact_div(&2i64.into()).is_none());
    assert!(b().checked_scale(i64::MAX).unwrap().checked_scale(2).is_none());
}

#[test]
fn binding_and_solving() {
    let d = Dim::linear(1, [("B".into(), 2)]).unwrap();
    assert_eq!(d.bind(&Binding::new().with("B", 3)).unwrap().as_extent(), Some(7));
    let mut binding = Binding::new();
    d.solve(9, &mut binding).unwrap();
    assert_eq!(binding.get("B"), Some(4));
    assert!(d.solve(11, &mut binding).is_err());
    assert!(d.solve(8, &mut Binding::new()).is_err());
}

#[test]
fn bounds_without_binding() {
    assert!(b().at_least(1) && !b().at_least(2));
    assert!(Dim::constant(3).at_most(&Dim::linear(2, [("B".into(), 1)]).unwrap()));
    assert!(!b().at_most(&Dim::constant(100)));
}

fn dim(text: &str) -> Dim {
    Dim::from(text)
}

#[test]
fn products_are_in_normal_form() {
    let (b, t) = (dim("B"), dim("T"));
    assert_eq!(t.checked_mul(&b).unwrap().to_string(), "B*T");
    assert_eq!(dim("T*B").to_string(), "B*T");
    assert_eq!(dim("2*T*B+B*T").to_string(), "3*B*T");
    assert_eq!((&b * &t - &t * &b).as_constant(), Some(0));
    assert_eq!(((&b + 1) * (&b - 1)).to_string(), "B*B+-1");
    assert_eq!((&b + &t) * 2, 2 * &t + 2 * &b);
    let mut names = BTreeSet::new();
    dim("2*B*T+H").collect_variables(&mut names);
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["B", "H", "T"].map(Arc::from));
}

#[test]
fn quotients_are_exact() {
    for (whole, part, quotient) in [
        ("B*T", "B", Some("T")),
        ("2*B*T", "2*T", Some("B")),
        ("B*T+B", "T+1", Some("B")),
        ("B*B+-1", "B+1", Some("B+-1")),
        ("B*B*T+2*B*T", "B*T", Some("B+2")),
        ("6*B", "4", None),
        ("B*T", "H", None),
        ("B*T+1", "B", None),
        ("B", "B*T", None),
    ] {
        let found = dim(whole).checked_exact_div(&dim(part));
        assert_eq!(found.map(|q| q.to_string()).as_deref(), quotient, "{whole} / {part}");
    }
    assert!(dim("B").checked_exact_div(&Dim::constant(0)).is_none());
    assert_eq!((dim("2*B*T+4") / 2).to_string(), "B*T+2");
    assert!((dim("B") / 2).error().unwrap().message.contains("B / 2 is no dimension"));
}

#[test]
fn bounds_of_products() {
    assert!(dim("B").at_most(&dim("B*T")) && dim("B*T").at_least(1));
    assert!(dim("B+T").at_most(&dim("B*T+1")) && !dim("B+T").at_most(&dim("B*T")));
    assert!(!dim("B*T").at_most(&dim("B")) && !dim("B*T+-1").at_least(1));
}

#[test]
fn products_are_bound_one_variable_at_a_time() {
    let d = dim("3*B*T*T+T");
    let some = d.bind(&Binding::new().with("T", 2)).unwrap();
    assert_eq!(some.to_string(), "12*B+2");
    let mut binding = Binding::new().with("T", 2);
    d.solve(26, &mut binding).unwrap();
    assert_eq!(binding.get("B"), Some(2));
    assert!(dim("B*T").solve(6, &mut Binding::new()).is_err());
    assert!(dim("B*B").solve(9, &mut Binding::new()).is_err());
    assert!(dim("B*B").bind(&Binding::new().with("B", i64::MAX)).is_err());
}

#[test]
fn what_would_grow_too_large_is_refused() {
    let power = |n: usize| (1..n).try_fold(dim("B"), |p, _| p.checked_mul(&dim("B")));
    assert!(power(MAX_FACTORS).is_some() && power(MAX_FACTORS + 1).is_none());
    let sum = |n: usize| {
        let names = (0..n).map(|i| (Arc::from(format!("v{i}")), 1));
        Dim::linear(0, names).unwrap()
    };
    assert!(sum(4).checked_mul(&sum(4)).is_some());
    assert!(sum(6).checked_mul(&sum(6)).is_none());
    let product = sum(6) * sum(6);
    assert!(product.error().unwrap().message.contains("is no dimension"));
}
