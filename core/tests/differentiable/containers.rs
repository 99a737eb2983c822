//! Containers, key paths, and arguments without a gradient.

use crate::support::{elements, map, paths, run, tensor, vector};
use std::collections::BTreeMap;
use wengert_core::{Differentiable, NoDerivative, Tensor, VectorSpace};

fn maps(keys: &[&str]) -> BTreeMap<String, Vec<Tensor>> {
    keys.iter().enumerate().map(|(i, key)| (key.to_string(), vec![tensor(i + 1)])).collect()
}

#[test]
fn items_have_their_index_or_key_as_path() {
    assert_eq!(paths(&maps(&["query", "key"])), ["key.0:2", "query.0:1"]);
    assert_eq!(paths(&[Some(tensor(1)), None, Some(tensor(3))]), ["0:1", "2:3"]);
    assert_eq!(paths(&(tensor(1), Box::new((tensor(2),)), ())), ["0:1", "1.0:2"]);
    let t = |n| tensor(n);
    let eight = (t(1), t(2), t(3), t(4), t(5), t(6), t(7), t(8));
    assert_eq!(paths(&eight).len(), 8);
    let twelve = (t(1), t(2), t(3), t(4), t(5), t(6), t(7), t(8), t(9), t(10), t(11), t(12));
    assert_eq!(paths(&twelve)[11], "11:12");
}

#[test]
fn a_container_moves_item_by_item() {
    let moved = elements(|| {
        let value = (vec![vector(&[1.0])], [vector(&[2.0])], Some(vector(&[3.0])), maps(&[]));
        value.move_along(&(
            vec![vector(&[10.0])],
            [vector(&[20.0])],
            Some(vector(&[30.0])),
            maps(&[]),
        ))
    });
    assert_eq!(moved, [11.0, 22.0, 33.0]);
    let components = run(|| {
        let point = (vec![tensor(1)], maps(&["a"]), Box::new(tensor(2)));
        let mut components = Vec::new();
        point.components(&point.zero_tangent(), &mut |t| components.push(t.clone()));
        components
    });
    let expected = [("0", 1), ("1", 1), ("2", 2)];
    assert_eq!(components.unwrap(), expected.map(|(path, n)| (path.to_string(), vec![0.0; n])));
}

#[test]
fn a_tangent_of_another_structure_is_an_error() {
    let errors = [
        run(|| vec![vector(&[1.0])].move_along(&vec![])),
        run(|| Some(vector(&[1.0])).move_along(&None)),
        run(|| None::<Tensor>.move_along(&Some(vector(&[1.0])))),
        run(|| maps(&["a"]).move_along(&maps(&["b"]))),
        run(|| vector(&[1.0]).move_along(&vector(&[1.0, 2.0]))),
        run(|| vector(&[1.0, 2.0]).move_along(&vector(&[1.0]))),
        run(|| vec![vector(&[1.0])].inner(&vec![vector(&[1.0, 2.0])])),
    ];
    let expected = [
        "it has 0 items, the value has 1",
        "one of the two options is `Some`",
        "one of the two options is `Some`",
        "it has the keys [\"b\"], the value has [\"a\"]",
        "a tensor of type f64[1] has a tangent of type f64[2]",
        "a tensor of type f64[2] has a tangent of type f64[1]",
        "a tensor of type f64[1] has a tangent of type f64[2]",
    ];
    for (error, expected) in errors.into_iter().zip(expected) {
        let error = error.unwrap_err();
        assert!(error.contains(expected) && error.contains("containers.rs:"), "{error}");
    }
    // Components are poison where the value and the tangent have different structures.
    let mut poisoned = 0;
    vec![tensor(1), tensor(2)]
        .components(&vec![], &mut |t| poisoned += t.error().is_some() as usize);
    Some(tensor(1)).components(&None, &mut |t| poisoned += t.error().is_some() as usize);
    maps(&["a"]).components(&maps(&[]), &mut |t| poisoned += t.error().is_some() as usize);
    assert_eq!(poisoned, 4);
}

#[test]
fn integers_stay_where_they_are() {
    let moved = elements(|| {
        let count = Tensor::constant(3i32);
        (count.clone(), vector(&[1.0])).move_along(&(Tensor::constant(5i32), vector(&[1.0])))
    });
    assert_eq!(moved, [3.0, 2.0]);
}

#[test]
fn tensors_are_read_and_written_by_key_path() {
    let model = (vec![vector(&[1.0]), vector(&[2.0])], Some(vector(&[3.0, 4.0])));
    assert_eq!(model.tensor("1").unwrap().ty().to_string(), "f64[2]");
    let error = model.tensor("0.2").unwrap_err().to_string();
    assert!(
        error.contains("no differentiable tensor `0.2`") && error.contains("`0.0`, `0.1`, `1`"),
        "{error}"
    );
    let changed =
        model.with_tensors([("1", vector(&[5.0, 6.0])), ("0.0", vector(&[7.0]))]).unwrap();
    assert_eq!(elements(|| changed), [7.0, 2.0, 5.0, 6.0]);
    let wrong = |replacements: Vec<(&str, Tensor)>| {
        model.with_tensors(replacements).unwrap_err().to_string()
    };
    assert!(wrong(vec![("2", tensor(1))]).contains("no differentiable tensor `2`"));
    assert!(
        wrong(vec![("1", tensor(1))])
            .contains("`1` has type f64[2], the tensor to replace it has type f32[1]")
    );
    assert!(
        wrong(vec![("0.0", vector(&[1.0])), ("0.0", vector(&[2.0]))]).contains("replaced twice")
    );
    // Maps all tensors at once, as the step of a user's optimiser does.
    let doubled = elements(|| map(&model, |path, t| if path == "1" { t * 2.0 } else { t.clone() }));
    assert_eq!(doubled, [1.0, 2.0, 6.0, 8.0]);
}

#[test]
fn what_gets_no_gradient_holds_no_tensors_and_has_nothing_as_its_tangent() {
    let point = (vector(&[1.0]), NoDerivative(vector(&[2.0])), NoDerivative("name"));
    assert_eq!(paths(&point), ["0:1"]);
    let (_, nothing, _): (Tensor, (), ()) = point.zero_tangent();
    let moved = elements(|| {
        let (x, constant, name) = point.move_along(&(vector(&[1.0]), nothing, ()));
        assert_eq!(*name, "name");
        vec![x, constant.0]
    });
    assert_eq!(moved, [2.0, 2.0]);
}
