//! Arguments about data: how they are read, and those of `data`.

use super::ReadingArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use wengert::data::source::{ImageOptions, Opening};
use wengert::recipe::Blocks;

/// How data are read, options of several commands.
#[derive(Args, Debug)]
pub struct SourceArgs {
    /// Read rows when they are needed, also of data that fit into memory. The default reads data of
    /// up to 64 MiB whole.
    #[arg(long)]
    pub stream: bool,
    /// Images: resize each one. The default is the size that they have, which must be the same.
    #[arg(long, value_name = "HEIGHTxWIDTH", value_parser = size)]
    pub image_size: Option<(usize, usize)>,
    /// Images: read them in grey, with one channel. The default is colour, with three.
    #[arg(long)]
    pub grey: bool,
    /// Images: leave damaged ones out. Each image is decoded once before the first step.
    #[arg(long)]
    pub skip_damaged: bool,
    /// Texts: the file `tokenizer.json` that divides them into tokens. DATA is a text file, or a
    /// folder of .txt files; its arrays are `tokens` and `targets`.
    #[arg(long, value_name = "FILE", requires = "window")]
    pub tokenizer: Option<PathBuf>,
    /// Texts: number of tokens of an example.
    #[arg(long, value_name = "N", requires = "tokenizer")]
    pub window: Option<usize>,
}

impl SourceArgs {
    /// The options as a type of the library.
    pub fn opening(&self, reading: &ReadingArgs) -> Opening {
        Opening {
            stream: self.stream,
            limit: reading.limit(),
            images: ImageOptions {
                size: self.image_size,
                channels: if self.grey { 1 } else { 3 },
                skip_damaged: self.skip_damaged,
            },
            text: self.tokenizer.clone().zip(self.window),
        }
    }
}

/// Arguments of `data`.
#[derive(Args, Debug)]
pub struct DataCommandArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: DataCommand,
}

/// Commands about data.
#[derive(Subcommand, Debug)]
pub enum DataCommand {
    /// Print the arrays of a data set: types, ranges, classes, some rows. Rows are read in pieces.
    Inspect(DataInspectArgs),
}

/// Arguments of `data inspect`.
#[derive(Args, Debug)]
pub struct DataInspectArgs {
    /// An .npz, .npy, .safetensors, .parquet or .csv file, a folder of .npy files, or of images in
    /// folders of classes or with a `labels.csv`.
    #[arg(value_name = "DATA")]
    pub data: PathBuf,
    /// How to read it.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Limits on the data read.
    #[command(flatten)]
    pub reading: ReadingArgs,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

fn size(text: &str) -> Result<(usize, usize), String> {
    let parse = |text: &str| text.parse::<usize>().ok().filter(|n| (1..=1 << 15).contains(n));
    text.split_once('x')
        .and_then(|(height, width)| Some((parse(height)?, parse(width)?)))
        .ok_or_else(|| "a size is HEIGHTxWIDTH, such as 224x224".into())
}

/// Parses blocks: `ROWS`, or `ROWSxWINDOW`.
pub(super) fn blocks(text: &str) -> Result<Blocks, String> {
    const WINDOW: u64 = 8;
    let parse = |text: &str| text.parse::<u64>().ok().filter(|n| *n > 0);
    let (rows, window) = match text.split_once('x') {
        Some((rows, window)) => (parse(rows), parse(window)),
        None => (parse(text), Some(WINDOW)),
    };
    let wrong = || "blocks are ROWS or ROWSxWINDOW, such as 4096x8".to_owned();
    Ok(Blocks { rows: rows.ok_or_else(wrong)?, window: window.ok_or_else(wrong)? })
}
