//! Choices of variables, by patterns of their key paths.

use glob::Pattern;
use wengert_core::{Result, diagnostic};

/// Most names that a help lists.
const SHOWN: usize = 5;

/// Patterns of key paths, with `*`, `?` and `[…]`, as in `model.h.*.attention.*.weight`. `*`
/// matches dots, too.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeyPaths(Vec<Pattern>);

impl KeyPaths {
    /// No pattern, which matches nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more pattern.
    ///
    /// # Errors
    /// The text is no pattern.
    pub fn with(mut self, pattern: &str) -> Result<Self> {
        let parsed = Pattern::new(pattern).map_err(|error| {
            diagnostic!("`{pattern}` is no pattern of key paths: {}", error.msg)
                .help("a pattern is a path with *, ? and [abc], such as `model.head.*`")
        })?;
        self.0.push(parsed);
        Ok(self)
    }

    /// With one more variable, whatever its name.
    #[must_use]
    pub fn with_path(mut self, path: &str) -> Self {
        let exact = Pattern::new(&Pattern::escape(path)).expect("an escaped name is a pattern");
        self.0.push(exact);
        self
    }

    /// Whether there is no pattern.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a pattern matches a key path.
    pub fn matches(&self, path: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(path))
    }

    /// The patterns, as they were given.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(Pattern::as_str)
    }

    /// The first pattern that matches none of these key paths.
    pub fn unmatched<'a>(&self, paths: impl Iterator<Item = &'a str> + Clone) -> Option<&str> {
        let is_unmatched = |pattern: &&Pattern| !paths.clone().any(|path| pattern.matches(path));
        self.0.iter().find(is_unmatched).map(Pattern::as_str)
    }
}

/// The first of these names, for a help: `before` and a list, or `none` if there are none.
pub fn listed<'a>(before: &str, names: impl Iterator<Item = &'a str>, none: &str) -> String {
    let mut few: Vec<&str> = vec![];
    for name in names {
        if few.len() == SHOWN {
            return format!("{before} `{}`, …", few.join("`, `"));
        }
        if !few.contains(&name) {
            few.push(name);
        }
    }
    if few.is_empty() { none.to_owned() } else { format!("{before} `{}`", few.join("`, `")) }
}
