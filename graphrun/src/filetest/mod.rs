//! Filetests: directive, input and expected output in one file, as in LLVM's lit and Cranelift.
//!
//! A file is a list of cases between lines `// ---`. A case is a graph text with comments that say what to do with it:
//!
//! ```text
//! // test: run %s --input x=2xf32=1 2
//! func @double(%x: f32[B]) -> (y: f32[B]) {
//!   %0: f32[B] = add %x, %x
//!   return %0
//! }
//!
//! // expect:
//! // y=2xf32=2.0 4.0
//! ```
//!
//! - `// test: ARGS` runs `graphrun ARGS` with the case's text as the file `%s`. The whole output must be the
//!   `// expect:` block, which is the end of the case: results, then diagnostics, then `exit status N` if N is not 0. With several
//!   directives, their outputs follow each other, each after a line that repeats the directive.
//! - Without a directive, a case is one for the parser and verifier: if a line has `// error: MESSAGE`, the text must be refused
//!   with an error at that line which contains MESSAGE; if not, it must print as it stands.
//!
//! Nothing else in a case is special, and lines keep the numbers that they have in the file. `--bless` rewrites the
//! `// expect:` blocks of failing cases; only a person who has read the difference should ask for it.

mod case;
mod runner;
mod words;

pub use case::{Case, split};
pub use runner::{Report, check_file};
