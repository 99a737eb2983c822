//! Options of `train` and `evaluate`: evaluation sets, early stopping, the best checkpoints, and
//! the finder of learning rates.

use crate::place::{Place, exists};
use serde_json::Value;
use wengert::optim::{Rate, Sgd};
use wengert::prelude::{Initializer, Tensor, TensorType, f32};
use wengert::recipe::{Cadence, EarlyStopping, FinalWeights, Kept, Monitoring};
use wengert::train::{Options, train};
use wengert::{DType, Device, GraphFile, Literal, Program, Session, data};

/// Options that end a run of `model.graph` early.
const STOPPING: [&str; 12] = [
    "--evaluate-every",
    "1",
    "--monitor",
    "mse:min",
    "--patience",
    "2",
    "--min-change",
    "0.01",
    "--keep-best",
    "2",
    "--weights",
    "best",
];

#[test]
fn options_give_the_bits_of_a_recipe() {
    let place = Place::new();
    let ran = place.train("model.graph", "a", &[&STOPPING[..], &["--steps", "200"]].concat());
    ran.good();
    let file = GraphFile::read(place.path("model.graph")).unwrap();
    let mut recipe = file.recipe.unwrap();
    recipe.evaluate.as_mut().unwrap().every = Cadence::Epochs(1);
    recipe.monitoring = Monitoring {
        watched: Some("mse:min".parse().unwrap()),
        early_stopping: Some(EarlyStopping { patience: 2, min_change: 0.01 }),
        kept: Kept { best: 2, weights: FinalWeights::Best, ..Kept::default() },
        ..Monitoring::default()
    };
    let mut session = Session::open(Device::Cpu).unwrap();
    let arrays = data::read_all(place.path("data.npz")).unwrap();
    let (folder, length) = (place.path("b"), Some(wengert::recipe::Length::Steps(200)));
    let options = Options { folder: Some(&folder), length, ..Options::default() };
    let report =
        train(&mut session, &file.program, &recipe, &arrays, options, &mut |_| {}).unwrap();
    assert!(report.stopped && report.steps < 200, "{report:?}");
    assert!(place.contents("a") == place.contents("b"));
    let line = ran.out.lines().find(|line| line.starts_with("stopped early")).unwrap();
    let (best_step, best) = report.best[0];
    assert!(
        line.starts_with(&format!(
            "stopped early after step {}: in 2 evaluations `mse` has not improved on ",
            report.steps
        )),
        "{line}"
    );
    assert!(ran.out.contains(&format!("kept as one of the best: step {best_step}, {best}\n")));
    // It has nothing left to do.
    let again = [&STOPPING[..], &["--steps", "200", "--resume", "--json"]].concat();
    let again = place.train("model.graph", "a", &again);
    again.good();
    let events: Vec<Value> =
        again.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.iter().all(|event| event["event"] != "step"), "{events:?}");
    let early = events.iter().find(|event| event["event"] == "early_stop").unwrap();
    assert_eq!(early["step"], report.steps);
    assert_eq!((&early["watched"], &early["waited"]), (&"mse".into(), &2.into()));
}

/// `first.npz`: the first three rows of `data.npz`.
fn write_first(place: &Place) {
    let all = data::read_all(place.path("data.npz")).unwrap();
    let x = all["x"].as_slice::<f32>().unwrap()[..9].to_vec();
    let y = all["y"].as_slice::<f32>().unwrap()[..3].to_vec();
    let (x, y) = (Literal::from_vec(&[3, 3], x), Literal::from_vec(&[3], y));
    place.write_arrays("first.npz", [("x", x.unwrap()), ("y", y.unwrap())]);
}

