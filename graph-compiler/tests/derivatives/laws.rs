//! Laws of functions as values. A closure applied is its body (β), and a function equals the
//! closure that applies it (η). The same holds for pairs and curried functions. The tests compare
//! values, tangents and cotangents of random programs over rational numbers, with zero tolerance.
//!
//! One side of each law uses Rust closures, in place. The other side uses lists: called by name or
//! not, partially applied, chosen at run time, or differentiated as arguments.

use wengert_compiler::autodiff::list::{WengertList, trace};
use wengert_compiler::autodiff::operators::{jvp, vjp};
use wengert_core::interpret::{Array, Cell, Cells, Real};
use wengert_core::{DType, Tensor, TensorType};
use wengert_testing::derivative::*;
use wengert_testing::smooth;
use wengert_testing::{Random, Rational};

type Pair = (Tensor, Tensor);
type Law = fn(&dyn Fn(&[Tensor]) -> Tensor, &dyn Fn(&[Tensor]) -> Tensor, &Tensor, &Pair) -> Tensor;

fn array(random: &mut Random) -> Array<Rational> {
    let ty = smooth::ty();
    let cell = |random: &mut Random| {
        let (n, d) = (random.below(9) as i64 - 4, random.below(3) as i64 + 1);
        Cell::Real(Rational::new(n, d))
    };
    let cells = Cells::collect((0..ty.elements().unwrap()).map(|_| cell(random))).unwrap();
    Array::new(ty.dtype, ty.extents().unwrap(), cells)
}

fn like() -> Tensor {
    Tensor::variable(smooth::ty(), wengert_core::Initializer::Zeros)
}

/// A list of a program of two arguments.
fn list(name: &str, f: &dyn Fn(&[Tensor]) -> Tensor) -> WengertList<Pair, Tensor> {
    trace(&(like(), like()), |(a, b)| f(&[a.clone(), b.clone()])).unwrap().named(name).unwrap()
}

/// f(g(x, y), y)
fn plain(f: &dyn Fn(&[Tensor]) -> Tensor, g: &dyn Fn(&[Tensor]) -> Tensor, x: &Pair) -> Tensor {
    f(&[g(&[x.0.clone(), x.1.clone()]), x.1.clone()])
}

/// β: (λ(a, b). f(a, b))(g(x, y), y), with both functions called by name.
fn abstraction(
    f: &dyn Fn(&[Tensor]) -> Tensor,
    g: &dyn Fn(&[Tensor]) -> Tensor,
    _: &Tensor,
    x: &Pair,
) -> Tensor {
    let (f, g) = (list("f", f), list("g", g));
    f.call(&(g.call(x), x.1.clone()))
}

/// η: f equals λ(a, b). f(a, b), also when this is repeated.
fn extension(
    f: &dyn Fn(&[Tensor]) -> Tensor,
    g: &dyn Fn(&[Tensor]) -> Tensor,
    _: &Tensor,
    x: &Pair,
) -> Tensor {
    let f = list("f", f);
    let again = trace(&(like(), like()), |x| f.call(x)).unwrap();
    let twice = trace(&(like(), like()), |x| again.call(x)).unwrap().named("twice").unwrap();
    twice.call(&(g(&[x.0.clone(), x.1.clone()]), x.1.clone()))
}

/// Currying: f(a, b) = (λa. λb. f(a, b))(a)(b). The inner closure captures a, and is built within
/// the differentiated function.
fn currying(
    f: &dyn Fn(&[Tensor]) -> Tensor,
    g: &dyn Fn(&[Tensor]) -> Tensor,
    _: &Tensor,
    x: &Pair,
) -> Tensor {
    let given = list("g", g).partial(&x.0).unwrap().call(&x.1);
    let captured = trace(&like(), |b| f(&[given.clone(), b.clone()])).unwrap();
    captured.call(&x.1)
}

/// A closure as an argument: λh. h(y), differentiated in h. Its cotangent is that of the captures
/// of h.
fn argument(
    f: &dyn Fn(&[Tensor]) -> Tensor,
    g: &dyn Fn(&[Tensor]) -> Tensor,
    _: &Tensor,
    x: &Pair,
) -> Tensor {
    let apply = |h: &WengertList<Tensor, Tensor>, y: &Tensor| h.call(y);
    let h = list("f", f).partial(&g(&[x.0.clone(), x.1.clone()])).unwrap();
    // Moved along a zero tangent, h is unchanged.
    use wengert_core::Differentiable;
    apply(&h.move_along(&h.zero_tangent()), &x.1)
}

