//! The commands that `docs/isolate.md` shows. A block with the name of a file is written to that
//! file. Each command is run in that folder, and must end with the status 0 or 1. Where the page
//! has output, the command must print that.

use std::path::Path;
use std::process::Command;

/// The blocks of the page: the words after the fence, and the lines.
fn blocks(page: &str) -> Vec<(String, Vec<String>)> {
    let mut blocks = vec![];
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(info) = line.strip_prefix("```") {
            let body = lines.by_ref().take_while(|line| *line != "```").map(str::to_owned);
            blocks.push((info.to_owned(), body.collect()));
        }
    }
    blocks
}

/// What a command prints, by the shell, and its exit status.
fn printed(command: &str, folder: &Path) -> (String, Option<i32>) {
    let binary = Path::new(env!("CARGO_BIN_EXE_graphrun"));
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", binary.parent().unwrap().display());
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", command]).current_dir(folder).env("PATH", path);
    let output = shell.output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

#[test]
fn the_commands_of_the_page_print_what_it_shows() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/isolate.md");
    let folder = tempfile::tempdir().unwrap();
    let mut commands = 0;
    for (info, lines) in blocks(&std::fs::read_to_string(page).unwrap()) {
        match info.split_once(' ') {
            Some(("text", file)) => {
                std::fs::write(folder.path().join(file), lines.join("\n") + "\n").unwrap();
            }
            _ if info == "console" => {
                let mut rest = &lines[..];
                while let Some((first, after)) = rest.split_first() {
                    let command = first.strip_prefix("$ ").unwrap();
                    let end = after.iter().position(|line| line.starts_with("$ "));
                    let (shown, next) = after.split_at(end.unwrap_or(after.len()));
                    let (found, status) = printed(command, folder.path());
                    assert!(matches!(status, Some(0 | 1)), "{command} ends with {status:?}");
                    let found: Vec<&str> = found.lines().collect();
                    if !shown.is_empty() {
                        assert_eq!(found, shown, "{command} prints\n{}", found.join("\n"));
                    }
                    (rest, commands) = (next, commands + 1);
                }
            }
            _ => panic!("a block `{info}` is neither a file nor commands"),
        }
    }
    assert!(commands >= 6, "{commands} commands");
}
