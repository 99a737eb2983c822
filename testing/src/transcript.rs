//! Transcripts in documents: the commands of a page are run, and print what the page shows.
//!
//! A block of the language `console` has commands after `$ `, which `\` at the end of a line
//! continues, each followed by the lines that it prints. `…` stands for any text of a line, and
//! alone for any lines. A command that ends with another exit status than 0 has the last line
//! `[exit status 1]`.

use std::path::Path;
use std::process::Command;

/// A command, and the lines that it prints.
#[derive(Debug)]
pub struct Shown {
    /// The command, as typed in a shell.
    pub command: String,
    /// What it prints, and its exit status if it is not 0.
    pub lines: Vec<String>,
}

/// The blocks of commands of a page.
///
/// # Panics
/// A block begins with a line that is no command.
pub fn blocks(page: &str) -> Vec<Vec<Shown>> {
    let mut blocks = vec![];
    let mut lines = page.lines();
    while lines.by_ref().any(|line| line == "```console") {
        let mut block: Vec<Shown> = vec![];
        while let Some(line) = lines.next().filter(|line| *line != "```") {
            let Some(command) = line.strip_prefix("$ ") else {
                let shown = block.last_mut().expect("a block begins with a command");
                shown.lines.push(line.to_owned());
                continue;
            };
            let mut command = command.to_owned();
            while let Some(part) = command.strip_suffix('\\') {
                let next = lines.next().expect("the command goes on");
                command = format!("{part}{}", next.trim_start());
            }
            block.push(Shown { command, lines: vec![] });
        }
        blocks.push(block);
    }
    blocks
}

/// The files that a page shows: a line with the name alone in backquotes and a colon, an empty
/// line, and a block.
pub fn files(page: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = page.lines().collect();
    let named = |at: usize| {
        let name = lines[at].strip_prefix('`')?.strip_suffix("`:")?;
        let begins = lines.get(at + 1) == Some(&"") && lines.get(at + 2)?.starts_with("```");
        let text = lines[at + 3..].iter().take_while(|line| **line != "```");
        begins.then(|| (name.to_owned(), text.map(|line| format!("{line}\n")).collect()))
    };
    (0..lines.len()).filter_map(named).collect()
}

impl Shown {
    /// Runs the command in a folder, in a shell that finds programs in the folder `programs`
    /// first, and compares its output.
    ///
    /// # Panics
    /// The command ends with another status, or prints something else.
    pub fn check(&self, folder: &Path, programs: &Path) {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("sh");
        shell.args(["-c", &self.command]).current_dir(folder);
        shell.env("PATH", format!("{}:{path}", programs.display())).env_remove("RUST_LOG");
        let ran = shell.output().expect("there is a shell");
        let error = String::from_utf8_lossy(&ran.stderr);
        let mut out = String::from_utf8(ran.stdout).expect("output is UTF-8");
        match ran.status.code() {
            Some(0) => {}
            Some(status) => out += &format!("[exit status {status}]\n"),
            None => panic!("{} ends by a signal: {error}", self.command),
        }
        let printed: Vec<&str> = out.lines().collect();
        assert!(
            all_fit(&self.lines, &printed),
            "{} prints\n{out}{error}\nnot\n{}",
            self.command,
            self.lines.join("\n")
        );
    }
}

/// Whether a line is the one that the page shows.
fn fits(shown: &str, line: &str) -> bool {
    let mut parts = shown.split('…');
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    for part in parts {
        let Some(at) = rest.rfind(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty()
}

/// Whether lines are those that the page shows.
fn all_fit(shown: &[String], lines: &[&str]) -> bool {
    match (shown, lines) {
        ([], []) => true,
        ([all, shown @ ..], _) if all == "…" => {
            (0..=lines.len()).any(|n| all_fit(shown, &lines[n..]))
        }
        ([first, shown @ ..], [line, lines @ ..]) => fits(first, line) && all_fit(shown, lines),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_compared() {
        assert!(fits("loss 0.5, …", "loss 0.5, 3 ms") && fits("a … c", "a b c") && fits("a", "a"));
        assert!(!fits("a", "ab") && !fits("a…c", "abd") && !fits("…c", "cd"));
        let shown = ["a", "…", "d"].map(String::from);
        assert!(all_fit(&shown, &["a", "d"]) && all_fit(&shown, &["a", "b", "c", "d"]));
        assert!(!all_fit(&shown, &["a", "b"]) && !all_fit(&shown, &["b", "d"]));
    }

    #[test]
    fn commands_and_files_are_found() {
        let page = "\
# Page

`a.txt`:

```text
one
two
```

```console
$ cat \\
    a.txt
one
two
$ echo done; exit 3
done
[exit status 3]
```
";
        assert_eq!(files(page), [("a.txt".to_owned(), "one\ntwo\n".to_owned())]);
        let blocks = blocks(page);
        let [block] = &blocks[..] else { panic!("{blocks:?}") };
        let commands: Vec<&str> = block.iter().map(|shown| shown.command.as_str()).collect();
        assert_eq!(commands, ["cat a.txt", "echo done; exit 3"]);
        assert_eq!(block[0].lines, ["one", "two"]);
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("a.txt"), "one\ntwo\n").expect("written");
        block.iter().for_each(|shown| shown.check(folder.path(), folder.path()));
    }
}