/// Pairs: first ⟨f, g⟩ is f, and ⟨f, g⟩ ∘ h is ⟨f ∘ h, g ∘ h⟩.
fn pairs(
    f: &dyn Fn(&[Tensor]) -> Tensor,
    g: &dyn Fn(&[Tensor]) -> Tensor,
    _: &Tensor,
    x: &Pair,
) -> Tensor {
    let inner = trace(&(like(), like()), |(a, b)| (g(&[a.clone(), b.clone()]), b.clone()));
    let inner = inner.unwrap().named("inner").unwrap();
    let both = trace(&(like(), like()), |(a, b)| {
        let made = f(&[a.clone(), b.clone()]);
        (made.clone(), g(&[made, a.clone()]))
    });
    both.unwrap().named("both").unwrap().call(&inner.call(x)).0
}

/// A closure chosen at run time equals the closure at the index.
fn choice(
    f: &dyn Fn(&[Tensor]) -> Tensor,
    g: &dyn Fn(&[Tensor]) -> Tensor,
    index: &Tensor,
    x: &Pair,
) -> Tensor {
    let given = g(&[x.0.clone(), x.1.clone()]);
    let other = trace(&like(), |b| g(&[b.clone(), b.clone()]) * &given).unwrap();
    let wanted = trace(&like(), |b| f(&[given.clone(), b.clone()])).unwrap();
    WengertList::choose(index, &[other, wanted]).unwrap().call(&x.1)
}

const LAWS: [Law; 6] = [abstraction, extension, currying, argument, pairs, choice];

/// Checks the law of a seed. Returns true if some derivative is not zero.
fn holds(seed: u64) -> bool {
    let (f, g) = (
        smooth::random(2 * seed, 2 + seed as usize % 4, false),
        smooth::random(2 * seed + 1, 2, false),
    );
    let law = LAWS[seed as usize % LAWS.len()];
    let mut types = vec![smooth::ty(); 5];
    types.push(TensorType::scalar(DType::I32));
    let function = build(&types, |v| {
        let (x, t) = ((v[0].clone(), v[1].clone()), (v[2].clone(), v[3].clone()));
        let bundle = |h: &dyn Fn(&Pair) -> Tensor| {
            let (y, tangent) = jvp(&x, &t, |x| h(x));
            let (again, pullback) = vjp(&x, |x| h(x));
            let (a, b) = pullback(&v[4]);
            [y, tangent, again, a, b]
        };
        let plain = bundle(&|x| plain(&f, &g, x));
        let lists = bundle(&|x| law(&f, &g, &v[5], x));
        plain.into_iter().chain(lists).collect()
    });
    let mut random = Random(seed);
    let mut inputs: Vec<Array<Rational>> = (0..5).map(|_| array(&mut random)).collect();
    inputs.push(Array::new(
        DType::I32,
        vec![],
        Cells::filled(Cell::from_scalar(wengert_core::Scalar::from_f64(DType::I32, 1.0)), 1)
            .unwrap(),
    ));
    let results: Vec<Vec<Rational>> = run_on(&function, &inputs)
        .iter()
        .map(|a| a.cells.iter().map(|c| c.real().clone()).collect())
        .collect();
    let (plain, lists) = results.split_at(5);
    assert_eq!(plain, lists, "program {seed}, law {}:\n{function}", seed as usize % LAWS.len());
    plain[3].iter().chain(&plain[4]).any(|c| !c.is_zero())
}

/// Checks a quarter of 10,000 programs. In at least half of them some derivative is not zero.
fn quarter(number: u64) {
    let about = (0..2500).filter(|i| holds(4 * i + number)).count();
    assert!(about > 1250, "{about} of the programs depend on their arguments");
}

#[test]
fn closures_obey_their_laws_1() {
    quarter(0);
}

#[test]
fn closures_obey_their_laws_2() {
    quarter(1);
}

#[test]
fn closures_obey_their_laws_3() {
    quarter(2);
}

#[test]
fn closures_obey_their_laws_4() {
    quarter(3);
}