#[test]
fn evaluation_sets_are_named_in_all_reports() {
    let place = Place::new();
    write_first(&place);
    let set = ["--eval-data", "first=first.npz"];
    let watched = ["--evaluate-every", "1", "--monitor", "first/mse:min", "--keep-best", "1"];
    let more = [&set[..], &watched, &["--steps", "6", "--tensorboard"]].concat();
    let ran = place.train("model.graph", "a", &more);
    ran.good();
    assert!(ran.out.contains("\nstep 6: mse 0."), "{ran:?}");
    assert!(ran.out.contains("\nstep 6: first: mse 0."), "{ran:?}");
    assert!(ran.out.contains("\n6 steps done: mse 0.") && ran.out.contains(", first/mse 0."));
    let log = std::fs::read_to_string(place.path("a/log.jsonl")).unwrap();
    let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!((&last["step"], &last["set"]), (&6.into(), &"first".into()));
    let events = std::fs::read_dir(place.path("a")).unwrap().map(|entry| entry.unwrap().path());
    let mut events = events.filter(|path| path.to_string_lossy().contains("tfevents"));
    let events = std::fs::read(events.next().unwrap()).unwrap();
    let tag = b"evaluation/first/mse";
    assert!(events.windows(tag.len()).any(|bytes| bytes == tag));

    // The sets alone, and all of them.
    let fixed = ["evaluate", "model.graph", "--data", "data.npz"];
    let weights = ["--params", "a/weights.safetensors"];
    let evaluate = |rest: &[&str]| {
        let ran = place.graphrun(&[&fixed[..], &weights, &set, rest].concat());
        ran.good();
        ran.out
    };
    let all = evaluate(&[]);
    assert!(all.starts_with("@loss on 10 examples\nmetric "), "{all}");
    assert!(all.contains("\n@loss on 3 examples of set `first`\nmetric "), "{all}");
    assert_eq!(all, evaluate(&["--set", "-"]) + &evaluate(&["--set", "first"]));
    let json: Value = serde_json::from_str(&evaluate(&["--set", "first", "--json"])).unwrap();
    assert_eq!((&json["set"], &json["examples"]), (&"first".into(), &3.into()));
    // The log has the digits of an f32.
    let mse = |of: &Value| of["mse"].as_f64().unwrap() as f32;
    assert_eq!(mse(&json["metrics"]), mse(&last["evaluation"]));
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let place = Place::new();
    write_first(&place);
    let refused = |rest: &[&str], says: &[&str]| {
        place.train("model.graph", "a", rest).failed(2, says);
        assert!(!exists(&place.path("a")), "{rest:?}");
    };
    refused(&["--patience", "0"], &["0 is not in 1.."]);
    refused(&["--monitor", "mse"], &["`mse` does not say whether less or more is better"]);
    refused(&["--min-change", "0.1"], &["--patience"]);
    refused(
        &["--patience", "3"],
        &["error: recipe: early stopping goes by a metric, and none is watched\n", "--monitor"],
    );
    refused(&["--keep-best", "3"], &["recipe: the best checkpoints go by a metric"]);
    refused(
        &["--monitor", "first/mse:min"],
        &["recipe: there is no metric `first/mse` to watch\n", "there are `epoch_loss`, `mse`"],
    );
    refused(
        &["--monitor", "mse:min", "--weights", "best"],
        &["recipe: no best checkpoint is kept, so it has no weights\n", "--keep-best 1"],
    );
    refused(&["--eval-data", "first.npz"], &["`first.npz` does not name an evaluation set"]);
    refused(&["--eval-data", "first=none.npz"], &["none.npz"]);
    refused(&["--eval-data", "=first.npz"], &["`` cannot name an evaluation set"]);
    let twice = ["--eval-data", "a=first.npz", "--eval-data", "a=first.npz"];
    refused(&twice, &["evaluation set `a` has data twice"]);
    refused(
        &["--eval-data", "other=classes.npz"],
        &["evaluation set `other`: the data has no array `x` for input `x`"],
    );
    refused(&["--histograms", "2"], &["--tensorboard"]);
    let fixed = ["train", "classes.graph", "--data", "classes.npz", "--out", "a"];
    let set = ["--eval-data", "first=first.npz"];
    let says = ["the recipe has no evaluation, so set `first` cannot be evaluated"];
    place.graphrun(&[&fixed[..], &set].concat()).failed(2, &says);
    place.train("model.graph", "b", &["--steps", "1"]).good();
    let fixed = ["evaluate", "model.graph", "--data", "data.npz", "--set", "first"];
    let weights = ["--params", "b/weights.safetensors"];
    let says = ["the recipe has no evaluation set `first`\n", "it has no set with a name"];
    place.graphrun(&[&fixed[..], &weights].concat()).failed(2, &says);
}

