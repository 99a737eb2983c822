//! The data of the page against other commands, which do not use the page's code.

use super::{data, graphrun, list, network, number, report};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// The plan of `net.graph`, compiled by the command.
fn plan_text(folder: &Path) -> String {
    let arguments = ["dump", "net.graph@step", "--bind", "B=5", "--stage", "plan", "--memory"];
    let (status, text, errors) = graphrun(folder, &arguments);
    assert_eq!(status, 0, "{errors}");
    text
}

/// The number in a line of the plan's account.
fn accounted(text: &str, name: &str) -> u64 {
    let is_row = |line: &&str| line.trim_start_matches("// ").trim_start().starts_with(name);
    let line = text.lines().rev().find(is_row).unwrap_or_else(|| panic!("{name} in {text}"));
    line.split_whitespace().find_map(|word| word.parse().ok()).unwrap()
}

#[test]
fn bytes_and_steps_are_those_of_the_plan() {
    let folder = network();
    let found = report(folder.path(), &[]);
    let anatomy = &found["anatomy"];
    let text = plan_text(folder.path());
    let memory = &anatomy["memory"];
    for (name, row) in [
        ("inputs", "inputs"),
        ("outputs", "outputs"),
        ("state", "state"),
        ("constants", "constants"),
        ("arena", "arena"),
        ("total", "in all"),
        ("peak", "lower bound"),
    ] {
        assert_eq!(number(memory, name), accounted(&text, row), "{name}\n{text}");
    }
    let steps = text.split_once("steps {").unwrap().1;
    let is_step = |line: &&str| {
        let line = line.trim_start();
        ["run ", "copy ", "call "].iter().any(|word| line.starts_with(word))
    };
    let kernels = list(anatomy, "kernels");
    assert_eq!(kernels.len(), steps.lines().filter(is_step).count(), "{text}");
    // The bytes that the peak's buffers cover, rounded to the alignment, are its load.
    let peak_step = number(memory, "peak_step");
    let alignment = 64;
    let mut covered = BTreeSet::new();
    for buffer in list(memory, "buffers") {
        assert!(number(buffer, "offset") + number(buffer, "bytes") <= number(memory, "arena"));
        if number(buffer, "first") <= peak_step && peak_step <= number(buffer, "last") {
            let first = number(buffer, "offset") / alignment;
            let end = (number(buffer, "offset") + number(buffer, "bytes")).div_ceil(alignment);
            covered.extend(first..end);
        }
    }
    assert_eq!(covered.len() as u64 * alignment, number(memory, "peak"));
}

#[test]
fn every_equation_has_kernels_or_a_reason() {
    let folder = network();
    let found = report(folder.path(), &[]);
    let anatomy = &found["anatomy"];
    let equations = list(anatomy, "equations");
    let kernels = list(anatomy, "kernels");
    let (_, graph, _) = graphrun(folder.path(), &["dump", "net.graph@step", "--bind", "B=5"]);
    let lines = graph.lines().filter(|line| line.contains(" = ")).count();
    assert_eq!(equations.len(), lines, "{graph}");
    for (n, equation) in equations.iter().enumerate() {
        let has_kernels = !list(equation, "kernels").is_empty();
        assert_ne!(has_kernels, equation["reason"].is_string(), "{equation}");
        for kernel in list(equation, "kernels") {
            let back = list(&kernels[kernel.as_u64().unwrap() as usize], "equations");
            assert!(back.contains(&Value::from(n)), "{equation}");
        }
        // Constants may be the library's own.
        assert!(equation["op"] == "constant" || number(equation, "line") != 0, "{equation}");
    }
    for kernel in kernels.iter().filter(|kernel| kernel["kind"] != "copy") {
        assert!(!list(kernel, "equations").is_empty(), "{kernel}");
    }
    let products: u64 = kernels
        .iter()
        .filter(|kernel| kernel["kind"] == "call")
        .map(|kernel| number(kernel, "operations"))
        .sum();
    // Forward 5·12·8 and 5·8·3; backward both weights, and the gradient of the second's input.
    assert_eq!(products, 2 * (2 * 5 * 12 * 8 + 3 * 5 * 8 * 3));
}

