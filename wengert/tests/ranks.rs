//! Functions with a mesh on ranks that are threads, against the interpreter of all ranks.
#![allow(clippy::unwrap_used)] // This is a test.

use std::time::Duration;
use wengert::DeviceOptions;
use wengert::core::build::FunctionBuilder;
use wengert::core::build::control::{cond, fori};
use wengert::core::graph::{Function, Program};
use wengert::core::interpret::run_ranks;
use wengert::core::op::{
    AllGather, AllToAll, AxisIndex, PPermute, PReduce, PReduceKind, PsumScatter,
};
use wengert::core::plan::{Plan, Step};
use wengert::core::{Mesh, Op, Target};
use wengert::nn::Linear;
use wengert::operators::value_and_grad;
use wengert::optim::Sgd;
use wengert::prelude::*;
use wengert::transport::{Communicator, Options, shared};
use wengert_compiler::pipeline::{Options as PipelineOptions, compile};
use wengert_testing::Random;

/// A session on one thread that has joined a world.
fn session(world: Communicator) -> Session {
    session_on(Device::Cpu, world)
}

fn session_on(device: Device, world: Communicator) -> Session {
    let threads = (device == Device::Cpu).then_some(1);
    let options = DeviceOptions { threads, ..DeviceOptions::default() };
    let mut session = Session::open_with(device, &options).unwrap();
    session.join(world).unwrap();
    session
}

