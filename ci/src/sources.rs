//! The sources of the repository.

use std::fs;
use std::path::{Path, PathBuf};

/// A text file of the repository.
#[derive(Clone, Debug)]
pub struct Source {
    /// Path from the repository's root, with `/`.
    pub path: String,
    /// Contents.
    pub text: String,
}

impl Source {
    /// A fictitious file for a test.
    pub fn new(path: &str, text: &str) -> Self {
        Source { path: path.into(), text: text.into() }
    }

    /// Lines of product code: neither in a test file nor in a `#[cfg(test)]` module, which by
    /// convention is the last item of its file.
    pub fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = if self.is_test() {
            0
        } else {
            let lines: Vec<&str> = self.text.lines().collect();
            let attributes = |line: &&&str| line.starts_with("#[");
            let is_tests = |at: usize| {
                lines[at] == "#[cfg(test)]"
                    && lines[at..]
                        .iter()
                        .find(|l| !attributes(l))
                        .is_some_and(|l| l.contains("mod "))
            };
            (0..lines.len()).find(|at| is_tests(*at)).unwrap_or(usize::MAX)
        };
        self.text.lines().enumerate().take(end).map(|(i, l)| (i + 1, l))
    }

    /// True for files that only tests use.
    pub fn is_test(&self) -> bool {
        self.path.split('/').any(|part| matches!(part, "tests" | "benches" | "tests.rs"))
    }

    /// True for Rust files.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate lies in the repository")
        .to_path_buf()
}

/// Every Rust, Python, TOML, Markdown and script file, sorted by path; build outputs and hidden
/// folders except `.ci` are left out.
pub fn all() -> Vec<Source> {
    let mut found = Vec::new();
    visit(&root(), &root(), &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn visit(root: &Path, folder: &Path, found: &mut Vec<Source>) {
    let entries = fs::read_dir(folder).expect("the repository can be read");
    for entry in entries.map(|e| e.expect("the repository can be read")) {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let file_type = entry.file_type().expect("the repository can be read");
        if file_type.is_dir() {
            if (!name.starts_with('.') || name == ".ci") && name != "target" && name != "runs" {
                visit(root, &path, found);
            }
            continue;
        }
        let kept = [".rs", ".py", ".toml", ".md", ".sh"].iter().any(|e| name.ends_with(e))
            || path.ends_with(".ci/run");
        if kept && file_type.is_file() {
            let relative = path.strip_prefix(root).expect("found below the root");
            let text =
                fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            found.push(Source { path: relative.to_string_lossy().replace('\\', "/"), text });
        }
    }
}
