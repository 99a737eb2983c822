//! Equations of layers, models, optimisers, operators, linear algebra and Fourier transforms have
//! the location of the user's call.

use wengert::core::build::Padding;
use wengert::core::graph::{Body, Function};
use wengert::core::op::Op;
use wengert::models::{
    Bert, BertSettings, Convnet, ConvnetSettings, Gpt, GptSettings, Llama, LlamaSettings,
    LstmModel, LstmModelSettings, Mlp, ResNet, ResNetSettings, UNet, UNetSettings,
};
use wengert::nn::loss::{
    BinaryCrossEntropy, CosineEmbedding, CrossEntropy, Ctc, Focal, Huber, KlDivergence,
    MeanAbsoluteError, MeanSquaredError, SmoothL1, TripletMargin, linear_cross_entropy,
};
use wengert::nn::{
    Activation, BatchNorm, ConvTranspose2d, CrossAttention, GroupNorm, GroupedQueryAttention, Gru,
    InstanceNorm, Mask, MixtureOfExperts, RmsNorm, Rotary, SelfAttention, SwiGlu,
    dot_product_attention, with_dtype,
};
use wengert::operators::{Axes, ByPath, call, gvp, hessian_blocks};
use wengert::optim::{Ema, Groups, Rate, accumulate, clip_by_global_norm, clip_by_value};
use wengert::prelude::*;
use wengert::{Location, fft, linalg};

/// Builds a function and checks all its locations, and those of the `@init` of its variables.
fn located(f: impl FnOnce(&mut FunctionBuilder)) {
    let mut program = Program::new();
    program.function("f", f).unwrap();
    for function in program.functions() {
        for input in &function.inputs {
            check(
                function,
                function.locations.origin(input.location),
                &format!("input {}", input.name),
            );
        }
        check_body(function, &function.body);
    }
}

fn check_body(function: &Function, body: &Body) {
    for equation in &body.equations {
        if !matches!(equation.op, Op::Constant(_)) {
            let chain = function.locations.describe(equation.location);
            check(
                function,
                function.locations.origin(equation.location),
                &format!("{}: {chain}", equation.op.name()),
            );
        }
        equation.regions.iter().for_each(|region| check_body(function, region));
    }
}

fn check(function: &Function, location: &Location, what: &str) {
    match location {
        Location::Source { file, .. } if **file == *file!() => {}
        other => panic!("@{}: {what} is located at {other}", function.name),
    }
}

#[test]
#[should_panic(expected = "is located at wengert/src/nn/linear.rs:1:1")]
fn a_location_in_the_library_is_found() {
    located(|f| {
        let x = f.input("x", f32("3"));
        let library = Location::source("wengert/src/nn/linear.rs", 1, 1);
        f.output("y", library.attribute(|| &x + 1.0));
    });
}

#[test]
fn layers() {
    located(|f| {
        let x = f.input("x", f32("4,8,8,3"));
        let tokens = f.input("tokens", i32("4,6"));
        let key = f.key("key");
        let conv = f.param("conv", Conv2d::new(3, 4, [3, 3]).same());
        let up = f.param("up", ConvTranspose2d::new(4, 3, [2, 2]).stride([2, 2]));
        let norm = BatchNorm::new(4);
        let running = f.state("running", norm.first_statistics());
        let norm = f.param("norm", norm);
        let y = conv.call(&x);
        let steps = f.param("steps", Conv1d::new(4, 4, [3]).dilation([2]).causal());
        f.output("steps", steps.call(&y.slice(s![.., 0])));
        let (y, after) = norm.train(&y, &running);
        let y = norm.call(&y, &after);
        let y = up.call(&Activation::GeluTanh.call(&y));
        f.output("image", y);
        let embedding = f.param("embedding", Embedding::new(10, 8));
        let attention = f.param("attention", SelfAttention::new(8, 2, Mask::Causal));
        let layer_norm = f.param("layer_norm", LayerNorm::new(8));
        let rms = f.param("rms", RmsNorm::new(8));
        let linear = f.param("linear", with_dtype(&Linear::kaiming(8, 10), DType::F32));
        let h = attention.call(&layer_norm.call(&embedding.call(&tokens)));
        let h = Dropout::new(0.5).call(&rms.call(&h), Some(&key));
        f.output("loss", cross_entropy(&linear.call(&h), &tokens));
        f.output("chunked", linear_cross_entropy(&h, &embedding.weight, &tokens, 2));
        let lstm = f.param("lstm", Lstm::new(8, 5));
        let first = f.state("first", lstm.first_state(6));
        let (all, last) = lstm.call(&h, &first);
        f.output("all", all);
        f.output("last", last.cell);
        f.output("zero", lstm.zero_state(3).hidden);
        let q = h.reshape([4, 6, 2, 4]);
        f.output(
            "attended",
            dot_product_attention(
                &q,
                &q,
                &q,
                Mask::None,
                Some(&q.sum().broadcast_to(&[1; 4].map(Dim::from))),
            ),
        );
    });
}

