//! Outputs to FIFOs, devices, links and descriptors.

use super::Workplace;
use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use wengert::data;

const TABLE: &str = "id,lower,upper,size\na,0,2,10\nb,1,3,20\n";
const RUN: [&str; 4] = ["run", "f.ir@double", "--input", "x=@x.npy"];

/// Creates a node with `mknod`. Returns false if this user may not create it.
fn node(path: &Path, what: &[&str]) -> bool {
    Command::new("mknod").arg(path).args(what).stderr(Stdio::null()).status().unwrap().success()
}

/// The bytes read from a FIFO while `run` runs.
fn through(fifo: &Path, run: impl FnOnce()) -> Vec<u8> {
    let reader = std::thread::spawn({
        let fifo = fifo.to_owned();
        move || fs::read(fifo).unwrap()
    });
    run();
    reader.join().unwrap()
}

#[test]
fn fifos_are_written_through() {
    let place = Workplace::new();
    fs::write(place.path("t.csv"), TABLE).unwrap();
    for name in ["y.npy", "y.npz", "p.plan", "t.svg", "o.csv", "g.ir"] {
        assert!(node(&place.path(name), &["p"]));
    }
    let is_fifo =
        |name: &str| fs::symlink_metadata(place.path(name)).unwrap().file_type().is_fifo();
    let memory = ["memory", "t.csv", "--minimize"];
    for (name, arguments) in [
        ("y.npy", [&RUN[..], &["--output", "y=y.npy"]].concat()),
        ("y.npz", [&RUN[..], &["--output", "y=y.npz"]].concat()),
        ("p.plan", vec!["compile", "f.ir@double", "--bind", "N=3", "-o", "p.plan"]),
        ("t.svg", [&memory[..], &["--svg", "t.svg"]].concat()),
        ("o.csv", [&memory[..], &["-o", "o.csv"]].concat()),
        ("g.ir", vec!["jvp", "f.ir@double", "--wrt", "x", "-o", "g.ir"]),
    ] {
        let bytes = through(&place.path(name), || drop(place.graphrun(&arguments).good()));
        assert!(is_fifo(name), "{name}");
        // The FIFO gets the same bytes as a file.
        let file = format!("file.{name}");
        let (from, to) = (name, file.as_str());
        let arguments: Vec<String> = arguments.iter().map(|a| a.replace(from, to)).collect();
        place.graphrun(&arguments).good();
        assert_eq!(bytes, fs::read(place.path(&file)).unwrap(), "{name}");
    }
    assert!(place.is_tidy());
}

#[test]
fn devices_stay_devices() {
    let place = Workplace::new();
    fs::write(place.path("t.csv"), TABLE).unwrap();
    // These nodes are private, so that a mistake cannot replace the system's `/dev/null`. Only root
    // can create them.
    let nodes = [("null.svg", &["c", "1", "3"]), ("full.svg", &["c", "1", "7"])];
    if !nodes.iter().all(|(name, what)| node(&place.path(name), &what[..])) {
        wengert_testing::skipped("no permission to create device nodes");
        return;
    }
    let svg = |name: &str| place.graphrun(&["memory", "t.csv", "--minimize", "--svg", name]);
    svg("null.svg").good();
    svg("full.svg").failed(2, &["cannot write `full.svg`", "No space left"]);
    for (name, _) in nodes {
        assert!(
            fs::symlink_metadata(place.path(name)).unwrap().file_type().is_char_device(),
            "{name}"
        );
    }
    assert!(place.is_tidy());
}

