//! Completions and manual pages.

use crate::graphrun;
use std::process::{Command, Stdio};
use tempfile::TempDir;

#[test]
fn completions_name_commands_and_options() {
    let place = TempDir::new().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = graphrun(place.path(), &["completions", shell]);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{shell}");
        for word in ["train", "memory-budget", "bench"] {
            assert!(ran.out.contains(word), "{shell}: {word}");
        }
    }
    let ran = graphrun(place.path(), &["completions", "cmd"]);
    assert!(ran.status == 2 && ran.err.contains("possible values"), "{ran:?}");
}

/// Bash itself completes a command and an option by the script.
#[test]
fn bash_completes_by_the_script() {
    let place = TempDir::new().unwrap();
    let script = graphrun(place.path(), &["completions", "bash"]).out;
    let complete = |words: &str, at: usize| {
        let text = format!(
            "{script}\nCOMP_WORDS=({words}); COMP_CWORD={at}\n\
             _graphrun graphrun \"${{COMP_WORDS[$COMP_CWORD]}}\" \
             \"${{COMP_WORDS[$((COMP_CWORD-1))]}}\"\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
        );
        let mut bash = Command::new("bash");
        let output = bash.args(["-c", &text]).stdin(Stdio::null()).output().unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(complete("graphrun ben", 1), "bench\n");
    assert_eq!(complete("graphrun train --tensorb", 2), "--tensorboard\n");
}

#[test]
fn each_command_has_a_page() {
    let place = TempDir::new().unwrap();
    let ran = graphrun(place.path(), &["manual", "--out", "man/man1"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    let pages: Vec<String> = std::fs::read_dir(place.path().join("man/man1"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(ran.out.starts_with(&format!("{} pages written to", pages.len())), "{ran:?}");
    for name in ["graphrun.1", "graphrun-run.1", "graphrun-bench.1"] {
        assert!(pages.iter().any(|page| page == name), "{pages:?}");
    }
    let text = std::fs::read_to_string(place.path().join("man/man1/graphrun-run.1")).unwrap();
    assert_eq!(graphrun(place.path(), &["manual", "run"]).out, text);
    for part in [".TH graphrun-run 1", ".SH OPTIONS", "memory\\-budget", "digits.graph@predict"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let whole = graphrun(place.path(), &["manual"]).out;
    assert!(whole.contains("graphrun\\-train(1)") && whole.contains("Exit status"), "{whole}");
    let ran = graphrun(place.path(), &["manual", "nothing"]);
    assert!(ran.status == 2 && ran.err.contains("there is no command `nothing`"), "{ran:?}");
    std::fs::write(place.path().join("file"), "").unwrap();
    let ran = graphrun(place.path(), &["manual", "--out", "file/man1"]);
    assert!(ran.status == 2 && ran.err.contains("cannot make the folder"), "{ran:?}");
}