#[test]
fn layers_of_transformers() {
    located(|f| {
        let x = f.input("x", f32("4,6,8"));
        let valid = f.input("valid", bool("4,6"));
        let grouped = GroupedQueryAttention::new(8, 4, 2).rotary(Rotary::new(2));
        let cache = f.state("cache", grouped.first_cache(4, 12));
        let (grouped, position) = (f.param("grouped", grouped), f.input("position", i32("")));
        let y = grouped.call(&x);
        let positions = f.input("positions", i32("4"));
        let each = grouped.call_cached(&y, &grouped.zero_cache(4, 12), &positions).0;
        f.output("each", each);
        let own = f.param("own", SelfAttention::new(8, 2, Mask::None));
        f.output("padded", own.call_padded(&x, &positions));
        let (y, cache) = grouped.call_cached(&y, &cache, &position);
        f.output("keys", cache.keys);
        f.output("zero", grouped.zero_cache(4, 12).values);
        let cross = f.param("cross", CrossAttention::new(8, 8, 2));
        let y = cross.call(&y, &x, Some(&valid));
        let y = f.param("swiglu", SwiGlu::new(8, 12)).call(&y);
        let (y, balance) = f.param("experts", MixtureOfExperts::new(8, 12, 4, 2)).call(&y);
        f.output("balance", balance);
        let y = f.param("group_norm", GroupNorm::new(2, 8)).call(&y);
        let y = f.param("instance_norm", InstanceNorm::new(8)).call(&y);
        let gru = Gru::new(8, 5);
        let first = f.state("first", gru.first_state(6));
        let gru = f.param("gru", gru);
        f.output("all", gru.call(&y, &first).0);
        f.output("last", gru.call(&y, &gru.zero_state(6)).1);
    });
}

#[test]
fn losses() {
    located(|f| {
        let (x, t) = (f.input("x", f32("4,8")), f.input("t", f32("4,8")));
        let (labels, similar) = (f.input("labels", i32("4")), f.input("similar", bool("4")));
        let weights = f.input("weights", f32("8"));
        let binary = BinaryCrossEntropy {
            positive_weight: Some(weights.clone()),
            weight: Some(weights.clone()),
            ..Default::default()
        };
        let classes = CrossEntropy {
            label_smoothing: 0.1,
            ignored: Some(-1),
            class_weights: Some(weights),
            ..Default::default()
        };
        let triplet = TripletMargin { swap: true, order: 3.0, ..Default::default() };
        let made = [
            MeanSquaredError::default().call(&x, &t),
            MeanAbsoluteError::default().call(&x, &t),
            Huber::default().call(&x, &t),
            SmoothL1::default().call(&x, &t),
            binary.call(&x, &t),
            Focal::default().call(&x, &t),
            classes.call(&x, &labels),
            KlDivergence::default().call(&x, &t),
            KlDivergence { log_targets: true, ..Default::default() }.call(&x, &t),
            CosineEmbedding::default().call(&x, &t, &similar),
            triplet.call(&x, &t, &x),
            Ctc::default().call(&x.reshape([2, 4, 4]), &labels.reshape([4, 1]), &labels, &labels),
        ];
        for (i, y) in made.iter().enumerate() {
            f.output(&format!("y{i}"), y);
        }
    });
}

