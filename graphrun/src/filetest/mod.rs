//! Filetests: directive, input and expected output in one file, as in LLVM's lit and Cranelift.
//!
//! A file is a list of cases between lines `// ---`. A case is a graph text with directives in
//! comments:
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
//! - `// test: ARGS` runs `graphrun ARGS` with the case's text as the file `%s`. The whole output
//!   must equal the `// expect:` block at the end of the case: results, then diagnostics, then
//!   `exit status N` if N is not 0. With several directives, their outputs follow each other,
//!   each after a line that repeats the directive.
//! - Without a directive, a case tests the parser and the verifier. If a line has
//!   `// error: MESSAGE`, the text must be refused with an error at that line which contains
//!   MESSAGE; if not, printing must reproduce the text.
//!
//! All other text of a case is ordinary, and lines keep their numbers in the file. `--bless`
//! rewrites the `// expect:` blocks of failing cases; use it only after reading the difference.

mod case;
mod runner;
mod words;

pub use case::{Case, split};
pub use runner::{Report, check_file};
