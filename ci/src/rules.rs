//! The rules. Each has a name, a reason, and a function that finds violations.

use crate::sources::Source;

/// A rule of the project.
pub struct Rule {
    /// Short name.
    pub name: &'static str,
    /// The reason for it.
    pub reason: &'static str,
    /// Finds violations, as `path:line: what`.
    pub find: fn(&[Source]) -> Vec<String>,
    /// A source that violates it.
    pub offender: fn() -> Source,
}

/// Folders in which `unsafe` is allowed, each with its argument.
const UNSAFE_ALLOWED: [&str; 6] = [
    "cpu-kernels/",
    "cuda-kernels/src/driver/",
    "transport/src/lent.rs",
    "transport/src/mpi/",
    "transport/src/shared/",
    "wengert/src/data/map.rs",
];

/// Which crates of the workspace each crate may depend on (normal dependencies).
const MAY_IMPORT: [(&str, &[&str]); 12] = [
    ("core/Cargo.toml", &["wengert-derive"]),
    ("core/derive/Cargo.toml", &[]),
    ("graph-compiler/Cargo.toml", &["wengert-core"]),
    ("cpu-kernels/Cargo.toml", &["wengert-core", "wengert-transport"]),
    ("cuda-kernels/Cargo.toml", &["wengert-core"]),
    ("cuda-kernels/emulator/Cargo.toml", &[]),
    ("cuda-kernels/machine/Cargo.toml", &["wengert-emulator"]),
    ("graphrun/Cargo.toml", &["wengert"]),
    ("python-free-examples/Cargo.toml", &["wengert"]),
    ("bench/Cargo.toml", &["wengert"]),
    ("testing/Cargo.toml", &["wengert-core", "wengert-compiler"]),
    ("transport/Cargo.toml", &[]),
];