#[test]
fn models() {
    located(|f| {
        let tokens = f.input("tokens", i32("2,6"));
        let key = f.key("key");
        let gpt = GptSettings { vocabulary: 10, positions: 6, width: 8, heads: 2, layers: 2 };
        let gpt = f.param("gpt", Gpt::new(&gpt));
        f.output("gpt", gpt.call_dropping(&tokens, Dropout::new(0.1), &key));
        f.output("loss", gpt.loss(&tokens, &tokens));
        f.output("chunks", gpt.loss_in_chunks(&tokens, &tokens, 2));
        let bert = BertSettings {
            vocabulary: 10,
            positions: 6,
            types: 2,
            width: 8,
            intermediate: 16,
            heads: 2,
            layers: 1,
        };
        let bert = f.param("bert", Bert::new(&bert));
        let mask = tokens.gt(0);
        f.output("bert", bert.pool(&bert.call(&tokens, &mask, None)));
        f.output("embedded", bert.embed(&tokens, &mask));
        let llama = LlamaSettings {
            vocabulary: 10,
            width: 8,
            layers: 1,
            heads: 4,
            key_value_heads: 2,
            intermediate: 12,
            positions: 9,
            ..LlamaSettings::LLAMA_2_7B
        };
        let llama = Llama::new(&llama);
        let caches = f.state("caches", llama.first_caches(2));
        let (llama, position) = (f.param("llama", llama), f.input("position", i32("")));
        f.output("llama", llama.loss(&tokens, &tokens));
        let (logits, caches) = llama.call_cached(&tokens, &caches, &position);
        f.output("cached", logits);
        f.output("keys", &caches[0].keys);
        f.output("zeros", &llama.zero_caches(2)[0].values);
        let lstm =
            LstmModelSettings { vocabulary: 10, embedding: 4, width: 5, layers: 2, dropout: 0.1 };
        let lstm = f.param("lstm", LstmModel::new(&lstm));
        let (logits, _) = lstm.call(&tokens, &lstm.zero_state(6), Some(&key));
        f.output("lstm", logits);
    });
    located(|f| {
        let x = f.input("x", f32("2,16,16,3"));
        let key = f.key("key");
        let convnet = ConvnetSettings {
            image: [16, 16],
            channels: 3,
            features: [2, 2],
            width: 4,
            classes: 3,
            dropout: 0.1,
        };
        let convnet = f.param("convnet", Convnet::new(&convnet));
        f.output("convnet", convnet.call(&x, Some(&key)));
        let unet = f.param(
            "unet",
            UNet::new(&UNetSettings { channels: 3, width: 2, depth: 2, classes: 3 }),
        );
        f.output("unet", unet.call(&x));
        let settings = ResNetSettings { channels: 3, width: 2, blocks: [1, 1, 1, 1], classes: 3 };
        let resnet = ResNet::new(&settings);
        let statistics = f.state("statistics", resnet.statistics());
        let resnet = f.param("resnet", resnet);
        f.output("resnet", resnet.call(&x, &statistics));
        let (y, after) = resnet.train(&x, &statistics);
        f.output("trained", y);
        for (path, tensor) in after.tensors() {
            f.update(&format!("statistics.{path}"), &tensor);
        }
        let mlp = f.param("mlp", Mlp::new(&[3, 4, 2], Activation::Relu));
        f.output("mlp", mlp.call(&x));
    });
}

