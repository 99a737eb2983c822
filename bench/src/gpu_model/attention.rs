//! `wengert-bench gpu-model attention`: the forward attention of this library and Triton's, on
//! Hopper, both by the model.
//!
//! Shapes are those of Triton's tutorial: 4 sequences, 32 heads, f16, no mask. Triton's kernel is
//! `attention` of `published/kernels/triton/kernels.py`. `hopper.py` beside it compiles the kernel
//! for each tile of `TILES` and writes its PTX into `hopper/`. Its best tile is the one with the
//! least predicted time.
//!
//! The two differ in the layout of memory: positions of a head follow each other in Triton's, and
//! heads of a position in this library's. Memory of a sample holds zeros. So no score exceeds its
//! row's reference after the first step, and the kernel of this library does not rescale its sums.

use super::published::triton::{BATCH, attention_launch};
pub use super::published::triton::{HEADS, attention_operations as operations};
use super::published::{Code, Run, digits};
use super::table;
use clap::Args;
use std::io::Write;
use wengert::command::{Outcome, Status};
use wengert::device::predicted::foreign::{Foreign, Sample};
use wengert::device::predicted::tools::Tools;
use wengert::device::predicted::{Card, Options, architecture, card, predict};
use wengert::nn::{Mask, VisibleKeys, dot_product_attention};
use wengert::prelude::*;
use wengert::{bind, diagnostic, pipeline, target};

/// Options of `gpu-model attention`.
#[derive(Debug, Args)]
pub struct Asked {
    /// GPUs of Hopper
    #[arg(default_values = ["h100", "h200"], value_parser = ["h100", "h200"])]
    machines: Vec<String>,
    /// Width of a head: 64 or 128
    #[arg(long = "width", value_name = "N", default_values_t = [64, 128])]
    widths: Vec<u32>,
    /// Queries of a head, and its keys: multiples of 128, at least 768
    #[arg(long, value_name = "N", default_values_t = [1024, 4096])]
    positions: Vec<u32>,
    /// All tiles of Triton's kernel, not only the best
    #[arg(long)]
    tiles: bool,
}

/// Triton's kernel, compiled for a tile.
pub struct Tile {
    /// Width of a head.
    pub width: u32,
    /// Queries of a program.
    pub rows: u32,
    /// Keys of a step.
    pub columns: u32,
    /// Warps of a program.
    pub warps: u32,
    /// Bytes of dynamic shared memory, by Triton's metadata.
    pub shared: u32,
    ptx: &'static str,
}

macro_rules! tile {
    ($width:literal, $rows:literal x $columns:literal, $warps:literal warps, $shared:literal) => {
        Tile {
            width: $width,
            rows: $rows,
            columns: $columns,
            warps: $warps,
            shared: $shared,
            ptx: include_str!(concat!(
                "published/kernels/triton/hopper/attention_",
                $width,
                "_",
                $rows,
                "x",
                $columns,
                "_",
                $warps,
                ".ptx"
            )),
        }
    };
}

/// The tiles of `hopper.py`.
pub const TILES: [Tile; 5] = [
    tile!(64, 128 x 64, 4 warps, 65_536),
    tile!(64, 128 x 64, 8 warps, 65_536),
    tile!(64, 128 x 128, 8 warps, 114_688),
    tile!(128, 128 x 64, 8 warps, 131_072),
    tile!(128, 128 x 128, 8 warps, 163_840),
];

impl std::fmt::Debug for Tile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} × {}, {} warps", self.rows, self.columns, self.warps)
    }
}

impl Tile {
    /// Assembles the kernel.
    ///
    /// Errors: ptxas refuses it.
    pub fn assemble(&self, tools: &Tools) -> Result<Foreign> {
        Code::Ptx(self.ptx, "sm_90a").assemble(tools)
    }

    /// The work for this many positions, from two samples with fewer keys.
    ///
    /// Errors: those of [`Foreign::sample`].
    pub fn sample(&self, module: &Foreign, positions: u32, card: &Card) -> Result<Sample> {
        let Tile { width, rows, columns, warps, shared, .. } = *self;
        let launch =
            move |keys: u32| attention_launch([positions, keys, width], rows, warps, shared);
        // The first steps fill the stages of the loop's pipeline.
        let steps = [3 * columns, 5 * columns, positions];
        Run::stepped("attention", steps, launch).sample(module, card.name)
    }
}

/// A predicted kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// Whose it is, and its tile.
    pub kernel: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Resident warps of a multiprocessor.
    pub warps: u32,
    /// Seconds of a launch.
    pub seconds: f64,
    /// The resource that takes the longest.
    pub limit: &'static str,
}

