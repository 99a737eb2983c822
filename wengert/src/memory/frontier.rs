//! Cost of less memory: the plans between the smallest memory of a function and its default.

use super::picture::begin;
use std::fmt::{self, Write};
use wengert_compiler::memory::Planned;
use wengert_core::plan::Account;

/// A plan of the frontier, in numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Bytes of all memory in the plan.
    pub bytes: u64,
    /// Bytes of its arena.
    pub arena: u64,
    /// Kernels that are recomputed.
    pub repeated: usize,
    /// Operations of a run, and the recomputed ones among them.
    pub operations: [u64; 2],
    /// Predicted seconds of a run.
    pub predicted: f64,
    /// Measured seconds of a run, if it was.
    pub measured: Option<f64>,
}

impl Point {
    /// The point of a plan.
    pub fn of(planned: &Planned) -> Point {
        let sizes = Account::sizes(&planned.plan);
        Point {
            bytes: sizes.total(),
            arena: sizes.arena,
            repeated: planned.repetitions.kernels,
            operations: [planned.all.cost.operations, planned.repetitions.cost.operations],
            predicted: planned.all.seconds,
            measured: None,
        }
    }

    /// Recomputed operations, as a share of the others.
    pub fn added_operations(&self) -> f64 {
        let [all, again] = self.operations;
        again as f64 / all.saturating_sub(again).max(1) as f64
    }
}

const SIZE: [f64; 2] = [900.0, 480.0];
const MARGIN: f64 = 80.0;

/// Draws points: bytes on the x axis, seconds on the y axis; predictions as a line, measurements
/// as dots.
pub fn frontier_picture(points: &[Point]) -> String {
    let mut text = String::new();
    draw(&mut text, points).expect("strings take everything");
    text
}

fn draw(to: &mut String, points: &[Point]) -> fmt::Result {
    let [width, height] = SIZE;
    let seconds = points.iter().flat_map(|p| [Some(p.predicted), p.measured]).flatten();
    let highest = seconds.fold(f64::MIN_POSITIVE, f64::max);
    let most = points.iter().map(|p| p.bytes).max().unwrap_or(1).max(1) as f64;
    let x = |bytes: u64| MARGIN + width * bytes as f64 / most;
    let y = |seconds: f64| MARGIN + height - height * seconds / highest;
    begin(to, SIZE, MARGIN)?;
    let (left, bottom) = (MARGIN, MARGIN + height);
    writeln!(
        to,
        "<path d=\"M{left},{MARGIN} V{bottom} H{}\" fill=\"none\" stroke=\"#444444\"/>",
        left + width
    )?;
    for quarter in 1..=4 {
        let part = f64::from(quarter) / 4.0;
        let (across, up) = (left + width * part, bottom - height * part);
        writeln!(
            to,
            "<text x=\"{across:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:.1} MiB</text>\
             <text x=\"{:.1}\" y=\"{up:.1}\" text-anchor=\"end\">{:.3} s</text>",
            bottom + 20.0,
            most * part / f64::from(1 << 20),
            left - 8.0,
            highest * part
        )?;
    }
    let mut line = String::new();
    for point in points {
        write!(
            line,
            "{}{:.1},{:.1} ",
            if line.is_empty() { "M" } else { "L" },
            x(point.bytes),
            y(point.predicted)
        )?;
    }
    writeln!(
        to,
        "<path d=\"{}\" fill=\"none\" stroke=\"#3060c0\" stroke-width=\"2\"/>",
        line.trim_end()
    )?;
    for point in points {
        let title = format!("{} bytes, {} kernels again", point.bytes, point.repeated);
        for (seconds, colour) in [(Some(point.predicted), "#3060c0"), (point.measured, "#c04030")] {
            let Some(seconds) = seconds else { continue };
            writeln!(
                to,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{colour}\">\
                 <title>{title}, {seconds:.6} s</title></circle>",
                x(point.bytes),
                y(seconds)
            )?;
        }
    }
    writeln!(
        to,
        "<text x=\"{left}\" y=\"{:.1}\">blue: predicted, red: measured</text>",
        MARGIN - 20.0
    )?;
    writeln!(to, "</svg>")
}