#[test]
fn optimisers() {
    located(|f| {
        let x = f.input("x", f32("4,3"));
        let rate = Rate::warmup_cosine(0.1, 10, 100, 0.01);
        let names =
            ["sgd", "adam", "adamw", "muon", "lion", "rmsprop", "adagrad", "adafactor", "soap"];
        for name in names {
            let halves = with_dtype(&Linear::new(3, 3), DType::F16);
            let model = f.state(name, (Mlp::new(&[3, 4, 3], Activation::Relu), halves));
            let loss = |(mlp, halves): &(Mlp, Linear)| {
                mlp.call(&x).mean() + halves.call(&x.convert(DType::F16)).convert(DType::F32).mean()
            };
            let gradient = grad(&model, loss);
            let (gradient, norm) = clip_by_global_norm(&gradient, 1.0);
            f.output(&format!("norm_{name}"), norm);
            match name {
                "sgd" => Sgd::new(rate.clone())
                    .nesterov(0.9)
                    .weight_decay(0.1)
                    .step(f, &model, &gradient),
                "adam" => Adam::new(0.1).step(f, &model, &gradient),
                "adamw" => AdamW::new(rate.clone()).step(f, &model, &gradient),
                "muon" => {
                    Muon::new(0.1).rest(AdamW::new(0.1).named("rest")).step(f, &model, &gradient);
                }
                "lion" => Lion::new(rate.clone().warmup(3)).step(f, &model, &gradient),
                "rmsprop" => RmsProp::new(Rate::cosine_restarts(0.1, 0.0, 3, 2))
                    .groups(Groups::new().freeze("*.bias").scale_rate("*", 0.5))
                    .centered()
                    .step(f, &model, &gradient),
                "adagrad" => Adagrad::new(Rate::exponential(0.1, 0.9)).rate_decay(0.1).step(
                    f,
                    &model,
                    &clip_by_value(&gradient, 0.1),
                ),
                "adafactor" => {
                    Adafactor::new(Rate::linear(0.1, 0.2, 9)).step(f, &model, &gradient);
                }
                _ => Soap::new(Rate::inverse_square_root(0.1, 9)).step(f, &model, &gradient),
            }
            Ema::new(0.9).warmup(1.0).named(&format!("ema_{name}")).step(f, &model);
        }
        let averaged = Ema::param(f, "other", Mlp::new(&[3, 4, 3], Activation::Relu));
        let cycle = Rate::one_cycle(0.1, 100, 0.3);
        let state = f.state("last", Mlp::new(&[3, 4, 3], Activation::Relu));
        let loss = |m: &Mlp, x: &Tensor| m.call(x).mean();
        let gradient = accumulate(2, &x, |x| grad(&state, |m| loss(m, x)));
        Sgd::new(cycle).named("last_sgd").step(f, &state, &gradient);
        f.output("averaged", averaged.call(&x));
    });
}

