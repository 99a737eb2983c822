//! Collectives on all ranks of a mesh, by the interpreter: against definitions that are written
//! differently, and against numbers computed by hand.
#![allow(clippy::unwrap_used)] // Helpers outside of `#[test]` functions unwrap too.

use wengert_core::build::FunctionBuilder;
use wengert_core::build::control::{cond, fold, fori_upto, scan, while_at_most};
use wengert_core::graph::{Function, parse_program};
use wengert_core::interpret::{run, run_ranks};
use wengert_core::op::{AllGather, AllToAll, PPermute, PReduceKind, PsumScatter};
use wengert_core::{DType, Dim, Element, Id, Literal, Op, Tensor, TensorType};
use wengert_testing::Random;
use wengert_testing::samples::{collectives, mesh};

const EXTENTS: [(&str, usize); 2] = [("data", 2), ("tensor", 3)];
const RANKS: usize = 6;

/// A function on 2 × 3 ranks; inputs vary over both axes.
fn build(shapes: &[&[usize]], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Function {
    let ty = |shape: &[usize]| TensorType::new(DType::F64, shape.iter().copied());
    let types: Vec<TensorType> =
        shapes.iter().map(|s| ty(s).varying_over(&["data", "tensor"])).collect();
    build_on(&types, f)
}

fn build_on(types: &[TensorType], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Function {
    let function = FunctionBuilder::build("f", |b| {
        b.mesh(EXTENTS);
        let inputs: Vec<Tensor> =
            types.iter().enumerate().map(|(i, ty)| b.input(&format!("x{i}"), ty.clone())).collect();
        for (i, output) in f(&inputs).iter().enumerate() {
            b.output(&format!("y{i}"), output);
        }
    });
    let function = function.unwrap_or_else(|e| panic!("{e}"));
    let text = function.to_string();
    let again = parse_program(&text, "f.ir").unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(again.to_string(), text);
    function
}

fn scalars(values: [f64; RANKS]) -> Vec<Vec<Literal>> {
    values.map(|x| vec![Literal::from(x)]).to_vec()
}

/// The first output on each rank.
fn first<T: Element + Clone>(outputs: &[Vec<Literal>]) -> Vec<Vec<T>> {
    outputs.iter().map(|on| on[0].as_slice::<T>().unwrap().to_vec()).collect()
}

/// The only element of the first output on each rank.
fn numbers(function: &Function, inputs: &[Vec<Literal>]) -> Vec<f64> {
    let outputs = run_ranks(function, inputs).unwrap_or_else(|e| panic!("{e}"));
    first::<f64>(&outputs).into_iter().map(|on| on[0]).collect()
}

/// An array with its operations by definition.
#[derive(Clone, PartialEq, Debug)]
struct Plain {
    shape: Vec<usize>,
    values: Vec<f64>,
}

impl Plain {
    /// (number of rows of blocks, extent, elements of a block) around an axis.
    fn around(&self, axis: usize) -> (usize, usize, usize) {
        let (outer, inner) = (&self.shape[..axis], &self.shape[axis + 1..]);
        (outer.iter().product(), self.shape[axis], inner.iter().product())
    }

    fn split(&self, axis: usize, parts: usize) -> Vec<Plain> {
        let (outer, extent, inner) = self.around(axis);
        let part = extent / parts;
        let of = |p: usize| {
            let row = |o: usize| {
                let at = (o * extent + p * part) * inner;
                self.values[at..at + part * inner].to_vec()
            };
            let mut shape = self.shape.clone();
            shape[axis] = part;
            Plain { shape, values: (0..outer).flat_map(row).collect() }
        };
        (0..parts).map(of).collect()
    }

    fn concatenate(parts: &[Plain], axis: usize) -> Plain {
        let mut shape = parts[0].shape.clone();
        shape[axis] = parts.iter().map(|p| p.shape[axis]).sum();
        let outer = parts[0].around(axis).0;
        let row = |o: usize| {
            parts.iter().flat_map(move |p| {
                let size = p.shape[axis] * p.around(axis).2;
                p.values[o * size..(o + 1) * size].to_vec()
            })
        };
        Plain { shape, values: (0..outer).flat_map(row).collect() }
    }

    fn with_axis(mut self, axis: usize) -> Plain {
        self.shape.insert(axis, 1);
        self
    }

    fn without_axis(mut self, axis: usize) -> Plain {
        assert_eq!(self.shape.remove(axis), 1);
        self
    }

    fn stack(parts: &[Plain], axis: usize) -> Plain {
        let parts: Vec<Plain> = parts.iter().map(|p| p.clone().with_axis(axis)).collect();
        Plain::concatenate(&parts, axis)
    }

    fn combine(parts: &[Plain], f: impl Fn(f64, f64) -> f64) -> Plain {
        let mut all = parts[0].clone();
        for part in &parts[1..] {
            all.values.iter_mut().zip(&part.values).for_each(|(a, b)| *a = f(*a, *b));
        }
        all
    }
}

/// The group of a rank and its position, by coordinates.
fn group(rank: usize, over: &[String]) -> (Vec<usize>, usize) {
    let coordinates = |rank: usize| [rank / 3, rank % 3];
    let axes: Vec<usize> =
        over.iter().map(|name| EXTENTS.iter().position(|(n, _)| n == name).unwrap()).collect();
    let key = |r: &usize| axes.iter().map(|a| coordinates(*r)[*a]).collect::<Vec<_>>();
    let same =
        |r: &usize| (0..2).all(|a| axes.contains(&a) || coordinates(*r)[a] == coordinates(rank)[a]);
    let mut members: Vec<usize> = (0..RANKS).filter(same).collect();
    members.sort_by_key(key);
    let at = members.iter().position(|r| *r == rank).unwrap();
    (members, at)
}

/// The result on a rank, from the operands of its group.
fn by_definition(op: &Op, operands: &[Plain], at: usize) -> Plain {
    match op {
        Op::PReduce(op) => {
            let combine: fn(f64, f64) -> f64 = match op.kind {
                PReduceKind::Sum => |a, b| a + b,
                PReduceKind::Max => f64::max,
                PReduceKind::Min => f64::min,
            };
            Plain::combine(operands, combine)
        }
        Op::PVary(_) => operands[at].clone(),
        Op::AllGather(AllGather { axis, tiled: false, .. }) => Plain::stack(operands, *axis),
        Op::AllGather(AllGather { axis, tiled: true, .. }) => Plain::concatenate(operands, *axis),
        Op::PsumScatter(PsumScatter { axis, size, tiled, .. }) => {
            let part = Plain::combine(operands, |a, b| a + b).split(*axis, *size).remove(at);
            if *tiled { part } else { part.without_axis(*axis) }
        }
        Op::AllToAll(AllToAll { split_axis, concat_axis, size, tiled, .. }) => {
            let part = |x: &Plain| x.split(*split_axis, *size).remove(at);
            let parts: Vec<Plain> = operands.iter().map(part).collect();
            if *tiled {
                return Plain::concatenate(&parts, *concat_axis);
            }
            let parts: Vec<Plain> =
                parts.into_iter().map(|p| p.without_axis(*split_axis)).collect();
            Plain::stack(&parts, *concat_axis)
        }
        Op::PPermute(PPermute { perm, .. }) => match perm.iter().find(|(_, d)| *d == at) {
            Some((source, _)) => operands[*source].clone(),
            None => Plain { values: vec![0.0; operands[at].values.len()], ..operands[at].clone() },
        },
        Op::AxisIndex(_) => Plain { shape: vec![], values: vec![at as f64] },
        op => panic!("{} is no collective", op.name()),
    }
}

#[test]
fn every_sample_gives_what_its_definition_says() {
    let mut seen = std::collections::BTreeSet::new();
    for (number, sample) in collectives().into_iter().enumerate() {
        seen.insert(sample.op.name());
        let function = build_on(&sample.operands(DType::F64), |inputs| {
            vec![Tensor::apply(sample.op.clone(), &inputs.iter().collect::<Vec<_>>())]
        });
        let mut random = Random(number as u64);
        // Small integers, so that sums are exact in any order. What does not vary is the same.
        let shape = sample.shape.clone().unwrap_or_default();
        let count: usize = shape.iter().product();
        let fresh: Vec<Plain> = (0..RANKS)
            .map(|_| Plain {
                shape: shape.clone(),
                values: (0..count).map(|_| random.below(100) as f64 - 50.0).collect(),
            })
            .collect();
        let fixed: Vec<String> = EXTENTS
            .iter()
            .filter(|(axis, _)| !sample.varying.contains(axis))
            .map(|(axis, _)| axis.to_string())
            .collect();
        let operands: Vec<Plain> =
            (0..RANKS).map(|rank| fresh[group(rank, &fixed).0[0]].clone()).collect();
        let given: Vec<Vec<Literal>> = operands
            .iter()
            .map(|x| Literal::from_vec(&x.shape, x.values.clone()).unwrap())
            .map(|x| if sample.shape.is_some() { vec![x] } else { vec![] })
            .collect();
        let outputs = run_ranks(&function, &given).unwrap_or_else(|e| panic!("{e}"));
        for (rank, found) in outputs.iter().enumerate() {
            let over = sample.op.collective().unwrap().over;
            let (members, at) = group(rank, over);
            let members: Vec<Plain> = members.iter().map(|r| operands[*r].clone()).collect();
            let wanted = by_definition(&sample.op, &members, at);
            let values: Vec<f64> = found[0].scalars().map(|s| s.to_f64()).collect();
            let found = Plain { shape: found[0].shape().to_vec(), values };
            assert_eq!(found, wanted, "{:?} on rank {rank}", sample.op);
        }
    }
    assert_eq!(seen.len(), 9, "{seen:?}");
    assert_eq!(mesh().ranks(), RANKS);
}

/// Rank r, at (r / 3, r % 3), has 10^r.
#[test]
fn collectives_of_scalars_by_hand() {
    let x = scalars([1.0, 10.0, 100.0, 1e3, 1e4, 1e5]);
    let of = |f: fn(&Tensor) -> Tensor| numbers(&build(&[&[]], |x| vec![f(&x[0])]), &x);
    assert_eq!(of(|x| x.psum("data")), [1001.0, 10010.0, 100100.0, 1001.0, 10010.0, 100100.0]);
    assert_eq!(of(|x| x.psum("tensor")), [111.0, 111.0, 111.0, 111e3, 111e3, 111e3]);
    assert_eq!(of(|x| x.psum(["data", "tensor"])), [111111.0; 6]);
    assert_eq!(of(|x| x.pmean("tensor")), [37.0, 37.0, 37.0, 37e3, 37e3, 37e3]);
    assert_eq!(of(|x| x.pmax("data")), [1e3, 1e4, 1e5, 1e3, 1e4, 1e5]);
    assert_eq!(of(|x| x.pmin("tensor")), [1.0, 1.0, 1.0, 1e3, 1e3, 1e3]);
    // Along `tensor` 0 → 1 → 2, and nothing comes to 0.
    let shifted = of(|x| x.ppermute("tensor", &[(0, 1), (1, 2)]));
    assert_eq!(shifted, [0.0, 1.0, 10.0, 0.0, 1e3, 1e4]);
    let index = of(|_| Tensor::axis_index(["tensor", "data"]).convert(DType::F64));
    assert_eq!(index, [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
    // The sum of an invariant value counts the ranks, as in JAX.
    let ones = of(|x| (x.psum(["data", "tensor"]) * 0.0 + 1.0).psum("tensor"));
    assert_eq!(ones, [3.0; 6]);
    let gathered = build(&[&[]], |x| vec![x[0].all_gather("tensor", 0)]);
    let gathered = first::<f64>(&run_ranks(&gathered, &x).unwrap());
    assert_eq!(gathered[1], [1.0, 10.0, 100.0]);
    assert_eq!(gathered[5], [1e3, 1e4, 1e5]);
}

/// Sums have one order, the tree over the ranks, and are rounded at each addition.
#[test]
fn sums_are_trees_of_rounded_additions() {
    let ty = |dtype| TensorType::scalar(dtype).varying_over(&["data", "tensor"]);
    let sum = |dtype| build_on(&[ty(dtype)], |x| vec![x[0].psum("tensor")]);
    // (2²⁴ + 1) + 1 = 2²⁴ in f32, and 2²⁴ + 2 in any other order or a wider dtype.
    let big = (1 << 24) as f32;
    let values = [big, 1.0, 1.0, 1.0, 1.0, big];
    let given: Vec<Vec<Literal>> = values.map(|x| vec![Literal::from(x)]).to_vec();
    let found = first::<f32>(&run_ranks(&sum(DType::F32), &given).unwrap());
    assert_eq!(found[0], [big]);
    assert_eq!(found[3], [big + 2.0]);
    // Halves are added in f32: 256 + 1 + 1 is not 256.
    let half = |x: f32| vec![Literal::from(half::bf16::from_f32(x))];
    let given = [256.0, 1.0, 1.0, 0.0, 0.0, 0.0].map(half).to_vec();
    let found = first::<half::bf16>(&run_ranks(&sum(DType::BF16), &given).unwrap());
    assert_eq!(found[0], [half::bf16::from_f32(258.0)]);
    // Over six ranks: ((0 + 1) + (2 + 3)) + (4 + 5).
    let all = build_on(&[ty(DType::F32)], |x| vec![x[0].psum(["data", "tensor"])]);
    let given = [big, 1.0, 1.0, -big, 0.5, 0.0].map(|x| vec![Literal::from(x)]).to_vec();
    let found = first::<f32>(&run_ranks(&all, &given).unwrap());
    assert_eq!(found[0], [(big + 1.0) + (1.0 - big) + 0.5]);
}

#[test]
fn operands_that_vary_less_are_made_to_vary() {
    let (x, w) = (TensorType::scalar(DType::F64), TensorType::scalar(DType::F64));
    let function =
        build_on(&[x.varying_over(&["data"]), w], |x| vec![&x[0] * &x[1] + 1.0, x[0].psum("data")]);
    let text = "\
func @f mesh(data=2, tensor=3) (%x0: f64[]{data}, %x1: f64[]) -> (y0: f64[]{data}, y1: f64[]) {
  %0: f64[]{data} = pvary %x1 {over=[\"data\"]}
  %1: f64[]{data} = mul %x0, %0
  %2: f64[] = constant {value=f64[] 1.0}
  %3: f64[]{data} = pvary %2 {over=[\"data\"]}
  %4: f64[]{data} = add %1, %3
  %5: f64[] = psum %x0 {over=[\"data\"]}
  return %4, %5
}
";
    assert_eq!(function.to_string(), text);
}

/// Loops and branches with collectives inside, some of which not all ranks take.
#[test]
fn constructs_run_in_lockstep() {
    let x = scalars([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    // Ranks along `tensor` choose differently; those along `data` agree.
    let branch = build(&[&[]], |x| {
        let sum = x[0].psum("data");
        let even = (sum.clone() * 0.5).floor().eq(&(&sum * 0.5));
        vec![cond(&even, || x[0].psum("data"), || x[0].pmin("data") * 100.0)]
    });
    // The sums are 5, 7, 9 for the columns: all odd. With 1 more on rank 0 the first is even.
    assert_eq!(numbers(&branch, &x), [100.0, 200.0, 300.0, 100.0, 200.0, 300.0]);
    let changed = scalars([2.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(numbers(&branch, &changed), [6.0, 200.0, 300.0, 6.0, 200.0, 300.0]);

    // The carry begins invariant, and varies after a step.
    let steps = build(&[&[], &[3]], |x| {
        let zero = Tensor::constant(0.0f64);
        vec![fold(&zero, &x[1], |sum, part| sum + part.psum("tensor") * &x[0])]
    });
    let given: Vec<Vec<Literal>> = (0..RANKS)
        .map(|r| {
            let r = r as f64;
            vec![Literal::from(r), Literal::from_vec(&[3], vec![r, 1.0, 0.0]).unwrap()]
        })
        .collect();
    // Σ of r over a row is 3 or 12, and 1 counts 3 ranks.
    assert_eq!(numbers(&steps, &given), [0.0, 6.0, 12.0, 45.0, 60.0, 75.0]);

    // The number of steps differs along `tensor`; each adds the sum along `data`.
    let counted = build(&[&[]], |x| {
        let count = Tensor::axis_index("tensor");
        vec![fori_upto(&count, 5, &x[0], |_, sum| sum.psum("data").pvary(["data", "tensor"]))]
    });
    assert_eq!(numbers(&counted, &x), [1.0, 7.0, 18.0, 4.0, 7.0, 18.0]);

    let repeated = build(&[&[]], |x| {
        let below = |y: &Tensor| y.pmax("data").lt(40.0);
        vec![while_at_most(10, &x[0], below, |y| y.psum("data").pvary(["data", "tensor"]))]
    });
    // Columns: 5, 10, 20, 40; 7, 14, 28, 56; 9, 18, 36, 72.
    assert_eq!(numbers(&repeated, &x), [40.0, 56.0, 72.0, 40.0, 56.0, 72.0]);

    let stacked = build(&[&[]], |x| {
        let index = Tensor::iota(DType::F64, vec![Dim::from(2usize)], 0);
        let (c, ys) = scan(&x[0], &index, |c, i| ((c + i).clone(), c.psum("tensor")));
        vec![c, ys]
    });
    let outputs = run_ranks(&stacked, &x).unwrap();
    assert_eq!(outputs[0][1].as_slice::<f64>().unwrap(), [6.0, 6.0]);
    assert_eq!(outputs[5][1].as_slice::<f64>().unwrap(), [15.0, 15.0]);
    assert_eq!(outputs[5][0].as_slice::<f64>().unwrap(), [7.0]);
}

#[test]
fn mistakes_are_errors() {
    let function = build_on(&[TensorType::scalar(DType::F64)], |x| vec![x[0].psum("data")]);
    let error = run(&function, &[Literal::from(1.0f64)]).unwrap_err().to_string();
    assert!(error.contains("@f runs on the 6 ranks of mesh(data=2, tensor=3)"), "{error}");
    assert!(error.contains("`interpret::run_ranks`"), "{error}");
    let error = run_ranks(&function, &scalars([1.0; 6])[..5]).unwrap_err().to_string();
    assert!(error.contains("inputs are given for 5 ranks, the mesh has 6"), "{error}");
    let mut given = scalars([1.0; 6]);
    given[4] = vec![Literal::from(2.0f64)];
    let error = run_ranks(&function, &given).unwrap_err().to_string();
    assert!(
        error.contains("`x0`, f64[], is invariant over data, tensor, but ranks 0 and 4 have"),
        "{error}"
    );
    assert!(error.contains("f64[]{data,tensor}"), "{error}");
    given[4] = vec![];
    assert!(run_ranks(&function, &given).is_err());

    let error = |f: fn(&Tensor) -> Tensor| {
        let built = FunctionBuilder::build("f", |b| {
            b.mesh(EXTENTS);
            let x = b.input("x", TensorType::new(DType::I32, [4usize]).varying_over(&["data"]));
            b.output("y", f(&x));
        });
        built.unwrap_err().to_string()
    };
    let text = error(|x| x.psum("row"));
    assert!(text.contains("psum: the mesh has no axis `row`"), "{text}");
    assert!(text.contains("its axes are data, tensor"), "{text}");
    assert!(text.contains("ranks.rs:"), "{text}");
    let text = error(|x| x.pmean("data"));
    assert!(text.contains("pmean: the mean of i32[4]{data}, which is not of floats"), "{text}");
    let text = error(|x| x.psum_scatter("tensor", 0));
    assert!(text.contains("psum_scatter: axis 0 of i32[4]{data,tensor} has extent 4"), "{text}");
    let text = error(|x| {
        let chosen = x.sum().gt(0);
        cond(&chosen, || x.psum("data"), || x.pmax("data"))
    });
    assert!(text.contains("G12: `psum` exchanges data over {data}"), "{text}");
    assert!(text.contains("ranks.rs:"), "{text}");

    let twice = FunctionBuilder::build("f", |b| {
        b.mesh(EXTENTS);
        b.mesh([("row", 2)]);
    });
    assert!(twice.unwrap_err().to_string().contains("the function has a mesh already"));
    let none = FunctionBuilder::build("f", |b| {
        let x = b.input("x", TensorType::scalar(DType::F32));
        b.output("y", x.psum("data"));
    });
    assert!(none.unwrap_err().to_string().contains("the function has no mesh"));
}

#[test]
fn values_are_located_and_renumbered_as_ever() {
    let function = build(&[&[2]], |x| vec![x[0].all_gather_tiled("data", 0)]);
    assert_eq!(function.clone().renumber(), function);
    assert_eq!(function.body.outputs[0].index(), 1);
}
