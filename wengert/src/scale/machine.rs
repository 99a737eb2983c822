//! The figures of a machine, read from a TOML file. Each has a source.
//!
//! ```toml
//! name = "two-nodes"          # in reports
//! card = "Card X"             # the device of a rank
//! target = "sm_90"            # plans are compiled for it
//!
//! [memory]
//! bytes = { value = 80e9, source = "data sheet" }
//! bandwidth = { value = 3e12, source = "data sheet" }       # bytes/s
//! share = { value = 0.9, source = "a copy of 1 GB" }        # that a kernel attains
//!
//! [products.bf16]             # and of each other dtype of operands
//! peak = { value = 1e15, source = "data sheet" }            # operations/s
//! share = { value = 0.7, source = "products of size 4096" }
//!
//! [attention.bf16]
//! # as of products
//!
//! [scalar]                    # all other kernels
//! # as of products
//!
//! [start]                     # seconds
//! kernel = { value = 1e-6, source = "…" }
//! long = { value = 8e-6, source = "…" }                     # of a collective
//! short = { value = 4e-6, source = "…" }
//!
//! [[links]]                   # innermost first
//! name = "NVLink"
//! ranks = 8                   # ranks that it joins
//! long = { bandwidth = { value = 300e9, … }, latency = { value = 3e-6, … } }
//! short = { bandwidth = { … }, latency = { … } }
//!
//! [[links]]
//! name = "network"            # the last link joins any number of ranks
//! …
//! ```
//!
//! `assumed = true` marks a figure without a published source; reports list these. A library of
//! collectives has protocols for long and for short messages: `long` and `short` have the
//! bandwidth of a rank in one direction, in bytes/s, and the seconds of one exchange.

use crate::data::text;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use wengert_core::{DType, Diagnostic, Location, Result, diagnostic};

/// A number and its source.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The number, in the unit of the field that holds it.
    pub value: f64,
    /// Its source, or the reason of an assumption.
    pub source: String,
    /// No source is known.
    #[serde(default)]
    pub assumed: bool,
}

/// A peak rate, and the share of it that kernels attain.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Operations a second; a multiplication and an addition are two.
    pub peak: Figure,
    /// The share, at most 1.
    pub share: Figure,
}

/// The memory of a rank's device.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryFigures {
    /// Bytes.
    pub bytes: Figure,
    /// Bytes a second, read and written together.
    pub bandwidth: Figure,
    /// The share that kernels attain.
    pub share: Figure,
}

/// Times of what begins, in seconds.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Starts {
    /// Of a kernel.
    pub kernel: Figure,
    /// Of a collective by the protocol for long messages.
    pub long: Figure,
    /// Of a collective by the protocol for short messages.
    pub short: Figure,
}

/// A link by one protocol.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    /// Bytes a second that a rank sends, and at the same time receives, in a collective.
    pub bandwidth: Figure,
    /// Seconds of an exchange besides its bytes.
    pub latency: Figure,
}

/// A link between ranks.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Its name in reports.
    pub name: String,
    /// The number of consecutive ranks that it joins; all for the last link.
    pub ranks: Option<usize>,
    /// For long messages.
    pub long: Protocol,
    /// For short messages.
    pub short: Protocol,
}

/// A machine: devices of one kind, one for each rank, and the links between them.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Its name in reports.
    pub name: String,
    /// The device of a rank.
    pub card: String,
    /// The target of plans: `cpu`, `sm_90` and the like.
    pub target: String,
    /// The memory of a device.
    pub memory: MemoryFigures,
    /// Products and convolutions, by the dtype of their operands.
    pub products: BTreeMap<String, Rate>,
    /// Attention, likewise.
    #[serde(default)]
    pub attention: BTreeMap<String, Rate>,
    /// All other kernels.
    pub scalar: Rate,
    /// Times of what begins.
    pub start: Starts,
    /// Links, innermost first.
    pub links: Vec<Link>,
}

/// Machines that are built in, by name.
const BUILT_IN: [(&str, &str); 2] = [
    ("h100-sxm8", include_str!("machines/h100-sxm8.toml")),
    ("h200-nvl8", include_str!("machines/h200-nvl8.toml")),
];