#[test]
fn operators() {
    located(|f| {
        let x = f.input("x", f64("3"));
        let unused = f.input("unused", f64("3"));
        let n = f.input("n", i32("3"));
        let pair = (x.clone(), unused.clone(), n.clone());
        let cube = |x: &Tensor| (x * x * x).sum();
        let (dx, zero, _) = grad(&pair, |(x, _, _)| cube(x));
        f.output("dx", dx);
        f.output("zero", zero);
        let zero = pair.zero_tangent();
        f.output("zero_tangent", zero.2);
        f.output("hessian", hessian(&x, cube));
        f.output("jacfwd", jacfwd(&x, |x| x.exp()));
        f.output("jacrev", jacrev(&x, |x| x.exp()));
        f.output("hvp", hvp(&x, &x, cube));
        f.output("gvp", gvp(&x, &x, |x| x.exp(), |y| y.square().sum()));
        f.output("blocks", &hessian_blocks(&pair, |(x, u, _)| cube(x) + cube(u))[0].1.1);
        let (y, dy) = jvp(&x, &x.ones_like(), |x| x.sin());
        let (_, back) = vjp(&x, |x| x.cos());
        f.output("jvp", dy);
        f.output("vjp", back(&y));
        let (_, slope) = linearize(&x, |x| x.tanh());
        f.output("forward", slope.push_forward(&x));
        f.output("back", slope.pull_back(&x));
        f.output("many", slope.push_forward_batch(&x.broadcast_to(&[2.into(), 3.into()])));
        f.output("transposed", transpose(&x, |x| x.cumsum(0))(&x));
        let (_, series) = jet(&x, &[x.ones_like()], |x| x.exp());
        f.output("jet", &series[0]);
        f.output("nth", nth_derivative(3, &x.sum(), |x| x.sin()));
        let own = custom_vjp(&x, |x| (x.exp(), x.exp()), |y, ct: &Tensor| ct * y);
        let own = custom_jvp(&own, |x: &Tensor| x.sin(), |x, _, t: &Tensor| x.cos() * t);
        f.output("own", grad(&x, |x| (own.clone() * x).sum()));
        let clipped = |x: &Tensor| with_derivative(x, |ct| ct.clamp(-1.0, 1.0));
        f.output("clipped", grad(&x, |x| clipped(x).sum()));
        f.output("called", call("name", &x, |x| x.exp()));
        f.output(
            "kept",
            grad(&x, |x| checkpoint(Checkpoint::nothing(), x, |x| x.sin().exp()).sum()),
        );
        let a = f.input("a", f64("3,3"));
        let solve = |map: &dyn Fn(&Tensor) -> Tensor, b: &Tensor| {
            control::while_at_most(9, b, |x| map(x).sum().lt(1.0), |x| x + (b - map(x)) * 0.1)
        };
        f.output(
            "solved",
            grad(&x, |b| {
                custom_linear_solve(|x: &Tensor| a.dot(x), b, solve, TransposeSolve::Same).sum()
            }),
        );
        let root = |c: &Tensor| {
            custom_root(
                |x: &Tensor| x * x - c,
                &x.ones_like(),
                |f, x| control::fori(9, x, |_, x| x - f(x) * 0.1),
                |g, y| y / g(&y.ones_like()),
            )
        };
        f.output("root", grad(&x, |x| root(x).sum()));
    });
}

#[test]
fn loops_and_maps() {
    located(|f| {
        let x = f.input("x", f32("7,3"));
        let n = f.input("n", i32(""));
        let zero = f.input("zero", f32("3"));
        let step = |c: &Tensor, x: &Tensor| (c * 0.5 + x.sin(), c * x);
        let losses: Vec<Tensor> = vec![
            grad(&x, |x| control::scan(&zero, x, step).1.sum()),
            grad(&x, |x| control::scan_reverse(&zero, x, step).0.sum()),
            grad(&x, |x| control::scan_unrolled(2, &zero, x, step).1.sum()),
            grad(&x, |x| control::scan_checkpointed(2, &zero, x, step).1.sum()),
            grad(&x, |x| control::fori(3, x, |i, x| x * i.convert(DType::F32)).sum()),
            grad(&x, |x| control::fori_upto(&n, 3, x, |_, x| x.sin()).sum()),
            grad(&x, |x| control::while_at_most(5, x, |x| x.sum().lt(1.0), |x| x * 2.0).sum()),
            grad(&x, |x| control::while_checkpointed(2, x, |x| x.sum().lt(1.0), |x| x * 2.0).sum()),
            grad(&x, |x| control::cond(&n.gt(0), || x.sin(), || x.cos()).sum()),
            grad(&x, |x| {
                control::switch(&n, vec![Box::new(|| x.sin()), Box::new(|| x.cos())]).sum()
            }),
            grad(&x, |x| control::associative_scan(x, |a, b| a * b).sum()),
            grad(&x, |x| control::associative_scan_reverse(x, |a, b| a * b).sum()),
            grad(&x, |x| control::map(x, |x| x.exp()).sum()),
            vmap(&x, |x| grad(x, |x| (x * x * &zero).sum())),
            grad(&x, |x| vmap_axes(x, 1, 1, |x| x.cumsum(0)).sum()),
            vmap_axes(&x, axes(), 0, |x| control::scan(&x.sum(), x, |c, x| (c + x, c * x)).1),
            vmap(&x, |x| (x.sum(), zero.sum())).1,
        ];
        for (i, loss) in losses.iter().enumerate() {
            f.output(&format!("y{i}"), loss);
        }
    });
}

