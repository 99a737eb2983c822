//! `#[derive(Differentiable)]`.

use crate::support::{paths, run, tensor, vector};
use std::marker::PhantomData;
use wengert_core::{Differentiable, KeyPath, Tensor};

/// Replaces each tensor by one that is longer by 100. Asserts that `map_tensors` and `tangent` give
/// the same key paths and extents.
fn grow<T: Differentiable<TangentVector = T>>(value: &T) -> T {
    let longer =
        |t: &Tensor| tensor(100 + t.shape()[0].as_extent().expect("the extents here are numbers"));
    let mapped = value.map_tensors(&KeyPath::default(), &mut |_, t| longer(t));
    let tangent = value.tangent(&KeyPath::default(), &mut |_, t| longer(t));
    assert_eq!(paths(&mapped), paths(&tangent));
    mapped
}

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
    #[no_derivative]
    width: usize,
}

fn linear(n: usize, bias: bool) -> Linear {
    Linear { weight: tensor(n), bias: bias.then(|| tensor(n + 1)), width: n }
}

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
struct Pair(Linear, Tensor, #[no_derivative] &'static str);

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
struct Nothing;

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
struct Model<H, M> {
    layers: Vec<Linear>,
    r#type: [Tensor; 2],
    pair: Pair,
    head: Box<H>,
    nothing: Nothing,
    #[no_derivative]
    marker: PhantomData<M>,
    #[no_derivative]
    activation: fn(&Tensor) -> Tensor,
}

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
enum Layer {
    Dense(Linear),
    Residual { inner: Box<Layer>, scale: Tensor },
    Flatten,
    Dropout(#[no_derivative] f64),
}

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
enum Tree<T> {
    Leaf(T),
    Node(Vec<Tree<T>>),
}

#[test]
fn structs_are_visited_field_by_field() {
    let model = Model::<Pair, u8> {
        layers: vec![linear(1, true), linear(3, false)],
        r#type: [tensor(4), tensor(5)],
        pair: Pair(linear(6, false), tensor(7), "name"),
        head: Box::new(Pair(linear(8, false), tensor(9), "head")),
        nothing: Nothing,
        marker: PhantomData,
        activation: |t| t.clone(),
    };
    let expected = [
        "layers.0.weight:1",
        "layers.0.bias:2",
        "layers.1.weight:3",
        "type.0:4",
        "type.1:5",
        "pair.0.weight:6",
        "pair.1:7",
        "head.0.weight:8",
        "head.1:9",
    ];
    assert_eq!(paths(&model), expected);
    let grown = grow(&model);
    assert_eq!(paths(&grown)[3], "type.0:104");
    assert_eq!((grown.pair.2, grown.layers[1].width), ("name", 3));
    assert!(grown.layers[1].bias.is_none());
    let (_, _) = (grown.marker, grown.activation);
}

#[test]
fn enums_are_visited_in_their_variant() {
    let layers = vec![
        Layer::Dense(linear(1, true)),
        Layer::Residual { inner: Box::new(Layer::Dense(linear(3, false))), scale: tensor(4) },
        Layer::Flatten,
        Layer::Dropout(0.5),
    ];
    assert_eq!(paths(&layers), ["0.0.weight:1", "0.0.bias:2", "1.inner.0.weight:3", "1.scale:4"]);
    let grown = grow(&layers);
    assert!(matches!(grown[2], Layer::Flatten));
    assert!(matches!(grown[3], Layer::Dropout(p) if p == 0.5));
}

#[test]
fn types_may_be_recursive_and_generic() {
    let tree = Tree::Node(vec![Tree::Leaf(tensor(1)), Tree::Node(vec![Tree::Leaf(tensor(2))])]);
    assert_eq!(paths(&tree), ["0.0.0:1", "0.1.0.0.0:2"]);
    assert_eq!(paths(&grow(&tree)), ["0.0.0:101", "0.1.0.0.0:102"]);
}

/// A direction. Its tangent vector has another type.
struct Heading(Tensor);

struct Turn(Tensor);

impl Differentiable for Turn {
    type TangentVector = Turn;
    fn visit_tensors(&self, path: &KeyPath, visit: &mut dyn FnMut(&KeyPath, &Tensor)) {
        visit(&path.child("turn"), &self.0);
    }
    fn map_tensors(
        &self,
        path: &KeyPath,
        map: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor,
    ) -> Self {
        Turn(map(&path.child("turn"), &self.0))
    }
    fn tangent(&self, path: &KeyPath, make: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor) -> Turn {
        Turn(make(&path.child("turn"), &self.0))
    }
}

impl Differentiable for Heading {
    type TangentVector = Turn;
    fn visit_tensors(&self, path: &KeyPath, visit: &mut dyn FnMut(&KeyPath, &Tensor)) {
        visit(path, &self.0);
    }
    fn map_tensors(
        &self,
        path: &KeyPath,
        map: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor,
    ) -> Self {
        Heading(map(path, &self.0))
    }
    fn tangent(&self, path: &KeyPath, make: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor) -> Turn {
        Turn(make(path, &self.0))
    }
    /// Moves by twice the tangent. The factor shows that the derived code calls this method.
    fn move_along(&self, turn: &Turn) -> Self {
        Heading(&self.0 + &turn.0 * 2.0)
    }
}

/// The derive macro generates its tangent vector.
#[derive(Differentiable)]
#[differentiable(crate = wengert_core, synthesize = ShipTangent)]
struct Ship<T: Clone, const N: usize, M = ()>
where
    M: Default,
{
    #[no_derivative]
    #[allow(dead_code)]
    owner: M,
    heading: Heading,
    sails: [T; N],
    hold: Option<Box<Ship<T, N>>>,
}

#[derive(Differentiable)]
#[differentiable(crate = wengert_core, synthesize = MoveTangent)]
enum Move {
    Rest,
    Wait(#[no_derivative] u32),
    Turn(#[no_derivative] &'static str, Heading),
    Go { by: Tensor, to: Heading },
}

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
#[differentiable(tangent = Course<T::TangentVector>)]
struct Journey<T: Differentiable> {
    start: Heading,
    #[no_derivative]
    legs: usize,
    rest: T,
}

/// A tangent vector that the user wrote.
#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
struct Course<T> {
    start: Turn,
    rest: T,
}

fn heading(x: f64) -> Heading {
    Heading(vector(&[x]))
}

fn ship() -> Ship<Tensor, 2> {
    let sails = |x: f64| [vector(&[x]), vector(&[x + 1.0])];
    let hold = Ship { owner: (), heading: heading(4.0), sails: sails(5.0), hold: None };
    Ship { owner: (), heading: heading(1.0), sails: sails(2.0), hold: Some(Box::new(hold)) }
}

#[test]
fn a_tangent_vector_is_made_where_a_field_is_not_its_own() {
    let all = run(|| {
        let ship = ship();
        let tangent: ShipTangent<Tensor, 2> =
            ship.tangent(&KeyPath::default(), &mut |_, t| t * 100.0);
        ship.move_along(&tangent)
    });
    let expected = [
        ("heading", 201.0),
        ("sails.0", 202.0),
        ("sails.1", 303.0),
        ("hold.heading", 804.0),
        ("hold.sails.0", 505.0),
        ("hold.sails.1", 606.0),
    ];
    assert_eq!(all.unwrap(), expected.map(|(path, x)| (path.to_string(), vec![x])));
    let zero = run(|| {
        let zero = ship().zero_tangent();
        // A tensor inside of a user's tangent vector has its own key path.
        assert_eq!(paths(&zero)[..2], ["heading.turn:1", "sails.0:1"]);
        let mut components = 0;
        ship().components(&zero, &mut |_| components += 1);
        assert_eq!(components, 6);
        zero
    });
    assert!(zero.unwrap().iter().all(|(_, elements)| elements == &[0.0]));
}

#[test]
fn variants_have_tangents_of_the_same_variant() {
    let moves = || {
        vec![
            Move::Rest,
            Move::Wait(3),
            Move::Turn("port", heading(1.0)),
            Move::Go { by: vector(&[2.0]), to: heading(3.0) },
        ]
    };
    let all = run(|| {
        let moves = moves();
        let tangent: Vec<MoveTangent> = moves.tangent(&KeyPath::default(), &mut |_, t| t.clone());
        assert!(matches!(
            tangent[..],
            [MoveTangent::Rest, MoveTangent::Wait, MoveTangent::Turn(_), MoveTangent::Go { .. }]
        ));
        // Marked fields have no place in the tangent. The key paths of the other fields stay the
        // same.
        assert_eq!(paths(&tangent), ["2.1.turn:1", "3.by:1", "3.to.turn:1"]);
        let moved = moves.move_along(&tangent);
        assert!(matches!(moved[1..3], [Move::Wait(3), Move::Turn("port", _)]));
        moved
    });
    assert_eq!(
        all.unwrap(),
        [("2.1".into(), vec![3.0]), ("3.by".into(), vec![4.0]), ("3.to".into(), vec![9.0])]
    );
    let error =
        run(|| Move::Turn("port", heading(1.0)).move_along(&MoveTangent::Rest)).unwrap_err();
    assert!(
        error.contains("of another variant of the enum") && error.contains("derive.rs:"),
        "{error}"
    );
}

#[test]
fn a_tangent_vector_of_the_users_has_the_fields_that_are_not_marked() {
    let all = run(|| {
        let journey = Journey { start: heading(1.0), legs: 3, rest: Some(heading(10.0)) };
        let course: Course<Option<Turn>> = journey.zero_tangent();
        let course = Course { start: Turn(vector(&[0.25])), ..course };
        let moved = journey.move_along(&course);
        assert_eq!(moved.legs, 3);
        moved
    });
    assert_eq!(all.unwrap(), [("start".into(), vec![1.5]), ("rest".into(), vec![10.0])]);
}