/// Where the keys are explained.
const HELP: &str = "docs/scale.md has the keys and their units";

impl Machine {
    /// Reads a file, or takes the machine that is built in under this name.
    ///
    /// Errors: those of [`data::text`](crate::data::text), or of [`parse`](Self::parse).
    pub fn read(path: &Path) -> Result<Machine> {
        let built_in = BUILT_IN.iter().find(|(name, _)| Path::new(name) == path);
        match built_in {
            Some((name, text)) if !path.exists() => Machine::parse(text, name),
            _ => {
                let text = text::read(path).map_err(|error| match path.exists() {
                    true => error,
                    false => {
                        let names = BUILT_IN.map(|(name, _)| name).join(" and ");
                        error.help(format!("give a .toml file; {names} are built in"))
                    }
                })?;
                Machine::parse(&text, &path.display().to_string())
            }
        }
    }

    /// Parses the text of a file. `file` is its name in errors.
    ///
    /// Errors: it is no TOML; a key is unknown or missing; a figure is out of its range.
    pub fn parse(text: &str, file: &str) -> Result<Machine> {
        let machine: Machine = toml::from_str(text).map_err(|error| located(&error, text, file))?;
        machine.verify().map_err(|error| error.context(format_args!("`{file}`")).help(HELP))?;
        Ok(machine)
    }

    /// Every figure by its key path.
    pub fn figures(&self) -> Vec<(String, &Figure)> {
        let Machine { memory, start, scalar, .. } = self;
        let mut all: Vec<(String, &Figure)> = vec![
            ("memory.bytes".into(), &memory.bytes),
            ("memory.bandwidth".into(), &memory.bandwidth),
            ("memory.share".into(), &memory.share),
            ("scalar.peak".into(), &scalar.peak),
            ("scalar.share".into(), &scalar.share),
            ("start.kernel".into(), &start.kernel),
            ("start.long".into(), &start.long),
            ("start.short".into(), &start.short),
        ];
        for (table, rates) in [("products", &self.products), ("attention", &self.attention)] {
            for (dtype, rate) in rates {
                all.push((format!("{table}.{dtype}.peak"), &rate.peak));
                all.push((format!("{table}.{dtype}.share"), &rate.share));
            }
        }
        for link in &self.links {
            for (name, protocol) in [("long", &link.long), ("short", &link.short)] {
                let path = format!("links.{}.{name}", link.name);
                all.push((format!("{path}.bandwidth"), &protocol.bandwidth));
                all.push((format!("{path}.latency"), &protocol.latency));
            }
        }
        all
    }

    /// The figures without a published source.
    pub fn assumptions(&self) -> Vec<(String, &Figure)> {
        self.figures().into_iter().filter(|(_, figure)| figure.assumed).collect()
    }

    /// Bytes a second of a kernel.
    pub fn bandwidth(&self) -> f64 {
        self.memory.bandwidth.value * self.memory.share.value
    }

    fn verify(&self) -> Result<()> {
        for (path, figure) in self.figures() {
            let value = figure.value;
            let is_share = path.ends_with(".share");
            let may_be_zero = path.ends_with(".latency") || path.starts_with("start.");
            if !value.is_finite() || value < 0.0 || (value == 0.0 && !may_be_zero) {
                return Err(diagnostic!("{path} is {value}, which is no rate, size or time"));
            }
            if is_share && value > 1.0 {
                return Err(diagnostic!("{path} is {value}, more than all of the peak"));
            }
            if figure.source.trim().is_empty() {
                return Err(diagnostic!("{path} has no source"));
            }
        }
        for (table, rates) in [("products", &self.products), ("attention", &self.attention)] {
            for name in rates.keys() {
                name.parse::<DType>().map_err(|e| e.context(format_args!("[{table}.{name}]")))?;
            }
        }
        let Some((last, inner)) = self.links.split_last() else {
            return Err(diagnostic!("it has no links"));
        };
        let mut below = 1;
        for link in inner {
            let name = &link.name;
            let Some(ranks) = link.ranks else {
                return Err(diagnostic!("link {name} is not the last, and has no `ranks`"));
            };
            if ranks <= below || !ranks.is_multiple_of(below) {
                return Err(diagnostic!(
                    "link {name} joins {ranks} ranks: not a greater multiple of {below}"
                ));
            }
            below = ranks;
        }
        match last.ranks {
            None => Ok(()),
            Some(_) => {
                Err(diagnostic!("the last link, {}, has `ranks`, and joins any number", last.name))
            }
        }
    }
}