fn axes() -> impl Axes {
    ByPath(|_: &wengert::core::KeyPath, _: &Tensor| Some(0))
}

#[test]
fn methods_made_of_several_ops() {
    located(|f| {
        let x = f.input("x", f32("4,6,6,2"));
        let (key, at) = (f.key("key"), f.input("at", i32("4")));
        let made = [
            x.mean(),
            x.convert(DType::F16).var_axes(&[1, 2]),
            x.gelu(),
            x.gelu_tanh(),
            x.silu(),
            x.softplus(),
            (!x.gt(0.0) & x.lt(1.0)).convert(DType::F32),
            x.relu(),
            x.avg_pool(&[2, 2], &[2, 2], &Padding::Same),
            x.max_pool(&[2, 2], &[2, 2], &Padding::Valid),
            x.dynamic_slice(&[&at], [1, 1, 1, 1]),
            x.dynamic_index_in_dim(&at.sum(), 1),
            x.gather_rows(&at),
            at.one_hot(3, DType::F32),
            key.normal(DType::F16, [3]),
            key.truncated_normal(DType::F32, [3], -1.0, 1.0),
            key.uniform_between(DType::F64, [3], 0.0, 1.0),
            key.exponential(DType::F32, [3]),
            key.categorical(&x, 3),
            key.bernoulli(0.5, [3]),
            key.shuffle(&x),
            key.dropout_mask(DType::F32, [3], 0.5),
            key.fold_in(7),
            key.split_key(2)[1].clone(),
            x.clamp(0.0, 1.0),
            x.nextafter(1.0),
            1.0 / &x,
            x.top_k(2, 1).1,
            x.take_along_axis(&x.argsort(1), 1),
        ];
        for (i, y) in made.iter().enumerate() {
            f.output(&format!("y{i}"), y);
        }
    });
}

#[test]
fn linear_algebra_and_transforms() {
    located(|f| {
        let a = f.input("a", f32("2,4,4"));
        let b = f.input("b", f32("2,4"));
        let made = [
            grad(&a, |a| linalg::cholesky(a).sum()),
            grad(&a, |a| linalg::solve(a, &b).sum()),
            grad(&a, |a| linalg::qr(a, false).1.sum()),
            grad(&a, |a| linalg::svdvals(a).sum()),
            linalg::eigh(&a).1,
            linalg::lu(&a).0,
            linalg::inv(&a),
            linalg::matrix_exp(&a),
            linalg::slogdet(&a).1,
            linalg::det(&a),
            linalg::triangular_solve(
                &a,
                &b,
                linalg::TriangularSolve { left_side: true, lower: true, ..Default::default() },
            ),
            linalg::Cg::default().solve(|x: &Tensor| x * 2.0, &b),
            grad(&b, |b| fft::rfft(b).0.sum()),
            fft::fft(&(b.clone(), b.clone())).1,
            fft::ifftn(&(a.clone(), a.clone()), &[1, 2]).0,
            fft::irfft(&(b.clone(), b.clone()), 7),
            fft::irfft(&(b.clone(), b.clone()), 6),
            fft::rfft(&b.reshape([8]).slice_axis(0, 0, 7)).0,
            fft::fft(&(f.input("p", f32("17")), f.input("q", f32("17")))).0,
        ];
        for (i, y) in made.iter().enumerate() {
            f.output(&format!("y{i}"), y);
        }
    });
}