/// Runs a closure on each rank of a world of threads.
fn on_ranks<T: Send>(ranks: usize, run: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    let options = Options { timeout: Duration::from_secs(60), ..Options::default() };
    let world = shared::threads(ranks, &options).unwrap();
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> =
            world.into_iter().map(|rank| scope.spawn(move || run(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The outputs of a function on the devices of all ranks.
fn run_on(device: Device, function: &Function, inputs: &[Vec<Literal>]) -> Vec<Vec<Literal>> {
    let program = Program::from_functions(vec![function.clone()]).unwrap();
    on_ranks(function.mesh.ranks(), |world| {
        let rank = world.rank();
        let mut session = session_on(device, world);
        let mut compiled = session.compile(&program, &function.name, bind!()).unwrap();
        let names = function.inputs.iter().map(|input| input.name.as_str());
        let given: Vec<(&str, &Literal)> = names.zip(&inputs[rank]).collect();
        compiled.run(&given).unwrap().into_values().unwrap()
    })
}

/// Compares the outputs of a function on all ranks with the interpreter's, bit for bit. NaNs are
/// equal.
fn check(function: &Function, inputs: &[Vec<Literal>]) {
    check_on(Device::Cpu, function, inputs);
}

fn check_on(device: Device, function: &Function, inputs: &[Vec<Literal>]) {
    let wanted = run_ranks(function, inputs).unwrap_or_else(|e| panic!("{e}\n{function}"));
    let found = run_on(device, function, inputs);
    let bits = |literal: &Literal| -> Vec<u64> {
        literal.scalars().map(|s| if s.to_f64().is_nan() { u64::MAX } else { s.bits() }).collect()
    };
    for (rank, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
        assert_eq!(found.len(), wanted.len());
        for (i, (found, wanted)) in found.iter().zip(wanted).enumerate() {
            let same = found.ty() == wanted.ty() && bits(found) == bits(wanted);
            let output = &function.outputs[i].name;
            let differs = bits(found).iter().zip(&bits(wanted)).position(|(a, b)| a != b);
            let at = differs.map(|at| (at, found.get(at), wanted.get(at)));
            assert!(
                same,
                "rank {rank}, `{output}`: {at:?} of {found:?}, not {wanted:?}\n{function}"
            );
        }
    }
}

/// An element of each type for each input, on each rank its own.
fn drawn(function: &Function, mut draw: impl FnMut(&TensorType) -> Literal) -> Vec<Vec<Literal>> {
    let mut one = || {
        let types = (0..function.inputs.len()).map(|i| function.input_type(i).invariant());
        types.map(|ty| draw(&ty)).collect()
    };
    (0..function.mesh.ranks()).map(|_| one()).collect()
}

/// Random inputs, some of whose elements are ±0, infinite or NaN.
fn random(function: &Function, seed: u64) -> Vec<Vec<Literal>> {
    let mut random = Random(seed);
    drawn(function, |ty| random.elements(ty))
}

fn build(mesh: &Mesh, body: impl FnOnce(&mut FunctionBuilder)) -> Function {
    let built = FunctionBuilder::build("f", |f| {
        f.mesh(mesh.axes().iter().cloned());
        body(f);
    });
    built.unwrap_or_else(|e| panic!("{e}"))
}

/// Collectives over the given axes, of `size` ranks together, with the shapes of their operands.
fn collectives(over: &[&str], size: usize, numbers: bool) -> Vec<(Op, Option<Vec<usize>>)> {
    let over = || over.iter().map(|axis| axis.to_string()).collect::<Vec<String>>();
    let mut all: Vec<(Op, Option<Vec<usize>>)> = Vec::new();
    let mut add = |op: Op, shape: &[usize]| all.push((op, Some(shape.to_vec())));
    if numbers {
        for kind in PReduceKind::ALL {
            add(PReduce { kind, over: over() }.into(), &[3, 5]);
            add(PReduce { kind, over: over() }.into(), &[]);
        }
    }
    for axis in 0..3 {
        for tiled in [false, true] {
            for invariant in [false, true] {
                let gather = AllGather { over: over(), axis, size, tiled, invariant };
                add(gather.into(), &[2, 3, 4]);
            }
            let mut shape = [2, 3, 4];
            shape[axis] = if tiled { 2 * size } else { size };
            if numbers {
                add(PsumScatter { over: over(), axis, size, tiled }.into(), &shape);
            }
            for concat_axis in 0..3 {
                let split_axis = axis;
                let op = AllToAll { over: over(), split_axis, concat_axis, size, tiled };
                add(op.into(), &shape);
            }
        }
    }
    let rotation = (0..size).map(|rank| (rank, (rank + 1) % size)).collect();
    add(PPermute { over: over(), perm: rotation }.into(), &[2, 3]);
    add(PPermute { over: over(), perm: vec![(1, 0)] }.into(), &[2, 3]);
    add(PPermute { over: over(), perm: vec![] }.into(), &[2]);
    all.push((AxisIndex { over: over() }.into(), None));
    all
}

/// One function with all collectives over the given axes.
fn every(mesh: &Mesh, over: &[&[&str]], dtype: DType) -> Function {
    let axes: Vec<&str> = mesh.axes().iter().map(|(axis, _)| &**axis).collect();
    build(mesh, |f| {
        for (n, over) in over.iter().enumerate() {
            let size = mesh.size(over).unwrap();
            for (i, (op, shape)) in collectives(over, size, dtype.is_integer() || dtype.is_float())
                .into_iter()
                // It is refused: ranks without a source get zeros.
                .filter(|(op, _)| !(dtype.is_float8() && op.name() == "ppermute"))
                .enumerate()
            {
                let ty = |shape: Vec<usize>| TensorType::new(dtype, shape).varying_over(&axes);
                let x = shape.map(|shape| f.input(&format!("x{n}_{i}"), ty(shape)));
                let operands: Vec<&Tensor> = x.iter().collect();
                f.output(&format!("y{n}_{i}"), Tensor::apply(op, &operands));
            }
        }
    })
}

#[test]
fn a_sum_over_two_ranks_has_the_bits_of_the_interpreter() {
    let mesh = Mesh::new([("data", 2)]).unwrap();
    // Few elements, more than one exchange takes, and numbers that two ranks share unequally.
    for count in [1, 7, 4096, 4099] {
        let function = build(&mesh, |f| {
            let ty = TensorType::new(DType::F32, [count]).varying_over(&["data"]);
            let x = f.input("x", ty);
            f.output("y", x.psum("data"));
        });
        check(&function, &random(&function, count as u64));
    }
}

#[test]
fn each_collective_over_one_axis() {
    for ranks in [2, 4] {
        let mesh = Mesh::new([("data", ranks)]).unwrap();
        for (seed, dtype) in [DType::F32, DType::BF16, DType::I32].into_iter().enumerate() {
            let function = every(&mesh, &[&["data"]], dtype);
            check(&function, &random(&function, seed as u64));
        }
    }
}

#[test]
fn each_collective_over_axes_of_a_square() {
    let mesh = Mesh::new([("data", 2), ("tensor", 2)]).unwrap();
    let over: [&[&str]; 4] = [&["data"], &["tensor"], &["data", "tensor"], &["tensor", "data"]];
    for (seed, dtype) in [DType::F32, DType::F64].into_iter().enumerate() {
        let function = every(&mesh, &over, dtype);
        check(&function, &random(&function, seed as u64));
    }
}

#[test]
fn each_dtype() {
    let mesh = Mesh::new([("data", 3), ("one", 1)]).unwrap();
    for dtype in DType::ALL {
        let function = every(&mesh, &[&["data"], &["one", "data"]], dtype);
        check(&function, &random(&function, 5));
    }
}

/// Long operands are divided among the ranks; 5003 is a prime.
#[test]
fn long_reductions_of_several_ranks() {
    let mesh = Mesh::new([("data", 3), ("tensor", 2)]).unwrap();
    let function = build(&mesh, |f| {
        let ty = |dtype| TensorType::new(dtype, [5003]).varying_over(&["data", "tensor"]);
        let (x, h) = (f.input("x", ty(DType::F32)), f.input("h", ty(DType::F16)));
        f.output("sum", x.psum(["data", "tensor"]));
        f.output("of_pairs", x.psum("tensor").psum("data"));
        f.output("halves", h.psum("data"));
        f.output("max", h.pmax("data"));
        f.output("mean", x.pmean("tensor"));
    });
    check(&function, &random(&function, 3));
}

/// The collectives that a plan starts while no other is under way, those that it starts beside
/// others, and the kernels that run while some are under way.
fn overlap(plan: &Plan) -> (usize, usize, usize) {
    let (mut alone, mut beside, mut kernels, mut under_way) = (0, 0, 0, 0usize);
    plan.visit(&mut |step| match step {
        Step::Start { .. } => {
            *if under_way == 0 { &mut alone } else { &mut beside } += 1;
            under_way += 1;
        }
        Step::Wait(_) => under_way -= 1,
        Step::Nest { .. } | Step::Call { .. } if under_way > 0 => kernels += 1,
        _ => {}
    });
    (alone, beside, kernels)
}

/// Sums of one exchange and of two, over axes of a square, are under way while kernels and calls of
/// other collectives run. Their results have the bits of the interpreter.
#[test]
fn collectives_overlap_with_kernels() {
    let mesh = Mesh::new([("data", 2), ("tensor", 2)]).unwrap();
    let function = build(&mesh, |f| {
        let ty = |n: usize| TensorType::new(DType::F32, [n]).varying_over(&["data", "tensor"]);
        let mut x = f.input("x", ty(5003));
        let few = f.input("few", ty(7));
        let mut sums = Vec::new();
        for over in [&["data"][..], &["tensor"], &["data"], &["data", "tensor"], &["tensor"]] {
            sums.push(x.psum(over));
            sums.push((&few * sums.len() as f64).psum(over));
            // The next operand needs no sum.
            x = (&x * 1.5).abs() - 1.0;
        }
        let gathered = x.all_gather("data", 0);
        // Here a sum is the operand of another.
        let nested = sums[0].psum("tensor");
        f.output("y", x);
        for (i, sum) in sums.iter().enumerate() {
            f.output(&format!("sum{i}"), sum + 1.0);
        }
        f.output("gathered", gathered.square());
        f.output("nested", nested.square());
    });
    let program = Program::from_functions(vec![function.clone()]).unwrap();
    let compiled =
        compile(&program, "f", &bind!(), &Target::cpu(), &PipelineOptions::default()).unwrap();
    let (alone, beside, kernels) = overlap(&compiled);
    assert!(alone >= 1 && beside >= 8 && kernels >= 4, "{alone}, {beside}, {kernels}\n{compiled}");
    for seed in 0..3 {
        check(&function, &random(&function, seed));
    }
}

/// Collectives between elementwise ops, in a loop, and in a branch that all ranks of a group take.
#[test]
fn collectives_in_loops_and_branches() {
    let function = in_control();
    for seed in 0..4 {
        let mut random = Random(seed);
        let inputs = drawn(&function, |ty| random.scaled(ty, 3.0));
        check(&function, &inputs);
        #[cfg(feature = "cuda")]
        check_on(Device::Emulator, &function, &inputs);
    }
}

/// Collectives in a loop, and in a branch.
fn in_control() -> Function {
    let mesh = Mesh::new([("data", 2), ("tensor", 2)]).unwrap();
    build(&mesh, |f| {
        let ty = TensorType::new(DType::F32, [6]).varying_over(&["data", "tensor"]);
        let x = f.input("x", ty);
        let summed = fori(5, &x, |_, x| x.psum("data") * 0.25 + x);
        f.output("summed", &summed);
        // Ranks that differ in `data` take different branches, those along `tensor` the same.
        let mean = x.psum("tensor").slice_axis(0, 0usize, 1usize).reshape([0usize; 0]);
        let chosen = cond(&mean.gt(0.0), || x.psum("tensor") + 1.0, || x.pmax("tensor") * 2.0);
        f.output("chosen", &chosen);
        let own = Tensor::axis_index("data").convert(DType::F32);
        f.output("own", own + x.psum(["data", "tensor"]));
    })
}

/// Emulated GPUs exchange data, and their kernels add: the same bits, under the sanitizers.
#[cfg(feature = "cuda")]
#[test]
fn emulated_gpus_have_the_bits_of_the_interpreter() {
    let random_on = |function: &Function, seed| {
        check_on(Device::Emulator, function, &random(function, seed));
    };
    for ranks in [2, 4] {
        let mesh = Mesh::new([("data", ranks)]).unwrap();
        let dtypes = if ranks == 2 { &DType::ALL[..] } else { &[DType::F32, DType::BF16] };
        for dtype in dtypes {
            random_on(&every(&mesh, &[&["data"]], *dtype), 7);
        }
        // Of a prime number, in shares.
        let long = build(&mesh, |f| {
            let ty = TensorType::new(DType::F32, [5003]).varying_over(&["data"]);
            let x = f.input("x", ty);
            f.output("sum", x.psum("data"));
            f.output("max", x.pmax("data"));
        });
        random_on(&long, 8);
    }
    let square = Mesh::new([("data", 2), ("tensor", 2)]).unwrap();
    let over: [&[&str]; 3] = [&["tensor"], &["data", "tensor"], &["tensor", "data"]];
    random_on(&every(&square, &over, DType::F32), 9);
}

/// Two ranks train a network on halves of a batch. One rank trains the same network on the whole
/// batch.
#[test]
fn two_ranks_train_a_network() {
    let program = |ranks: usize| {
        let mut program = wengert::Program::new();
        program
            .function("step", |f| {
                let varies: &[&str] = if ranks > 1 { &["data"] } else { &[] };
                if ranks > 1 {
                    f.mesh([("data", ranks)]);
                }
                let x =
                    f.input("x", TensorType::new(DType::F32, [8 / ranks, 3]).varying_over(varies));
                let y =
                    f.input("y", TensorType::new(DType::F32, [8 / ranks, 2]).varying_over(varies));
                let model = f.state("model", (Linear::new(3, 16), Linear::new(16, 2)));
                let (loss, gradient) = value_and_grad(&model, |m| {
                    let errors = m.1.call(&m.0.call(&x).tanh()) - &y;
                    let mean = errors.square().mean();
                    if ranks > 1 { mean.pmean("data") } else { mean }
                });
                Sgd::new(0.1).step(f, &model, &gradient);
                f.output("loss", loss);
            })
            .unwrap();
        program
    };
    let batch = |rank: usize, ranks: usize, step: usize| -> [Literal; 2] {
        let rows = 8 / ranks;
        let at = |i: usize, j: usize| ((i * 7 + j * 3 + step) % 11) as f32 / 5.0 - 1.0;
        let of = |columns: usize, seed: usize| {
            let all = (0..rows * columns)
                .map(|n| at(rank * rows + n / columns + seed, n % columns))
                .collect();
            Literal::from_vec(&[rows, columns], all).unwrap()
        };
        [of(3, 0), of(2, 4)]
    };
    let train = |session: &mut Session, rank: usize, ranks: usize| {
        let program = program(ranks);
        session.initialize(&program, 7).unwrap();
        let mut step = session.compile(&program, "step", bind!()).unwrap();
        let losses: Vec<f32> = (0..20)
            .map(|number| {
                let [x, y] = batch(rank, ranks, number);
                let outputs = step.run(&[("x", x), ("y", y)]).unwrap();
                outputs.get("loss").unwrap().get(0).to_f64() as f32
            })
            .collect();
        (losses, session.variables().unwrap())
    };
    let found = on_ranks(2, |world| {
        let rank = world.rank();
        train(&mut session(world), rank, 2)
    });
    assert_eq!(found[0], found[1], "invariant values have the same bits on both ranks");
    let (wanted, variables) = train(&mut Session::open(Device::Cpu).unwrap(), 0, 1);
    let (losses, trained) = &found[0];
    assert!(losses[19] < 0.7 * losses[0], "{losses:?}");
    for (found, wanted) in losses.iter().zip(&wanted) {
        assert!((found - wanted).abs() < 1e-5, "{losses:?}, not {wanted:?}");
    }
    for (path, wanted) in &variables {
        let pairs = trained[path].scalars().zip(wanted.scalars());
        for (found, wanted) in pairs {
            assert!((found.to_f64() - wanted.to_f64()).abs() < 1e-5, "{path}: {found}, {wanted}");
        }
    }
}

fn sum_of(ranks: usize, scale: f64) -> Program {
    let mesh = Mesh::new([("data", ranks)]).unwrap();
    let function = build(&mesh, |f| {
        let x = f.input("x", TensorType::new(DType::F32, [4]).varying_over(&["data"]));
        f.output("y", (x * scale).psum("data"));
    });
    Program::from_functions(vec![function]).unwrap()
}

#[test]
fn without_ranks_a_mesh_is_an_error_that_helps() {
    for device in [Device::Cpu, Device::Interpreter] {
        let mut alone = Session::open(device).unwrap();
        let error = alone.compile(&sum_of(2, 1.0), "f", bind!()).unwrap_err().to_string();
        let wanted = "@f runs on the 2 ranks of mesh(data=2), and the session has joined no ranks";
        assert!(error.contains(wanted) && error.contains("`Session::join`"), "{error}");
    }
    let errors = on_ranks(2, |world| {
        let error = Session::open(Device::Interpreter).unwrap().join(world.clone()).unwrap_err();
        assert!(error.to_string().contains("this device joins no ranks"), "{error}");
        let mut session = session(world.clone());
        let again = session.join(world).unwrap_err().to_string();
        assert!(again.contains("ranks or functions already"), "{again}");
        session.compile(&sum_of(3, 1.0), "f", bind!()).unwrap_err().to_string()
    });
    for error in errors {
        let wanted = "@f runs on the 3 ranks of mesh(data=3), the world has 2 ranks";
        assert!(error.contains(wanted) && error.contains("start 3 ranks"), "{error}");
    }
}

#[test]
fn ranks_with_different_plans_find_out() {
    let errors = on_ranks(2, |world| {
        let program = sum_of(2, 1.0 + world.rank() as f64);
        session(world).compile(&program, "f", bind!()).unwrap_err().to_string()
    });
    for error in errors {
        assert!(error.contains("the ranks differ in `plan`"), "{error}");
    }
}

/// A rank that does not come to a collective: the others get the transport's error, and no later
/// run succeeds.
#[test]
fn a_missing_rank_is_an_error_of_the_others() {
    let options = Options { timeout: Duration::from_millis(1500), ..Options::default() };
    let world = shared::threads(2, &options).unwrap();
    let program = sum_of(2, 1.0);
    let errors: Vec<Option<(String, String)>> = std::thread::scope(|scope| {
        let program = &program;
        let run = |world: Communicator| {
            let rank = world.rank();
            let mut step = session(world).compile(program, "f", bind!()).unwrap();
            let x = Literal::from_vec(&[4], vec![1f32; 4]).unwrap();
            (rank == 0).then(|| {
                let mut run = || step.run(&[("x", &x)]).unwrap_err().to_string();
                (run(), run())
            })
        };
        let threads: Vec<_> =
            world.into_iter().map(|rank| scope.spawn(move || run(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (first, second) = errors[0].as_ref().unwrap();
    assert!(first.contains("rank 1") && first.contains("collective"), "{first}");
    assert!(second.contains("an earlier operation failed"), "{second}");
}
