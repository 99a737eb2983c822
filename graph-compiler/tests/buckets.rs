//! Small collectives are joined: the bits are those of single ones, ranks meet, and memory holds.
#![allow(clippy::unwrap_used)] // Helpers outside of `#[test]` functions unwrap too.

use wengert_compiler::autodiff::operators::value_and_grad;
use wengert_compiler::pipeline::{Bound, Options, compile_kernels};
use wengert_compiler::ranks::{DataParallel, Sharding, Shards};
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::Function;
use wengert_core::interpret::run_ranks;
use wengert_core::op::{Attention, AttentionKind};
use wengert_core::plan::{Plan, Step, account, verify_ranks};
use wengert_core::{Binding, Call, Literal, Scalar, Target, Tensor, Verified};
use wengert_testing::ranks::{build, count, f32s, i32s, inputs, param};

/// Up to these many bytes of arena, no memory is saved.
const SPARE: u64 = 64 << 20;

fn without() -> Options {
    Options { fuel: [("buckets".to_string(), 0)].into(), ..Options::default() }
}

/// Outputs the loss, and updates the model by SGD with momentum, with gradients that are clipped
/// by their norm on request.
fn descend(
    f: &mut FunctionBuilder,
    shapes: &[&[usize]],
    clips: bool,
    loss: impl Fn(&[Tensor]) -> Tensor,
) {
    let all = || shapes.iter().map(|shape| param(shape)).collect::<Vec<Tensor>>();
    let (model, moments) = (f.state("model", all()), f.state("moments", all()));
    let (loss, gradient) = value_and_grad(&model, |m| loss(m));
    let norm = gradient.iter().map(|g| g.square().sum()).reduce(|a, b| a + b).unwrap().sqrt();
    for (i, ((w, m), g)) in model.iter().zip(&moments).zip(&gradient).enumerate() {
        let g = if clips { g / (&norm + 1.0) } else { g.clone() };
        let m = m * 0.9 + g;
        f.update(&format!("model.{i}"), &(w - &m * 0.1));
        f.update(&format!("moments.{i}"), &m);
    }
    f.output("loss", loss);
}

/// Small weights and biases, of which some are divided by ZeRO, and one large weight.
fn mlp(clips: bool) -> Function {
    build("step", |f| {
        let (x, y) = (f.input("x", f32s(&[8, 33])), f.input("y", i32s(&[8])));
        let shapes: [&[usize]; 8] =
            [&[33, 64], &[64], &[64, 80], &[80], &[80, 33], &[33], &[33, 5], &[5]];
        descend(f, &shapes, clips, |m| {
            let layer = |x: &Tensor, i: usize| x.dot(&m[2 * i]) + &m[2 * i + 1];
            let h = (0..3).fold(x.clone(), |h, i| layer(&h, i).tanh());
            layer(&h, 3).softmax_cross_entropy(&y).mean()
        });
    })
}

/// Two blocks with norms, whose scales are small, and attention.
fn transformer() -> Function {
    const WIDTH: usize = 16;
    build("step", |f| {
        let (x, y) = (f.input("x", i32s(&[8, 6])), f.input("y", i32s(&[8, 6])));
        let block: [&[usize]; 8] = [
            &[WIDTH],
            &[WIDTH, 3 * WIDTH],
            &[3 * WIDTH],
            &[WIDTH, WIDTH],
            &[WIDTH],
            &[WIDTH, 4 * WIDTH],
            &[4 * WIDTH],
            &[4 * WIDTH, WIDTH],
        ];
        let ends: [&[usize]; 2] = [&[11, WIDTH], &[WIDTH, 11]];
        let shapes = [&ends[..], &block, &block].concat();
        descend(f, &shapes, true, |m| {
            let mut h = m[0].gather_rows(&x);
            for w in m[2..].chunks(8) {
                let rows = (h.standardize(2, 1e-5) * (&w[0] + 1.0)).reshape([48usize, WIDTH]);
                let qkv = (rows.dot(&w[1]) + &w[2]).reshape([8usize, 6, 3, 2, WIDTH / 2]);
                let part = |i: i64| qkv.slice_axis(2, i, i + 1).reshape([8usize, 6, 2, WIDTH / 2]);
                let attention = Attention {
                    kind: AttentionKind::Value,
                    causal: true,
                    bias: false,
                    prefix: false,
                    scale: Scalar::of(0.25f64),
                };
                let [q, k, v] = [0, 1, 2].map(part);
                let out = Tensor::apply_many(attention, &[&q, &k, &v]).swap_remove(0);
                let out = out.reshape([48usize, WIDTH]).dot(&w[3]) + &w[4];
                let inner = (out.dot(&w[5]) + &w[6]).tanh();
                h = h + (out + inner.dot(&w[7])).reshape([8usize, 6, WIDTH]);
            }
            h.dot(&m[1]).softmax_cross_entropy(&y).mean()
        });
    })
}

/// The steps of a rank, of these networks, on 2 and 4 ranks, with each stage of ZeRO.
fn steps() -> Vec<(String, Function)> {
    let networks = [("mlp", mlp(false)), ("clipped mlp", mlp(true)), ("gpt", transformer())];
    let mut steps = Vec::new();
    for (name, function) in networks {
        for (ranks, microbatches) in [(2, 2), (2, 4), (4, 4)] {
            let parallel = DataParallel::new(["x", "y"]).ranks(ranks).microbatches(microbatches);
            let of_rank = parallel.apply(&function).unwrap_or_else(|e| panic!("{e}"));
            for sharding in Sharding::ALL {
                let shards = Shards::choose(&of_rank, sharding, []);
                let sharded = shards.apply(&of_rank).unwrap_or_else(|e| panic!("{e}"));
                let name = format!("{name}, {ranks} ranks, {microbatches} parts, {sharding:?}");
                steps.push((name, sharded));
            }
        }
    }
    steps
}