#[test]
fn equations_know_their_modules_and_their_forward_equations() {
    let folder = network();
    let found = report(folder.path(), &[]);
    let anatomy = &found["anatomy"];
    let modules: Vec<&str> =
        list(anatomy, "modules").iter().map(|name| name.as_str().unwrap()).collect();
    let equations = list(anatomy, "equations");
    let module = |n: usize| equations[n]["module"].as_u64().map(|m| modules[m as usize]);
    let all = |op: &str, part: &str| -> Vec<usize> {
        let is = |n: &usize| equations[*n]["op"] == op && equations[*n]["part"] == part;
        (0..equations.len()).filter(is).collect()
    };
    let forward = all("dot_general", "forward");
    let [first, second] = forward[..] else { panic!("two products: {forward:?}") };
    assert_eq!((module(first), module(second)), (Some("model.0"), Some("model.1")));
    let backward = all("dot_general", "backward");
    let link = |n: &usize| equations[*n]["link"].as_u64().unwrap() as usize;
    let mut links: Vec<usize> = backward.iter().map(link).collect();
    links.sort_unstable();
    assert_eq!(links, [first, second, second]);
    for n in &backward {
        assert_eq!(module(*n), module(link(n)));
    }
    let of_tanh: Vec<&Value> = equations.iter().filter(|e| e["rule"] == "jvp(tanh)").collect();
    assert!(!of_tanh.is_empty());
    for equation in of_tanh {
        let linked = &equations[number(equation, "link") as usize];
        assert_eq!((&linked["op"], &equation["part"]), (&"tanh".into(), &"forward".into()));
    }
    // The optimiser's equations are in the modules of their variables.
    let updates: BTreeSet<_> = all("sqrt", "update").into_iter().filter_map(module).collect();
    assert!(updates.contains("model.0") && updates.contains("model.1"), "{updates:?}");
}

#[test]
fn times_curves_budgets_and_the_certificate_are_in_the_page() {
    let folder = network();
    let log = "{\"step\":1,\"epoch\":0,\"loss\":2.5}\n{\"step\":2,\"epoch\":0,\"loss\":1.5}\n";
    for run in ["a", "b"] {
        std::fs::create_dir(folder.path().join(run)).unwrap();
        std::fs::write(folder.path().join(run).join("log.jsonl"), log).unwrap();
    }
    let found = report(folder.path(), &["--profile", "3", "--run", "a", "--run", "b"]);
    let anatomy = &found["anatomy"];
    assert_eq!(number(anatomy, "runs"), 2, "the first run is not timed");
    for kernel in list(anatomy, "kernels") {
        let timed = ["nest", "call"].iter().any(|kind| kernel["kind"] == *kind);
        let expected = timed && kernel["follows"].is_null();
        assert!(!expected || kernel["seconds"].as_f64().unwrap() > 0.0, "{kernel}");
    }
    let runs = list(&found, "runs");
    assert_eq!((runs.len(), &runs[1]["folder"]), (2, &Value::from("b")));
    assert_eq!(list(&runs[0]["curves"]["loss"], "values"), [2.5, 1.5]);
    let budgets = list(&found, "budgets");
    let (status, text, errors) = graphrun(
        folder.path(),
        &["memory", "net.graph@step", "--bind", "B=5", "--frontier", "--json"],
    );
    assert_eq!(status, 0, "{errors}");
    let frontier: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(budgets, list(&frontier, "points"));
    let outputs = list(&found["certificate"], "outputs");
    assert!(outputs.iter().any(|output| output["name"] == "loss"), "{outputs:?}");
}

#[test]
fn loops_and_large_functions_have_a_report() {
    let folder = network();
    let text = "func @f(%x: f32[200,300], %w: f32[300,300]) -> (f32[200,300]) {
        %0: f32[200,300] = scan %x, %w {captures=1, carries=1, length=9}
          region (%1: f32[200,300], %2: f32[300,300]) {
            %3: f32[200,300] = dot_general %1, %2 {contract=[[1],[0]]}
            %4: f32[200,300] = tanh %3
            return %4
          }
        return %0
    }";
    std::fs::write(folder.path().join("loop.ir"), text).unwrap();
    let (status, out, errors) = graphrun(folder.path(), &["report", "loop.ir"]);
    assert_eq!(status, 0, "{errors}");
    assert!(out.starts_with("report.html: 3 equations, "), "{out}");
    let found = data(folder.path(), "report.html");
    let anatomy = &found["anatomy"];
    let kernels = list(anatomy, "kernels");
    let times: Vec<u64> = kernels.iter().map(|kernel| number(kernel, "times")).collect();
    assert!(times.contains(&9) && times.contains(&1), "{kernels:?}");
    assert_eq!(list(anatomy, "equations")[1]["within"], 0);
    let why = found["certificate"]["none"].as_str().unwrap();
    assert!(why.contains("has 324") && why.contains("smaller dimensions"), "{why}");
}

#[test]
fn every_equation_has_a_source_line() {
    let folder = network();
    let found = report(folder.path(), &[]);
    let equations = list(&found["anatomy"], "equations");
    // Constants have that of the first equation that uses them.
    assert!(equations.iter().any(|equation| equation["op"] == "constant"));
    let without: Vec<_> = equations.iter().filter(|e| number(e, "line") == 0).collect();
    assert!(without.is_empty(), "{without:?}");
}
