//! A plot of records: each case is a row, each contender a mark on it, on a logarithmic axis of
//! times relative to this library's.
//!
//! Left of 1 is faster than this library, right of it slower; a bar goes from the tenth to the
//! ninetieth percentile. The format is SVG.

use crate::floor::Floors;
use crate::record::{Measurement, Record};
use crate::statistics::Spread;
use crate::suite::label;
use crate::table::{duration, in_order, is_ours};
use crate::yardstick::is_yardstick;
use std::fmt::Write;

/// Widths of the names' column and of the axis, and the height of a row, in pixels.
const NAMES: f64 = 360.0;
const AXIS: f64 = 560.0;
const ROW: f64 = 20.0;
const MARGIN: f64 = 24.0;

/// The ends of the axis, as powers of two.
const ENDS: [i32; 2] = [-3, 5];

/// This library's colour, then the others' in rotation: a palette for colour-blind readers (Okabe
/// and Ito 2008).
const COLOURS: [&str; 8] =
    ["#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442"];

/// Position of a ratio on the axis, clamped to its ends.
fn at(ratio: f64) -> f64 {
    let [low, high] = ENDS.map(f64::from);
    NAMES + AXIS * (ratio.log2().clamp(low, high) - low) / (high - low)
}

/// A row: its name, the marks' values by contender (low, median, high) relative to this
/// library's, and the floor.
struct Row<'a> {
    suite: &'a str,
    case: &'a str,
    shown: String,
    marks: Vec<(&'a str, [f64; 3])>,
    floor: Option<f64>,
}

fn rows(records: &[Record]) -> Vec<Row<'_>> {
    let floors = Floors::of(records);
    let measurements: Vec<&Measurement> =
        records.iter().flat_map(|r| &r.measurements).filter(|m| !is_yardstick(m)).collect();
    let cases = in_order(measurements.iter().map(|m| m.case.as_str()));
    let mut rows = Vec::new();
    for case in cases {
        let of_case: Vec<&Measurement> =
            measurements.iter().copied().filter(|m| m.case == case).collect();
        // Without a figure of this library there is no reference.
        let Some(ours) = of_case.iter().find(|m| is_ours(&m.contender)) else { continue };
        let unit = ours.time.median;
        let of = |time: &Spread| [time.p10, time.median, time.p90].map(|s| s / unit);
        rows.push(Row {
            suite: label(&ours.group).unwrap_or_default(),
            case: &ours.case,
            shown: duration(unit),
            marks: of_case.iter().map(|m| (m.contender.as_str(), of(&m.time))).collect(),
            floor: floors.multiple(ours).map(|multiple| 1.0 / multiple),
        });
    }
    let starts = || records.iter().flat_map(|r| &r.starts);
    for ours in starts().filter(|s| is_ours(&s.contender)) {
        let unit = ours.seconds.median;
        let cold = starts().filter(|s| s.case == ours.case && s.warm != Some(true));
        let mark = |s: &'_ crate::starts::Start| {
            [s.seconds.p10, s.seconds.median, s.seconds.p90].map(|s| s / unit)
        };
        rows.push(Row {
            suite: "C7",
            case: &ours.case,
            shown: duration(unit),
            marks: cold.map(|s| (s.contender.as_str(), mark(s))).collect(),
            floor: None,
        });
    }
    rows
}

/// The text of the plot.
pub fn svg(records: &[Record]) -> String {
    let rows = rows(records);
    let contenders = in_order(rows.iter().flat_map(|row| row.marks.iter().map(|(name, _)| *name)));
    let top = 2.0 * MARGIN + ROW;
    let (width, height) =
        (NAMES + AXIS + 4.0 * MARGIN, top + ROW * rows.len() as f64 + 2.0 * MARGIN);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    let colour = |name: &str| {
        let n = contenders.iter().position(|c| *c == name).unwrap_or(0);
        COLOURS[n % COLOURS.len()]
    };
    for (n, name) in contenders.iter().enumerate() {
        let x = MARGIN + n as f64 * (width - 2.0 * MARGIN) / contenders.len() as f64;
        _ = writeln!(
            text,
            "<circle cx=\"{x:.1}\" cy=\"{MARGIN}\" r=\"5\" fill=\"{}\"/>",
            colour(name)
        );
        put(&mut text, x + 9.0, MARGIN + 4.0, "start", name);
    }
    let bottom = top + ROW * rows.len() as f64;
    for power in ENDS[0]..=ENDS[1] {
        let x = at(f64::from(power).exp2());
        let shade = if power == 0 { "#888888" } else { "#dddddd" };
        _ = writeln!(
            text,
            "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" \
             stroke=\"{shade}\"/>",
            top - ROW / 2.0
        );
        put(&mut text, x, bottom + ROW, "middle", &format!("{}×", f64::from(power).exp2()));
    }
    for (n, row) in rows.iter().enumerate() {
        let y = top + ROW * (n as f64 + 0.5);
        put(&mut text, MARGIN, y + 4.0, "start", row.suite);
        put(&mut text, NAMES - 8.0, y + 4.0, "end", row.case);
        put(&mut text, NAMES + AXIS + 8.0, y + 4.0, "start", &row.shown);
        if let Some(x) = row.floor.map(at) {
            let (from, to) = (y - 7.0, y + 7.0);
            _ = writeln!(
                text,
                "<line x1=\"{x:.1}\" y1=\"{from:.1}\" x2=\"{x:.1}\" y2=\"{to:.1}\" \
                 stroke=\"#888888\" stroke-width=\"3\"/>"
            );
        }
        for (name, values) in &row.marks {
            let ([low, x, high], colour) = (values.map(at), colour(name));
            _ = writeln!(
                text,
                "<line x1=\"{low:.1}\" y1=\"{y:.1}\" x2=\"{high:.1}\" y2=\"{y:.1}\" \
                 stroke=\"{colour}\" stroke-width=\"2\"/>\
                 <circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{colour}\"/>"
            );
        }
    }
    put(
        &mut text,
        NAMES,
        height - 6.0,
        "start",
        "times by this library's (right: its own); grey bars are floors",
    );
    text.push_str("</svg>\n");
    text
}

/// Writes a word.
fn put(text: &mut String, x: f64, y: f64, anchor: &str, word: &str) {
    let word = word.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{word}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn marks_stand_where_their_ratios_are() {
        assert_eq!((at(1.0 / 8.0), at(32.0), at(1e9)), (NAMES, NAMES + AXIS, NAMES + AXIS));
        assert_eq!(at(1.0), NAMES + AXIS * 3.0 / 8.0);
        let mut record = record();
        let mut theirs = record.measurements[0].clone();
        theirs.contender = "a<b".into();
        for seconds in [&mut theirs.time.p10, &mut theirs.time.median, &mut theirs.time.p90] {
            *seconds = 4.0 * 1.25e-6;
        }
        record.measurements.push(theirs);
        let text = svg(&[record]);
        assert!(text.starts_with("<svg") && text.ends_with("</svg>\n"));
        // This library at 1, the other at 4; this library's start alone.
        for ratio in [1.0, 4.0] {
            assert!(
                text.contains(&format!("<circle cx=\"{:.1}\" cy=\"78.0\"", at(ratio))),
                "{text}"
            );
        }
        assert!(text.contains(">a&lt;b<") && !text.contains("a<b") && text.contains(">C7<"));
    }
}