#[test]
fn links_are_followed() {
    let place = Workplace::new();
    fs::create_dir(place.path("deep")).unwrap();
    fs::write(place.path("deep/old.npy"), b"old").unwrap();
    for (target, link) in [
        ("deep/old.npy", "relative.npy"),
        ("relative.npy", "chain.npy"),
        ("deep/new.npy", "dangling.npy"),
        ("circle.npy", "circle.npy"),
        ("deep", "folder.npy"),
    ] {
        symlink(target, place.path(link)).unwrap();
    }
    let write =
        |name: &str| place.graphrun(&[&RUN[..], &["--output", &format!("y={name}")]].concat());
    for (link, file) in [
        ("relative.npy", "deep/old.npy"),
        ("chain.npy", "deep/old.npy"),
        ("dangling.npy", "deep/new.npy"),
    ] {
        write(link).good();
        assert!(fs::symlink_metadata(place.path(link)).unwrap().is_symlink(), "{link}");
        assert_eq!(data::read_one(place.path(file), None).unwrap().shape(), [3], "{link}");
        fs::write(place.path(file), b"old").unwrap();
    }
    write("circle.npy").failed(2, &["circle.npy", "in circles"]);
    write("folder.npy").failed(2, &["folder.npy", "directory"]);
    fs::create_dir(place.path("none.npy")).unwrap();
    write("none.npy").failed(2, &["none.npy", "directory"]);
}

/// Text printed before and after the output keeps its position.
#[test]
fn the_output_stream_keeps_all_that_goes_there() {
    let place = Workplace::new();
    fs::write(place.path("t.csv"), TABLE).unwrap();
    let svg = |path: &str| place.command(&["memory", "t.csv", "--minimize", "--svg", path]);
    let plain = place.graphrun(&["memory", "t.csv", "--minimize", "--svg", "t.svg"]).good();
    let wanted = fs::read_to_string(place.path("t.svg")).unwrap() + &plain;
    for path in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let piped = svg(path).output().unwrap();
        assert_eq!(String::from_utf8(piped.stdout).unwrap(), wanted, "{path}");
        // A file opened by the shell.
        let file = fs::File::create(place.path("out")).unwrap();
        assert!(svg(path).stdout(file).status().unwrap().success());
        assert_eq!(fs::read_to_string(place.path("out")).unwrap(), wanted, "{path}");
    }
    // The reader has gone: a status and a sentence.
    let head = place
        .prepared("exec >/dev/full", &["memory", "t.csv", "--minimize", "--svg", "/dev/stdout"]);
    head.failed(2, &["/dev/stdout"]);
}

#[test]
fn outputs_share_a_file_or_are_refused() {
    let place = Workplace::new();
    let run = |rest: &[&str]| {
        place.graphrun(&[&["run", "f.ir@two", "--input", "x=@x.npy"], rest].concat())
    };
    for name in ["o.npz", "o.safetensors"] {
        let (a, b) = (format!("a={name}"), format!("b=./{name}"));
        let said = run(&["--output", &a, "--output", &b]).good();
        assert_eq!(said.matches("written to").count(), 2, "{said}");
        let both = data::read_all(place.path(name)).unwrap();
        assert_eq!(both.keys().collect::<Vec<_>>(), ["a", "b"], "{name}");
        assert_eq!(both["a"].as_slice::<f32>().unwrap(), [0.0, 2.0, 4.0]);
        assert_eq!(both["b"].as_slice::<f32>().unwrap(), [0.0, 1.0, 4.0]);
    }
    symlink("o.npy", place.path("link.npy")).unwrap();
    for (a, b) in [
        ("a=o.npy", "b=o.npy"),
        ("a=o.npy", "b=./o.npy"),
        ("a=o.npy", "b=link.npy"),
        ("a=o.csv", "b=o.csv"),
    ] {
        run(&["--output", a, "--output", b]).failed(2, &["`a` and `b` are both to be written to"]);
    }
    run(&["--output", "a=o.npz", "--save", "o.npz"]).failed(2, &["`a` and `the variables`"]);
    run(&["--save", "o.npy"]).failed(2, &["`o.npy` can hold one array only"]);
    assert!(!place.path("o.npy").exists() && !place.path("o.csv").exists());
}
