//! Arguments of the commands that find the part of a program at fault.

use super::CaseArgs;
use clap::{ArgGroup, Args};
use std::ffi::OsString;
use std::path::PathBuf;

/// Arguments of `nan`.
#[derive(Args, Debug)]
#[command(after_help = "Exit status: 1 if a non-finite value is found, 0 if there is none.")]
pub struct NanArgs {
    /// The function, its inputs and the precision.
    #[command(flatten)]
    pub case: CaseArgs,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `reduce`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("failure").required(true).multiple(true))]
pub struct ReduceArgs {
    /// The function, its inputs and the precision.
    #[command(flatten)]
    pub case: CaseArgs,
    /// The failure: a run on the device ends with an error whose message has this text. With --cmd,
    /// the command prints the text.
    #[arg(long, value_name = "TEXT", group = "failure")]
    pub fails_with: Option<String>,
    /// The failure: the first check of `graphrun check` that fails, the same for every case.
    #[arg(long, group = "failure", conflicts_with_all = ["fails_with", "cmd"])]
    pub check: bool,
    /// The failure: the shell command ends with the same exit status, not 0. {} is the path of the
    /// .ir file, and {inputs} the options that give its inputs.
    #[arg(long, value_name = "COMMAND", group = "failure")]
    pub cmd: Option<String>,
    /// With --fails-with: cpu, cuda[:N], emulator, interpreter.
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// The most cases that are tried.
    #[arg(long, value_name = "N", default_value_t = 5000)]
    pub attempts: usize,
    /// With --cmd: seconds after which a run of the command is ended, which counts as a way of
    /// failing.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub timeout: u64,
    /// The file to write.
    #[arg(short, long, value_name = "SMALL.ir")]
    pub out: PathBuf,
}

/// Arguments of `diff`.
#[derive(Args, Debug)]
#[command(after_help = "Exit status: 1 if they differ, 0 if not.")]
pub struct DiffArgs {
    /// The first: a .graph, .ir or .onnx file, or a .plan file. The default is all functions.
    #[arg(value_name = "A[@FUNC]")]
    pub from: OsString,
    /// The second.
    #[arg(value_name = "B[@FUNC]")]
    pub to: OsString,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