impl Rate {
    /// Operations a second of a kernel.
    pub fn attained(&self) -> f64 {
        self.peak.value * self.share.value
    }
}

/// An error of the parser with its line.
fn located(error: &toml::de::Error, text: &str, file: &str) -> Diagnostic {
    let message = error.message().trim_end();
    let found = diagnostic!("`{file}` has no figures of a machine: {message}").help(HELP);
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else { return found };
    let line = 1 + before.matches('\n').count() as u32;
    let column = 1 + before.rsplit('\n').next().map_or(0, |part| part.chars().count()) as u32;
    let location = Location::Source { file: file.into(), line, column };
    found.at(location, "here").excerpt(text, line, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_that_are_built_in_are_complete() {
        for (name, _) in BUILT_IN {
            let machine = Machine::read(Path::new(name)).unwrap();
            assert_eq!(machine.name, name);
            assert_eq!(machine.target, "sm_90");
            assert_eq!(machine.links[0].ranks, Some(8));
            assert!(machine.products.contains_key("bf16") && machine.products.contains_key("f32"));
            // A figure either has a place where it can be looked up, or is marked.
            for (path, figure) in machine.figures() {
                let is_named = [",", ":", "/"].iter().any(|c| figure.source.contains(c));
                assert!(is_named || figure.assumed, "{name}: {path}");
            }
            assert!(!machine.assumptions().is_empty());
        }
    }

    /// The error for a built-in file after a replacement.
    fn error(from: &str, to: &str) -> String {
        let text = BUILT_IN[0].1;
        assert!(text.contains(from), "{from}");
        Machine::parse(&text.replacen(from, to, 1), "m.toml").unwrap_err().to_string()
    }

    #[test]
    fn mistakes_name_their_place() {
        let found = error("[scalar]", "[scalars]");
        assert!(found.contains("unknown field `scalars`") && found.contains("m.toml:"), "{found}");
        let found = error("target = \"sm_90\"", "");
        assert!(found.contains("missing field `target`"), "{found}");
        let found = error("target = \"sm_90\"", "target = sm_90");
        assert!(found.contains("m.toml:") && found.contains("docs/scale.md"), "{found}");
        let found = error("bytes = { value = 80e9,", "bytes = { value = -80e9,");
        assert!(found.contains("memory.bytes is -80000000000"), "{found}");
        let found = error("[products.bf16]", "[products.b16]");
        assert!(found.contains("[products.b16]") && found.contains("unknown dtype"), "{found}");
        let found = error("ranks = 8\n", "");
        assert!(found.contains("link NVLink is not the last, and has no `ranks`"), "{found}");
        let found = error("ranks = 8\n", "ranks = 1\n");
        assert!(found.contains("not a greater multiple of 1"), "{found}");
        let found = error("name = \"InfiniBand\"\n", "name = \"InfiniBand\"\nranks = 64\n");
        assert!(found.contains("the last link, InfiniBand, has `ranks`"), "{found}");
        let text = BUILT_IN[0].1;
        let whole = text.find("[products.f32]").unwrap();
        let share = whole + text[whole..].find("share = { value = ").unwrap();
        let more = format!("{}share = {{ value = 1{}", &text[..share], &text[share + 18..]);
        let found = Machine::parse(&more, "m.toml").unwrap_err().to_string();
        assert!(found.contains("products.f32.share is 1"), "{found}");
        let found = error("source = \"H100 data sheet", "source = \"\", extra = \"");
        assert!(found.contains("unknown field `extra`"), "{found}");
    }
}
