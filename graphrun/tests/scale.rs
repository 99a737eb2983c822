//! `graphrun scale` as a process. The expected bytes are computed by hand.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A linear layer of 2048 weights with two states each, as an optimiser like Adam has. The
/// gradient is a product over the examples.
const STEP: &str = "\
func @step(%x: f32[16,64], %y: f32[16,32], state %w: f32[64,32], state %m: f32[64,32], \
state %v: f32[64,32]) -> (state w: f32[64,32], state m: f32[64,32], state v: f32[64,32], \
loss: f32[]) {
  %0: f32[16,32] = dot_general %x, %w {contract=[[1],[0]]}
  %1: f32[16,32] = sub %0, %y
  %2: f32[16,32] = mul %1, %1
  %3: f32[] = reduce_sum %2 {axes=[0,1]}
  %4: f32[64,32] = dot_general %x, %1 {contract=[[0],[0]]}
  %5: f32[64,32] = add %m, %4
  %6: f32[64,32] = mul %4, %4
  %7: f32[64,32] = add %v, %6
  %8: f32[64,32] = sub %w, %5
  return %8, %5, %7, %3
}
";

/// Bytes of the weights.
const P: f64 = 8192.0;

/// Exit status, standard output and standard error.
fn graphrun(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_graphrun"));
    let output = command.current_dir(folder).arg("scale").args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn place() -> TempDir {
    let place = TempDir::new().unwrap();
    std::fs::write(place.path().join("step.ir"), STEP).unwrap();
    place
}

/// The prediction as JSON.
fn json(folder: &Path, arguments: &[&str]) -> Value {
    let (status, out, err) = graphrun(folder, &[arguments, &["--json"]].concat());
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    serde_json::from_str(&out).unwrap()
}

/// Bytes that a rank sends over a link in all collectives of a kind; 0 without any.
fn sent(prediction: &Value, kind: &str, link: usize) -> f64 {
    let all = prediction["transfers"].as_array().unwrap();
    let found = all.iter().find(|t| t["collective"] == kind);
    found.map_or(0.0, |t| t["sent"][link]["bytes"].as_f64().unwrap())
}

#[test]
fn each_stage_has_the_bytes_of_the_formula() {
    let place = place();
    // Parameters, states and gradients; then what a rank sends by psum, psum_scatter and
    // all_gather. The loss is 4 bytes. A ring of 4 sends 2·3/4 of a sum and 3/4 of the others.
    let (sum, part) = (1.5 * P, 0.75 * P);
    let stages = [
        ([P, 2.0 * P, P], [sum + 6.0, 0.0, 0.0]),
        ([P, P / 2.0, P], [sum + 6.0, 0.0, part]),
        ([P, P / 2.0, P / 4.0], [6.0, part, part]),
        ([P / 4.0, P / 2.0, P / 4.0], [6.0, part, part]),
    ];
    for (stage, (state, transfers)) in stages.iter().enumerate() {
        let stage = stage.to_string();
        let arguments = ["step.ir", "--mesh", "data=4", "--machine", "h200-nvl8", "--zero", &stage];
        let found = json(place.path(), &arguments);
        let memory = &found["memory"];
        for (name, bytes) in ["parameters", "optimizer", "gradients"].iter().zip(state) {
            assert_eq!(memory["state"][name].as_f64(), Some(*bytes), "stage {stage}: {found:#}");
        }
        assert_eq!(memory["variables"].as_f64(), Some(state[0] + state[1]), "{found:#}");
        // A quarter of 16 rows of 64 + 32 numbers, and the loss.
        assert_eq!((&memory["inputs"], &memory["outputs"]), (&Value::from(1536), &Value::from(4)));
        let parts = ["variables", "inputs", "outputs", "constants", "arena"];
        let all: f64 = parts.iter().map(|part| memory[part].as_f64().unwrap()).sum();
        assert_eq!(memory["total"].as_f64(), Some(all), "{found:#}");
        for (kind, bytes) in ["psum", "psum_scatter", "all_gather"].iter().zip(transfers) {
            assert_eq!(sent(&found, kind, 0), *bytes, "stage {stage}, {kind}: {found:#}");
        }
        let seconds = |name: &str| found[name].as_f64().unwrap();
        let (computation, transfer) = (seconds("computation_seconds"), seconds("transfer_seconds"));
        let step = found["step"]["seconds"].as_f64().unwrap();
        assert_eq!(step, computation + transfer);
        assert_eq!(found["perfect_overlap"]["seconds"].as_f64(), Some(computation.max(transfer)));
        let efficiency = found["step"]["efficiency"].as_f64().unwrap();
        assert_eq!(efficiency, seconds("alone_seconds") / (4.0 * step));
        assert_eq!(found["step"]["examples_per_second"].as_f64(), Some(16.0 / step));
    }
}

#[test]
fn nodes_exchange_over_the_network() {
    let place = place();
    let arguments = ["step.ir", "--mesh", "data=16", "--machine", "h100-sxm8"];
    let found = json(place.path(), &arguments);
    // Two nodes of 8: 2·7/8 within a node, then half of the eighth that each rank has, twice.
    assert_eq!(sent(&found, "psum", 0), 1.75 * (P + 4.0));
    assert_eq!(sent(&found, "psum", 1), (P + 4.0) / 8.0);
    let direct = json(place.path(), &[&arguments[..], &["--exchange", "direct"]].concat());
    assert_eq!(sent(&direct, "psum", 0), 2.0 * (P + 4.0) * 7.0 / 16.0);
    assert_eq!(sent(&direct, "psum", 1), 2.0 * (P + 4.0) * 8.0 / 16.0);
    let (status, out, err) = graphrun(place.path(), &arguments);
    assert_eq!(status, 0, "{err}");
    for part in [
        "@step on mesh(data=16), h100-sxm8, 16 microbatches; ZeRO stage 0; plan for sm_90",
        "collectives have not run on GPUs yet",
        "InfiniBand, sent",
        "kernels of a rank",
        "transfers do not overlap with kernels",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(err.contains("figures without a published source: memory") || err.contains("scalar"));
}

/// Columns of the weights are divided among neighbours, which need no exchange but for the loss.
/// Gradients are exchanged between the ranks with the same columns, one in each half of a node.
#[test]
fn neighbours_share_products() {
    let place = place();
    let found = |mesh: &str, zero: &str| {
        let axes = ["--tensor-axis", "w=1", "--zero", zero];
        json(
            place.path(),
            &[&["step.ir", "--mesh", mesh, "--machine", "h100-sxm8"], &axes[..]].concat(),
        )
    };
    let over = |found: &Value, axis: &str| -> Vec<f64> {
        let all = found["transfers"].as_array().unwrap().iter();
        let of = all.filter(|t| t["over"][0] == axis && t["over"].as_array().unwrap().len() == 1);
        let mut sent = vec![0.0; 2];
        for transfers in of {
            let links = transfers["sent"].as_array().unwrap();
            for (sum, link) in sent.iter_mut().zip(links) {
                *sum += link["bytes"].as_f64().unwrap();
            }
        }
        sent
    };
    // One node: two groups of four.
    let node = found("data=2,tensor=4", "0");
    assert_eq!(node["mesh"], serde_json::json!({ "data": 2, "tensor": 4 }));
    let state = &node["memory"]["state"];
    for (name, bytes) in [("parameters", P / 4.0), ("optimizer", P / 2.0), ("gradients", P / 4.0)] {
        assert_eq!(state[name].as_f64(), Some(bytes), "{node:#}");
    }
    // A sum in a ring of 2 sends its bytes once: the gradient, and the loss.
    assert_eq!(over(&node, "data"), [P / 4.0 + 4.0, 0.0], "{node:#}");
    // The loss, twice 3/4 of 4 bytes; and y, which is whole, is cut.
    assert_eq!(over(&node, "tensor"), [6.0, 0.0], "{node:#}");
    // Two nodes: each is a group, so gradients go over the network.
    let nodes = found("data=2,tensor=8", "0");
    assert_eq!(over(&nodes, "data"), [0.0, P / 8.0 + 4.0], "{nodes:#}");
    assert_eq!(over(&nodes, "tensor"), [7.0, 0.0], "{nodes:#}");
    // Parts are divided further.
    let parts = &found("data=2,tensor=2", "3")["memory"]["state"];
    assert_eq!(parts["parameters"].as_f64(), Some(P / 4.0), "{parts:#}");
    let alone = found("tensor=4", "0");
    assert_eq!(alone["memory"]["state"], Value::Null);
    assert_eq!(alone["memory"]["variables"].as_f64(), Some(3.0 * P / 4.0));
    assert_eq!(over(&alone, "tensor"), [6.0, 0.0]);
    let arguments = ["step.ir", "--mesh", "data=2,tensor=4", "--machine", "h100-sxm8"];
    let arguments = [&arguments[..], &["--tensor-axis", "w=1"]].concat();
    let (status, out, err) = graphrun(place.path(), &arguments);
    assert_eq!(status, 0, "{err}");
    for part in ["@step on mesh(data=2, tensor=4), h100-sxm8, 2 microb", "psum over tensor"] {
        assert!(out.contains(part), "{part}: {out}");
    }
}

#[test]
fn one_rank_has_no_transfers() {
    let place = place();
    let found = json(place.path(), &["step.ir", "--mesh", "data=1", "--machine", "h100-sxm8"]);
    assert_eq!(found["transfers"].as_array().unwrap().len(), 0);
    assert_eq!(found["memory"]["state"], Value::Null);
    assert_eq!(found["memory"]["variables"].as_f64(), Some(3.0 * P));
    assert_eq!(found["step"]["efficiency"].as_f64(), Some(1.0));
}

/// A machine of the CPU's target, whose ranks do join. Times are computed by hand.
#[test]
fn a_file_of_figures_gives_the_times() {
    let place = place();
    let figure = |value: &str| format!("{{ value = {value}, source = \"round, for a test\" }}");
    let rate = |peak: &str| format!("peak = {}\nshare = {}\n", figure(peak), figure("0.5"));
    let protocol = format!("bandwidth = {}\nlatency = {}\n", figure("1e3"), figure("0"));
    let text = format!(
        "name = \"slow\"\ncard = \"a CPU\"\ntarget = \"cpu\"\n\
         [memory]\nbytes = {}\nbandwidth = {}\nshare = {}\n\
         [products.f32]\n{}[scalar]\n{}\
         [start]\nkernel = {zero}\nlong = {}\nshort = {zero}\n\
         [[links]]\nname = \"wire\"\n[links.long]\n{protocol}[links.short]\n{protocol}",
        figure("1e9"),
        figure("1e12"),
        figure("1"),
        rate("4096"),
        rate("1e12"),
        figure("1"),
        zero = figure("0"),
    );
    std::fs::write(place.path().join("slow.toml"), text).unwrap();
    let arguments = ["step.ir", "--mesh", "data=4", "--machine", "slow.toml"];
    let found = json(place.path(), &arguments);
    // Two products of 4·64·32 multiplications and additions at 2048 operations a second.
    let products = &found["kernels"].as_array().unwrap()[0];
    assert_eq!(products["kind"], "products of f32");
    assert_eq!(products["operations"].as_f64(), Some(2.0 * 2.0 * 4.0 * 64.0 * 32.0));
    assert_eq!(products["seconds"].as_f64(), Some(16.0));
    // 1000 bytes a second, started at once.
    let transfer = found["transfer_seconds"].as_f64().unwrap();
    assert!((transfer - 1.5 * (P + 4.0) / 1000.0).abs() < 1e-9, "{transfer}");
    assert_eq!(found["assumed"].as_array().unwrap().len(), 0);
    let (status, out, err) = graphrun(place.path(), &arguments);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert!(!out.contains("have not run on GPUs"), "{out}");
}

#[test]
fn mistakes_are_errors() {
    let place = place();
    let none = "func @f(state %w: f32[4]) -> (state w: f32[4]) {\n  %0: f32[4] = add %w, %w\n  \
                return %0\n}\n";
    std::fs::write(place.path().join("none.ir"), none).unwrap();
    let built_in =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../wengert/src/scale/machines/h100-sxm8.toml");
    let text = std::fs::read_to_string(built_in).unwrap();
    let write = |name: &str, from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        std::fs::write(place.path().join(name), text.replacen(from, to, 1)).unwrap();
    };
    write("key.toml", "[scalar]", "[skalar]");
    write("less.toml", "[products.f32]", "[products.f64]");
    write("target.toml", "\"sm_90\"", "\"sm_9\"");
    write("value.toml", "bytes = { value = 80e9, ", "bytes = { ");
    let h100 = "h100-sxm8";
    for (file, mesh, machine, more, parts) in [
        ("step.ir", "data", h100, &[][..], ["`--mesh data` is no list of axes", "--mesh data=64"]),
        ("step.ir", "data=x", h100, &[], ["is no list of axes", "--mesh data=64"]),
        ("step.ir", "data=0", h100, &[], ["`--mesh data=0`", "extent 0"]),
        ("step.ir", "data=2,data=2", h100, &[], ["`--mesh data=2,data=2`", "declared twice"]),
        ("step.ir", "tensor=2,data=4", h100, &[], ["other axes than `data` and then", "data=64"]),
        ("step.ir", "data=4,pipe=2", h100, &[], ["other axes than `data` and then", "tensor=8"]),
        ("step.ir", "data=4,tensor=2", h100, &[], ["what `tensor` divides", "--tensor-axis"]),
        ("step.ir", "data=4", h100, &["--tensor-axis", "w=1"], ["no axis `tensor`", "tensor=8"]),
        (
            "step.ir",
            "data=2,tensor=2",
            h100,
            &["--tensor-axis", "v=x"],
            ["invalid value 'v=x'", "axis"],
        ),
        (
            "step.ir",
            "data=2,tensor=2",
            h100,
            &["--tensor-axis", "u=1"],
            ["no variable `u`", "`w`, `m`"],
        ),
        ("step.ir", "data=32", h100, &[], ["32 ranks, and a batch of 16 examples", "or fewer"]),
        ("step.ir", "data=12", h100, &[], ["12 ranks do not fill groups of 8", "use 8 or 16"]),
        ("step.ir", "data=4", h100, &["--microbatches", "6"], ["6 microbatches", "power of two"]),
        (
            "step.ir",
            "data=4",
            h100,
            &["--examples", "z"],
            ["there is no input `z`", "did you mean"],
        ),
        ("none.ir", "data=4", h100, &[], ["no input that could hold examples", "training step"]),
        ("step.ir", "data=4", h100, &["--bind", "B=4"], ["no dimension variable `B`", "leave"]),
        ("step.ir", "data=4", "no.toml", &[], ["no.toml", "h100-sxm8 and h200-nvl8 are built in"]),
        ("step.ir", "data=4", "key.toml", &[], ["unknown field `skalar`", "key.toml:"]),
        ("step.ir", "data=4", "value.toml", &[], ["missing field `value`", "value.toml:"]),
        ("step.ir", "data=4", "target.toml", &[], ["target.toml", "unknown target `sm_9`"]),
        ("step.ir", "data=4", "less.toml", &[], ["no rate of products of f32", "[products.f32]"]),
    ] {
        let arguments = [&[file, "--mesh", mesh, "--machine", machine], more].concat();
        let (status, out, err) = graphrun(place.path(), &arguments);
        assert_eq!((status, out.as_str()), (2, ""), "{arguments:?}: {err}");
        for part in parts {
            assert!(err.contains(part), "{part}: {err}");
        }
    }
}