/// Every rule.
pub const RULES: &[Rule] = &[
    Rule {
        name: "file length",
        reason: "a file is one room; above 800 lines it is several",
        find: |sources| {
            let code = sources.iter().filter(|s| s.is_rust() || s.path.ends_with(".py"));
            code.filter(|s| s.text.lines().count() > 800)
                .map(|s| format!("{}: {} lines", s.path, s.text.lines().count()))
                .collect()
        },
        offender: || Source::new("bench/peers/long.py", &"x = 1\n".repeat(801)),
    },
    Rule {
        name: "line length",
        reason: "a line is read at a glance; rustfmt does not break strings and comments",
        find: |sources| {
            let records = |s: &&Source| !s.path.starts_with("bench/record/");
            // A row of a table cannot be broken, in Markdown or in documentation.
            let is_row =
                |l: &str| l.trim_start().trim_start_matches(['/', '!', ' ']).starts_with('|');
            lines(sources.iter().filter(records), |l| l.chars().count() > 100 && !is_row(l))
        },
        offender: || Source::new("core/src/x.rs", &format!("//! {}\n", "x ".repeat(50))),
    },
    Rule {
        name: "no utils",
        reason: "a name that fits everything says nothing",
        find: |sources| {
            let bad = |p: &str| {
                ["utils", "util", "misc", "helpers", "common"]
                    .iter()
                    .any(|n| p.split(['/', '.']).any(|x| x == *n))
            };
            sources.iter().filter(|s| bad(&s.path)).map(|s| s.path.clone()).collect()
        },
        offender: || Source::new("core/src/utils.rs", "//! x\n"),
    },
    Rule {
        name: "module docs",
        reason: "a newcomer reads what a file is before its code",
        find: |sources| {
            rust(sources)
                .filter(|s| !s.text.lines().any(|l| l.starts_with("//!")))
                .map(|s| s.path.clone())
                .collect()
        },
        offender: || Source::new("core/src/mute.rs", "fn f() {}\n"),
    },
    Rule {
        name: "no included files",
        reason: "a file belongs to one crate; what tests share is in `testing/`",
        find: |sources| lines(rust(sources), |l| l.trim_start().starts_with("#[path")),
        offender: || Source::new("core/tests/x.rs", "//! x\n#[path = \"../y.rs\"]\nmod y;\n"),
    },
    Rule {
        name: "no unwrap",
        reason: "`.expect` says why it cannot fail; what can fail is an error",
        find: |sources| product(sources, |l| l.contains(".unwrap()")),
        offender: || Source::new("core/src/x.rs", "//! x\nfn f() { g().unwrap(); }\n"),
    },
    Rule {
        name: "nothing unfinished",
        reason: "what is not supported is a clear error, and every test runs",
        find: |sources| {
            let words = ["todo!(", "unimplemented!(", "#[ignore", "FIXME", "XXX"];
            lines(sources.iter().filter(|s| s.is_rust() && !s.path.starts_with("ci/")), |l| {
                words.iter().any(|w| l.contains(w))
            })
        },
        offender: || Source::new("core/src/x.rs", "//! x\nfn f() { todo!() }\n"),
    },
    Rule {
        name: "unsafe in its places",
        reason: "memory safety is argued in few, named modules",
        find: |sources| {
            lines(
                rust(sources).filter(|s| {
                    !UNSAFE_ALLOWED.iter().any(|a| s.path.starts_with(a))
                        && !s.is_test()
                        && !s.path.starts_with("ci/")
                }),
                |l| {
                    let code = l.split("//").next().unwrap_or("");
                    code.contains("unsafe ") || code.contains("allow(unsafe_code)")
                },
            )
        },
        offender: || Source::new("core/src/x.rs", "//! x\nfn f() { unsafe { g() } }\n"),
    },
    Rule {
        name: "forbid unsafe",
        reason: "crates without unsafe say so to the compiler",
        find: |sources| {
            let crates = ["core", "core/derive", "graph-compiler", "bench", "ci"];
            sources
                .iter()
                .filter(|s| crates.iter().any(|c| s.path == format!("{c}/src/lib.rs")))
                .chain(sources.iter().filter(|s| s.path == "graphrun/src/main.rs"))
                .filter(|s| !s.text.contains("#![forbid(unsafe_code)]"))
                .map(|s| s.path.clone())
                .collect()
        },
        offender: || Source::new("core/src/lib.rs", "//! x\n"),
    },
    Rule {
        name: "memory is listed",
        reason: "each public function that takes memory has a reason why it is sound",
        find: crate::memory_list::differences,
        offender: || {
            Source::new("cpu-kernels/src/lib.rs", "//! x\npub fn peek(at: *const u8) {}\n")
        },
    },
    Rule {
        name: "no I/O in core and compiler",
        reason: "they are pure and deterministic: text in, text out",
        find: |sources| {
            let bad = [
                "std::fs",
                "std::net",
                "std::time",
                "std::env",
                "std::process",
                "println!",
                "eprintln!",
                "thread::",
            ];
            product(
                &sources
                    .iter()
                    .filter(|s| {
                        s.path.starts_with("core/src") || s.path.starts_with("graph-compiler/src")
                    })
                    .cloned()
                    .collect::<Vec<_>>(),
                // The builder's current scope is a thread local, which is no I/O.
                |l| bad.iter().any(|b| l.contains(b)),
            )
        },
        offender: || Source::new("core/src/x.rs", "//! x\nuse std::fs;\n"),
    },
    Rule {
        name: "imports point one way",
        reason: "nouns know no verbs, verbs no machines, machines not each other",
        find: |sources| {
            let mut found = Vec::new();
            for (path, allowed) in MAY_IMPORT {
                for source in sources.iter().filter(|s| s.path == path) {
                    let dependencies = source
                        .text
                        .lines()
                        .skip_while(|l| l.trim() != "[dependencies]")
                        .skip(1)
                        .take_while(|l| !l.starts_with('['));
                    for line in dependencies {
                        let name = line.split(['.', ' ', '=']).next().unwrap_or("");
                        if name.starts_with("wengert") && !allowed.contains(&name) {
                            found.push(format!("{path}: depends on {name}"));
                        }
                    }
                }
            }
            found
        },
        offender: || {
            Source::new(
                "graph-compiler/Cargo.toml",
                "[dependencies]\nwengert-cpu.workspace = true\n",
            )
        },
    },
    Rule {
        name: "devices are listed once",
        reason: "a device that a build leaves out is unknown to all files but the list of devices",
        find: |sources| {
            lines(
                rust(sources).filter(|s| {
                    s.path.starts_with("wengert/src") && s.path != "wengert/src/device/mod.rs"
                }),
                |l| ["cuda", "gpu-model"].iter().any(|f| l.contains(&format!("feature = \"{f}\""))),
            )
        },
        offender: || Source::new("wengert/src/x.rs", "//! x\n#[cfg(feature = \"cuda\")]\nmod y;\n"),
    },
    Rule {
        name: "bincode is pinned",
        reason: "2.0.1 is the last release that is one; 3.0.0 is a tombstone",
        find: |sources| {
            sources
                .iter()
                .filter(|s| s.path.ends_with("Cargo.toml"))
                .flat_map(|s| s.text.lines().map(move |l| (s, l)))
                .filter(|(_, l)| {
                    l.starts_with("bincode")
                        && !l.contains("workspace = true")
                        && !l.contains("=2.0.1")
                })
                .map(|(s, l)| format!("{}: {l}", s.path))
                .collect()
        },
        offender: || Source::new("wengert/Cargo.toml", "bincode = \"3\"\n"),
    },
    Rule {
        name: "doc links exist",
        reason: "a document that points nowhere is not read twice",
        find: |sources| {
            let mut found = Vec::new();
            for source in sources.iter().filter(|s| s.path.ends_with(".md")) {
                let folder = source.path.rsplit_once('/').map_or("", |(f, _)| f);
                for target in
                    source.text.split("](").skip(1).filter_map(|t| t.split([')', '#']).next())
                {
                    let local = !target.is_empty() && !target.contains("://");
                    let path = if folder.is_empty() {
                        target.to_string()
                    } else {
                        format!("{folder}/{target}")
                    };
                    if local && !crate::sources::root().join(&path).exists() {
                        found.push(format!("{}: {target}", source.path));
                    }
                }
            }
            found
        },
        offender: || Source::new("README.md", "[x](no-such-file.md)\n"),
    },
    Rule {
        name: "named files exist",
        reason: "a reader looks for the file that a document names",
        find: |sources| {
            let root = crate::sources::root();
            let mut found = Vec::new();
            for source in sources.iter().filter(|s| s.path.ends_with(".md")) {
                for name in source.text.split('`').filter(|name| name.ends_with(".rs")) {
                    // Other names are relative to the subject, or stand for several files.
                    let folder = name.split_once('/').map(|(folder, _)| folder);
                    let whole = folder.is_some_and(|f| root.join(f).is_dir());
                    if whole && !name.contains(['{', '*', ' ']) && !root.join(name).exists() {
                        found.push(format!("{}: {name}", source.path));
                    }
                }
            }
            found
        },
        offender: || Source::new("docs/x.md", "The lexer is `core/src/no_such_file.rs`.\n"),
    },
];

fn rust(sources: &[Source]) -> impl Iterator<Item = &Source> {
    sources.iter().filter(|s| s.is_rust())
}

fn lines<'a>(sources: impl Iterator<Item = &'a Source>, bad: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        for (i, line) in source.text.lines().enumerate().filter(|(_, l)| bad(l)) {
            found.push(format!("{}:{}: {}", source.path, i + 1, line.trim()));
        }
    }
    found
}

fn product(sources: &[Source], bad: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources.iter().filter(|s| s.is_rust() && !s.path.starts_with("ci/")) {
        for (number, line) in source.product_lines() {
            let code = if line.trim_start().starts_with("//") { "" } else { line };
            if bad(code) {
                found.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    found
}
