//! The graph network against products with the adjacency matrix, under renumbering, against finite
//! differences, and against the historical outcome.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use ndarray::{Array2, Axis, Ix2};
use python_free_examples::graph_network::{
    Edges, GraphNetwork, MEMBERS, club, friendships, program, sides,
};
use wengert::check::{Finding, derivatives};
use wengert::prelude::*;
use wengert::random::SplitMix64;

const WIDTHS: [usize; 3] = [5, 4, 2];

/// The network in f64, from all its inputs to the output of the last layer.
fn network() -> Program {
    let mut program = Program::new();
    program
        .function("network", |f| {
            let edges = Edges { from: f.input("from", i32("E")), to: f.input("to", i32("E")) };
            let features = f.input("features", f64("N,5"));
            let model = f.param("model", nn::with_dtype(&GraphNetwork::new(&WIDTHS), DType::F64));
            f.output("y", model.call(&edges, &features));
        })
        .unwrap();
    program
}

fn indices(nodes: impl Iterator<Item = usize>) -> Literal {
    let nodes: Vec<i32> = nodes.map(|node| node as i32).collect();
    Literal::from_vec(&[nodes.len()], nodes).unwrap()
}

fn features(seed: u64) -> Array2<f64> {
    let mut random = SplitMix64::new(seed);
    Array2::from_shape_fn((MEMBERS, WIDTHS[0]), |_| random.unit_f64() - 0.5)
}

fn matrix(literal: &Literal) -> Array2<f64> {
    literal.as_array::<f64>().unwrap().into_dimensionality::<Ix2>().unwrap().to_owned()
}

/// Sets random weights and runs the network on features and edges.
fn run(session: &mut Session, features: &Array2<f64>, edges: &[(usize, usize)]) -> Array2<f64> {
    let program = network();
    let binding = bind!(N = MEMBERS as i64, E = edges.len() as i64);
    let found = session.compile(&program, "network", binding).unwrap().run(&[
        ("from", indices(edges.iter().map(|e| e.0))),
        ("to", indices(edges.iter().map(|e| e.1))),
        ("features", Literal::from_array(features)),
    ]);
    matrix(found.unwrap().get("y").unwrap())
}

fn session() -> Session {
    let mut session = Session::open(Device::Cpu).unwrap();
    session.initialize(&network(), 4).unwrap();
    // Biases are initialised with zeros. Random ones make mistakes visible.
    for (name, values) in [
        ("model.layers.0.bias", vec![0.3, -0.2, 0.5, 0.1]),
        ("model.layers.1.bias", vec![-0.4, 0.7]),
    ] {
        session.set_variable(name, &Literal::from_vec(&[values.len()], values).unwrap()).unwrap();
    }
    session
}

fn near(a: &Array2<f64>, b: &Array2<f64>) {
    assert_eq!(a.dim(), b.dim());
    let error = (a - b).iter().fold(0.0f64, |greatest, e| greatest.max(e.abs()));
    assert!(error < 1e-13, "{error}");
}

#[test]
fn messages_are_products_with_the_normalised_adjacency_matrix() {
    let (mut session, edges, features) = (session(), friendships(), features(1));
    assert_eq!(edges.len(), 2 * 78);
    let mut adjacency = Array2::<f64>::eye(MEMBERS);
    for (a, b) in &edges {
        assert!(adjacency[[*a, *b]] == 0.0, "a friendship is there once: {a} {b}");
        adjacency[[*a, *b]] = 1.0;
    }
    // Degrees as in Zachary's paper.
    let degrees = adjacency.sum_axis(Axis(1));
    assert_eq!(
        [0, 1, 2, 32, 33].map(|member| degrees[member] - 1.0),
        [16.0, 9.0, 10.0, 12.0, 17.0]
    );
    let normalised = Array2::from_shape_fn(adjacency.dim(), |(i, j)| {
        adjacency[[i, j]] / (degrees[i] * degrees[j]).sqrt()
    });
    let mut x = features.clone();
    for layer in 0..2 {
        let variable =
            |what: &str| session.variable(&format!("model.layers.{layer}.{what}")).unwrap();
        let bias = variable("bias");
        let linear = x.dot(&matrix(&variable("weight"))) + bias.as_array::<f64>().unwrap();
        x = normalised.dot(&linear.into_dimensionality::<Ix2>().unwrap());
        if layer == 0 {
            x.mapv_inplace(f64::tanh);
        }
    }
    near(&run(&mut session, &features, &edges), &x);
}

#[test]
fn it_does_not_matter_how_members_are_numbered() {
    let (mut session, edges, features) = (session(), friendships(), features(2));
    let y = run(&mut session, &features, &edges);
    let order = SplitMix64::new(5).permutation(MEMBERS);
    let renumbered: Vec<(usize, usize)> =
        edges.iter().rev().map(|(a, b)| (order[*a], order[*b])).collect();
    let mut places = vec![0; MEMBERS];
    order.iter().enumerate().for_each(|(member, place)| places[*place] = member);
    let found = run(&mut session, &features.select(Axis(0), &places), &renumbered);
    near(&found, &y.select(Axis(0), &places));
    assert!((&found - &y).iter().any(|e| e.abs() > 1e-3), "the order is another");
}

#[test]
fn gradients_are_those_of_differences() {
    // A small graph with a node without edges and with two equal edges.
    let edges = [(0, 1), (1, 0), (1, 2), (2, 1), (1, 2), (3, 2)];
    let function = network().get("network").unwrap().bind(&bind!(N = 5, E = 6)).unwrap();
    let mut random = SplitMix64::new(3);
    let inputs: Vec<Literal> = (0..function.inputs.len())
        .map(|i| match function.inputs[i].name.as_str() {
            "from" => indices(edges.iter().map(|e| e.0)),
            "to" => indices(edges.iter().map(|e| e.1)),
            _ => {
                let shape: Vec<usize> =
                    function.input_type(i).shape.iter().map(|d| d.as_extent().unwrap()).collect();
                let values = (0..shape.iter().product()).map(|_| random.unit_f64() - 0.5).collect();
                Literal::from_vec::<f64>(&shape, values).unwrap()
            }
        })
        .collect();
    let finding = derivatives(&function, &inputs, 1).unwrap();
    assert!(matches!(finding, Finding::Good(_)), "{finding:?}");
}

#[test]
fn two_members_tell_the_sides_of_all() {
    let program = program(&[MEMBERS, 8, 8, 2]).unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    session.initialize(&program, 1).unwrap();
    let club = club().unwrap();
    let sizes = bind!(N = MEMBERS as i64, E = 156);
    let mut inputs = club.clone();
    inputs.push(("known", indices([0, 33].into_iter())));
    inputs.push(("sides", indices([0, 1].into_iter())));
    let mut step = session.compile(&program, "train_step", sizes.clone().with("K", 2)).unwrap();
    let losses: Vec<f64> =
        (0..200).map(|_| step.run(&inputs).unwrap().scalar("loss").unwrap()).collect();
    assert!(losses[199] < 0.01, "{losses:?}");
    let found = session.compile(&program, "predict", sizes).unwrap().run(&club).unwrap();
    let probabilities = found.get("sides").unwrap();
    let wrong: Vec<usize> = (0..MEMBERS)
        .filter(|member| {
            let president = probabilities.get(2 * member + 1).to_f64() > 0.5;
            i32::from(president) != sides()[*member]
        })
        .collect();
    // Member 9 had more friends on the other side. Zachary gives the reason: an examination for a
    // black belt, with the instructor, was three weeks ahead.
    assert_eq!(wrong, [8]);
}