/// Inputs of all ranks. Variables that are whole are the same on all.
fn inputs_of_ranks(function: &Function) -> Vec<Vec<Literal>> {
    let whole = inputs(function, 5, 3);
    let of_rank = |rank: usize| {
        let own = inputs(function, 5, 4 + rank as u64);
        let chosen = own.into_iter().zip(&whole).enumerate().map(|(i, (own, whole))| {
            if function.input_type(i).varying.is_empty() { whole.clone() } else { own }
        });
        chosen.collect()
    };
    (0..function.mesh.ranks()).map(of_rank).collect()
}

fn exchanges(function: &Function) -> usize {
    function.numbered().iter().filter(|n| n.equation.op.exchanges()).count()
}

#[test]
fn buckets_change_no_bits() {
    for (name, function) in steps() {
        let of = |options| compile_kernels(&function, &Target::cpu(), options).unwrap().function;
        let (joined, single) = (of(&Options::default()), of(&without()));
        assert!(exchanges(&joined) < exchanges(&single), "{name}: {joined}");
        let given = inputs_of_ranks(&function);
        let run =
            |f: &Function| run_ranks(f, &given).unwrap_or_else(|e| panic!("{name}: {e}\n{f}"));
        assert!(run(&joined) == run(&single), "{name}: the bits differ");
    }
}

fn plan(function: &Function, options: &Options) -> Verified<Plan> {
    let bound = Bound::new(function, &Binding::new()).unwrap_or_else(|e| panic!("{e}"));
    bound.compile(&Target::cpu(), options).unwrap_or_else(|e| panic!("{e}")).0
}

/// Starts and calls of collectives.
fn collectives(plan: &Plan) -> usize {
    let mut count = 0;
    plan.visit(&mut |step| {
        let is_call = matches!(step, Step::Call { call: Call::Collective(_), .. });
        count += usize::from(is_call || matches!(step, Step::Start { .. }));
    });
    count
}

#[test]
fn ranks_meet_at_buckets_and_memory_holds() {
    for (name, function) in steps() {
        let (joined, single) = (plan(&function, &Options::default()), plan(&function, &without()));
        assert!(collectives(&joined) < collectives(&single), "{name}: {joined}");
        verify_ranks(&vec![&*joined; function.mesh.ranks()]).unwrap();
        assert!(joined.arena <= single.arena.max(SPARE), "{name}");
    }
}

/// A training step whose gradients are the whole arena.
fn large() -> Function {
    let function = build("step", |f| {
        let x = f.input("x", f32s(&[4, 32]));
        let shapes: Vec<&[usize]> = (0..12).flat_map(|_| [&[32usize, 32][..], &[32]]).collect();
        descend(f, &shapes, false, |m| {
            let layer = |h: Tensor, w: &[Tensor]| (h.dot(&w[0]) + &w[1]).tanh();
            m.chunks(2).fold(x.clone(), layer).square().mean()
        });
    });
    DataParallel::new(["x"]).ranks(2).microbatches(2).apply(&function).unwrap()
}

#[test]
fn a_plan_with_buckets_stays_within_its_budget() {
    let function = large();
    let least = {
        let target = Target { overlaps_collectives: false, ..Target::cpu() };
        let bound = Bound::new(&function, &Binding::new()).unwrap();
        account(&bound.compile(&target, &without()).unwrap().0).total()
    };
    let most = account(&plan(&function, &Options::default())).total();
    assert!(most > least, "buckets and overlap take memory: {most} and {least}");
    for part in 0..=4 {
        let budget = least + (most - least) * part / 4;
        let options = Options { memory_budget: Some(budget), ..Options::default() };
        let plan = plan(&function, &options);
        assert!(account(&plan).total() <= budget, "{budget}: {plan}");
    }
    // Below the memory of any plan without repetitions, both are compared.
    let tight = Options { memory_budget: Some(least - 1024), ..Options::default() };
    let bound = Bound::new(&function, &Binding::new()).unwrap();
    if let Ok((plan, _)) = bound.compile(&Target::cpu(), &tight) {
        assert!(account(&plan).total() < least, "{plan}");
    }
}

/// One nest writes the bucket, and the updates read its parts in place.
#[test]
fn a_bucket_is_written_once_and_read_in_place() {
    let function = build("step", |f| {
        let x = f.input("x", f32s(&[8, 32]));
        descend(f, &[&[32], &[32]], false, |m| ((&x * &m[0]).tanh() * &m[1]).sum());
    });
    let of_rank = DataParallel::new(["x"]).ranks(2).microbatches(2).apply(&function).unwrap();
    assert_eq!(count(&of_rank, "psum"), 3);
    let plan = plan(&of_rank, &Options::default());
    let text = plan.to_string();
    assert_eq!(collectives(&plan), 1, "{text}");
    assert!(text.contains("inner=65, kind=\"psum\""), "{text}");
    let mut copies = 0;
    plan.visit(&mut |step| copies += usize::from(matches!(step, Step::Copy { .. })));
    assert_eq!(copies, 0, "{text}");
}