/// `settable.graph`: `model.graph` with an optimiser whose rate can be set.
fn write_settable(place: &Place) {
    let file = GraphFile::read(place.path("model.graph")).unwrap();
    let mut program = Program::new();
    program
        .function("step", |f| {
            let (x, y) = (f.input("x", f32("B,3")), f.input("y", f32("B")));
            let zeros = TensorType::new(DType::F32, [3usize]);
            let w = f.state("w", Tensor::variable(zeros, Initializer::Zeros));
            let error = x.dot(&w) - &y;
            f.output("loss", error.square().sum());
            let gradient = 2.0 * &error.dot(&x);
            Sgd::new(Rate::from(0.025).settable()).step(f, &w, &gradient);
        })
        .unwrap();
    let mut functions = program.into_inner();
    functions.add(file.program.get("loss").unwrap().clone()).unwrap();
    GraphFile { program: functions, ..file }.write(place.path("settable.graph")).unwrap();
}

#[test]
fn the_finder_prints_losses_and_a_rate_and_writes_nothing() {
    let place = Place::new();
    write_settable(&place);
    let files = || std::fs::read_dir(place.path(".")).unwrap().count();
    let before = files();
    let find = |rest: &[&str]| {
        let fixed = ["train", "settable.graph", "--data", "data.npz", "--find-rate"];
        place.graphrun(&[&fixed[..], rest].concat())
    };
    let ran = find(&["--rate-range", "1e-4:1000", "--steps", "60"]);
    ran.good();
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines[0].trim_start().starts_with("rate"), "{ran:?}");
    assert!(lines[1].trim_start().starts_with("1.000e-4"), "{ran:?}");
    assert!(lines[lines.len() - 2].starts_with("the loss diverges"), "{ran:?}");
    let last = lines[lines.len() - 1];
    let rate = last.strip_prefix("suggestion: ").and_then(|rest| rest.split_once(','));
    let rate: f64 = rate.unwrap().0.parse().unwrap();
    assert!((1e-3..1.0).contains(&rate), "{last}");
    let json = find(&["--rate-range", "1e-4:1000", "--steps", "60", "--json"]);
    json.good();
    let found: Vec<Value> =
        json.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let suggested = found.last().unwrap()["suggestion"].as_f64().unwrap();
    assert_eq!(format!("{suggested:.1e}"), format!("{rate:.1e}"));
    assert_eq!(found.len(), lines.len() - 2);
    assert_eq!(found[0]["rate"], 1e-4);
    assert_eq!(files(), before);

    find(&["--rate-range", "1:0.1"]).failed(2, &["error: rates from 1 to 0.1\n"]);
    find(&["--rate-range", "1"]).failed(2, &["`1` is no range of rates: write FROM:TO"]);
    find(&["--steps", "1"]).failed(2, &["error: a search of 1 steps\n"]);
    find(&["--out", "a"]).failed(2, &["--find-rate"]);
    let fixed = ["train", "model.graph", "--data", "data.npz"];
    place.graphrun(&[&fixed[..], &["--find-rate"]].concat()).failed(
        2,
        &[
            "error: `@step` has no learning rate that can be set\n",
            "AdamW::new(Rate::from(1e-3).settable())",
            "--settable-rate",
        ],
    );
    place.graphrun(&fixed).failed(2, &["--out"]);
    place
        .graphrun(&[&fixed[..], &["--out", "a", "--rate-range", "1:2"]].concat())
        .failed(2, &["--find-rate"]);
}
