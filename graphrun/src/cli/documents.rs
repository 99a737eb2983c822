//! Arguments of `completions` and `manual`.

use clap::Args;
use clap_complete::Shell;
use std::path::PathBuf;

/// Arguments of `completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell. Each reads the text of its own: bash and fish from a file in their folder of
    /// completions, zsh from a file `_graphrun` in a folder of `fpath`.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Arguments of `manual`.
#[derive(Args, Debug)]
pub struct ManualArgs {
    /// The command whose page is printed. The default is graphrun itself.
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    pub command: Option<String>,
    /// Write the pages of all commands to this folder, which is made if it is missing:
    /// graphrun.1, graphrun-run.1 and so on. A folder man1 of the MANPATH is one for them.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}
