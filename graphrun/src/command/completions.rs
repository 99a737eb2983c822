//! `graphrun completions`: the completions of a shell.

use crate::cli::{CompletionsArgs, examples};
use crate::console::{Console, Outcome, Status};

/// Prints the script for the shell.
pub fn run(args: &CompletionsArgs, console: &mut Console<'_>) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut examples::command(), "graphrun", &mut script);
    console.text(String::from_utf8_lossy(&script))?;
    Ok(Status::Good)
}
