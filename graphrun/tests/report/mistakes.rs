//! Mistakes, each with the message that names it.

use super::{graphrun, network, report};
use std::fs;
use wengert::data::safetensors;
use wengert::{DType, Literal, Scalar};

#[test]
fn mistakes_are_named() {
    let folder = network();
    let at = folder.path();
    fs::create_dir(at.join("folder")).unwrap();
    let write = |run: &str, log: &str| {
        fs::create_dir(at.join(run)).unwrap();
        fs::write(at.join(run).join("log.jsonl"), log).unwrap();
    };
    let good = "{\"step\":1,\"epoch\":0,\"loss\":2.5}\n";
    write("damaged", &format!("{good}{{\"step\":2,\n{good}"));
    write("other", good);
    let zero = Literal::full(&[7, 7], Scalar::zero(DType::F32));
    safetensors::write(at.join("other/weights.safetensors"), [("net.weight", &zero)]).unwrap();
    write("shapes", good);
    let names = ["model.0.weight", "model.0.bias", "model.1.weight", "model.1.bias"];
    let arrays = names.map(|name| (name, &zero));
    safetensors::write(at.join("shapes/weights.safetensors"), arrays).unwrap();
    let page = "net.graph@step";
    let bound = [page, "--bind", "B=5"];
    for (arguments, says) in [
        (vec![page], vec!["`B`", "--bind B=32"]),
        (vec![page, "--bind", "B=5,C=2"], vec!["no dimension variable `C`"]),
        ([&bound[..], &["-o", "folder"]].concat(), vec!["folder"]),
        ([&bound[..], &["-o", "absent/r.html"]].concat(), vec!["absent"]),
        ([&bound[..], &["--run", "folder"]].concat(), vec!["log.jsonl", "graphrun train --out"]),
        ([&bound[..], &["--run", "damaged"]].concat(), vec!["damaged/log.jsonl:2", "no JSON"]),
        ([&bound[..], &["--run", "other"]].concat(), vec!["`other`", "another program", "`model."]),
        ([&bound[..], &["--run", "shapes"]].concat(), vec!["another program", "f32[7,7]"]),
        (
            [&bound[..], &["--target", "sm_80", "--profile", "2"]].concat(),
            vec!["timed on the CPU only"],
        ),
        (vec!["net.graph@nothing"], vec!["no function `@nothing`"]),
    ] {
        let (status, out, errors) = graphrun(at, &[vec!["report"], arguments.clone()].concat());
        assert_eq!((status, out.as_str()), (2, ""), "{arguments:?}\n{errors}");
        for text in says {
            assert!(errors.contains(text), "{arguments:?}: {text} in\n{errors}");
        }
    }
    assert!(!at.join("report.html").exists(), "nothing is written");
}

/// A folder without a checkpoint may be of any program, and an incomplete last line is the one
/// that a trainer is writing.
#[test]
fn a_run_that_goes_on_has_curves() {
    let folder = network();
    fs::create_dir(folder.path().join("run")).unwrap();
    let log = "{\"step\":1,\"epoch\":0,\"loss\":2.5}\n{\"step\":2,\"ep";
    fs::write(folder.path().join("run/log.jsonl"), log).unwrap();
    let found = report(folder.path(), &["--run", "run"]);
    assert_eq!(found["runs"][0]["steps"], 1);
}
