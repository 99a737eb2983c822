//! Every crate can be packaged, and there is one test command.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use wengert_ci::sources;

/// The crates of the workspace, as cargo describes them.
fn crates() -> Vec<Value> {
    let mut metadata = Command::new(env!("CARGO"));
    metadata.current_dir(sources::root()).args([
        "metadata",
        "--format-version=1",
        "--no-deps",
        "--offline",
    ]);
    let output = metadata.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let parsed: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    parsed["packages"].as_array().expect("a list of packages").clone()
}

#[test]
fn every_crate_has_the_metadata_of_a_published_one() {
    let crates = crates();
    assert!(crates.len() >= 11, "the workspace's crates were found");
    for one in &crates {
        let name = one["name"].as_str().expect("a name");
        for field in ["description", "license", "readme", "rust_version"] {
            assert!(
                one[field].as_str().is_some_and(|text| !text.is_empty()),
                "{name} has no {field}"
            );
        }
        for field in ["keywords", "categories"] {
            let count = one[field].as_array().map_or(0, Vec::len);
            assert!(
                (1..=5).contains(&count),
                "{name} has {count} {field}; a registry takes 1 to 5"
            );
        }
        let manifest = Path::new(one["manifest_path"].as_str().expect("a path"));
        let folder = manifest.parent().expect("a manifest lies in a folder");
        let readme = folder.join(one["readme"].as_str().expect("checked above"));
        assert!(readme.exists(), "{name}: {} is missing", readme.display());
        assert_ne!(name, "graphrun", "the registry has another package of that name");
    }
}

#[test]
fn dependencies_between_crates_name_a_version() {
    let crates = crates();
    for one in &crates {
        for dependency in one["dependencies"].as_array().expect("a list") {
            let (name, needs) = (&dependency["name"], &dependency["req"]);
            // Packaging omits a development dependency that has no version.
            let is_free = dependency["path"].is_null() || dependency["kind"] == "dev";
            assert!(is_free || needs != "*", "{} depends on {name} by its path alone", one["name"]);
        }
    }
}

#[test]
fn there_is_one_test_command() {
    let read =
        |path: &str| fs::read_to_string(sources::root().join(path)).expect("the file is there");
    for document in ["README.md", "CONTRIBUTING.md"] {
        let shown = read(document).lines().any(|line| line.trim_start().starts_with("ci/test "));
        assert!(shown, "{document} does not show `ci/test`");
        assert!(
            !read(document).contains("nextest run --workspace"),
            "{document} shows a second command"
        );
    }
    let last = |path: &str| read(path).lines().last().map(str::to_owned);
    assert_eq!(last(".ci/run").as_deref(), Some("exec ci/test"));
    assert_eq!(last(".ci/deep").as_deref(), Some("exec ci/test --deep"));
}

#[test]
fn long_checks_can_be_run_and_say_what_they_are() {
    let folder = sources::root().join("ci/deep");
    let scripts = fs::read_dir(&folder)
        .expect("ci/deep is there")
        .map(|entry| entry.expect("it is readable").path());
    for script in scripts {
        let text = fs::read_to_string(&script).expect("a script is text");
        let mode = script.metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{} cannot be executed", script.display());
        assert!(
            text.starts_with("#!/usr/bin/env bash\n# "),
            "{} does not say what it checks",
            script.display()
        );
        assert!(text.contains("set -euo pipefail"), "{} goes on after a failure", script.display());
        assert!(text.contains("${1:-"), "{} takes no count", script.display());
    }
}