/// Names of the columns; the last is the time over that of Triton's best tile.
const HEADER: [&str; 10] =
    ["card", "width", "positions", "kernel", "regs", "warps", "us", "TFLOP/s", "limit", "time"];

impl Asked {
    /// Errors: Triton's kernel is not there for a width; it has no such number of positions.
    fn check(&self) -> Result<()> {
        if let Some(width) =
            self.widths.iter().find(|width| TILES.iter().all(|tile| tile.width != **width))
        {
            let error = diagnostic!("Triton's kernel is not compiled for heads of {width}");
            return Err(error.help("give --width 64 or --width 128"));
        }
        // Samples have 640 keys at most, and rows and columns of tiles have no rest.
        if let Some(positions) = self.positions.iter().find(|n| **n <= 640 || **n % 128 != 0) {
            let error = diagnostic!("{positions} positions do not divide into the kernel's tiles");
            return Err(error.help("give --positions a multiple of 128 from 768"));
        }
        Ok(())
    }

    /// Prints the table.
    pub(crate) fn run(&self, out: &mut dyn Write) -> Outcome {
        self.check()?;
        let tools = Tools::find()?;
        let modules: Vec<Foreign> =
            TILES.iter().map(|tile| tile.assemble(&tools)).collect::<Result<_>>()?;
        table(out, &[HEADER.map(str::to_owned)])?;
        for name in &self.machines {
            let card = card(name)?;
            let of_width = |width| self.positions.iter().map(move |n| [width, *n]);
            for [width, positions] in self.widths.iter().copied().flat_map(of_width) {
                let of_width = TILES.iter().zip(&modules).filter(|(tile, _)| tile.width == width);
                let mut tiles = of_width
                    .map(|(tile, module)| triton(tile, module, positions, card))
                    .collect::<Result<Vec<Found>>>()?;
                tiles.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
                let best = tiles.first().expect("each width has a tile").seconds;
                if !self.tiles {
                    tiles.truncate(1);
                }
                let work = operations(positions, width);
                for found in [own(width, positions, card, &tools)?].iter().chain(&tiles) {
                    let cells = [
                        card.name,
                        &width.to_string(),
                        &positions.to_string(),
                        &found.kernel,
                        &found.registers.to_string(),
                        &found.warps.to_string(),
                        &digits(found.seconds * 1e6),
                        &digits(work / found.seconds / 1e12),
                        found.limit,
                        &format!("{:.3}", found.seconds / best),
                    ];
                    writeln!(out, "| {} |", cells.join(" | "))?;
                }
            }
        }
        Ok(Status::Good)
    }
}

fn triton(tile: &Tile, module: &Foreign, positions: u32, card: &Card) -> Result<Found> {
    let sample = tile.sample(module, positions, card)?;
    let predicted = sample.predict(card);
    Ok(Found {
        kernel: format!("Triton, {tile:?}"),
        registers: sample.registers,
        warps: sample.work.occupancy.warps,
        seconds: predicted.seconds,
        limit: predicted.limiter.name(),
    })
}

/// The attention of this library.
///
/// Errors: those of compilation; a kernel is not predicted.
pub fn own(width: u32, positions: u32, card: &'static Card, tools: &Tools) -> Result<Found> {
    let mut program = Program::new();
    program.function("attention", |f| {
        let [batch, heads] = BATCH;
        let extents = [batch, positions, heads, width].map(|n| n as usize);
        let ty = TensorType::new(DType::F16, extents);
        let [q, k, v] = ["q", "k", "v"].map(|name| f.input(name, ty.clone()));
        let visible = VisibleKeys::from(Mask::None);
        f.output("y", dot_product_attention(&q, &k, &v, visible, None));
    })?;
    let target = target(&architecture(card)?.name())?;
    let options = pipeline::Options::default();
    let plan = pipeline::compile(&program, "attention", &bind!(), &target, &options)?;
    let found = predict(&plan, card, Options::default(), tools)?;
    let ([longest, ..], []) = (&found.rows[..], &found.unknown[..]) else {
        return Err(diagnostic!(
            "attention with heads of {width} is not predicted: {}",
            found.unknown.join("; ")
        ));
    };
    let occupancy = longest.occupancy.expect("attention is no product of a library");
    Ok(Found {
        kernel: "this library".into(),
        registers: longest.registers,
        warps: occupancy.warps,
        seconds: found.seconds(),
        limit: longest.limiter.name(),
    })
}
