//! The table of starts.

use super::{OURS, duration, figures, in_order, is_ours};
use crate::record::Record;
use crate::starts::Start;
use std::fmt::Write;

/// A figure of starts.
struct Figure {
    /// Its row in the table of C1 to C9, and its description.
    name: &'static str,
    /// Its value for a start, if it has one.
    of: fn(&Start) -> Option<f64>,
    /// The part that is the same for every contender; the remainder is compared.
    floor: fn(&Start) -> Option<f64>,
    show: fn(f64) -> String,
    /// True if it depends on cached compiled code.
    has_warmth: bool,
}

const FIGURES: [Figure; 3] = [
    Figure {
        name: "C7 start to the first step's end",
        of: |start| Some(start.seconds.median),
        floor: |_| None,
        show: duration,
        has_warmth: true,
    },
    Figure {
        name: "C8 peak memory",
        of: |start| Some(start.peak_bytes as f64),
        floor: |start| Some(start.state_bytes as f64 + start.bound_bytes? as f64),
        show: gigabytes,
        has_warmth: false,
    },
    Figure {
        name: "C9 compiling",
        of: |start| Some(start.compile_seconds?.median),
        floor: |_| None,
        show: duration,
        has_warmth: true,
    },
];

fn gigabytes(bytes: f64) -> String {
    format!("{} GB", figures(bytes / 1e9))
}

/// A row for each figure of each case; empty without starts. `ratio` is that of the best other
/// contender to this library, for memory without the state, which all hold; above 1, this library
/// takes less.
pub(super) fn markdown(records: &[Record]) -> String {
    let starts: Vec<&Start> = records.iter().flat_map(|r| &r.starts).collect();
    if starts.is_empty() {
        return String::new();
    }
    let contenders = in_order(starts.iter().map(|s| s.contender.as_str()));
    let cases = in_order(starts.iter().map(|s| s.case.as_str()));
    let mut text = String::from("\n| start | case | cache | floor |");
    let mut rule = String::from("|---|---|---|---:|");
    for contender in &contenders {
        _ = write!(text, " {contender} |");
        rule.push_str("---:|");
    }
    _ = write!(text, " ratio |\n{rule}---:|\n");
    for figure in &FIGURES {
        for case in &cases {
            let of_case: Vec<&Start> = starts.iter().copied().filter(|s| s.case == *case).collect();
            let has_warm = of_case.iter().any(|s| s.warm == Some(true));
            // Memory is that of the cold start, which includes compiling.
            for warm in
                [false, true].into_iter().filter(|warm| !*warm || figure.has_warmth && has_warm)
            {
                // Contenders without a cache have the same figure in both rows.
                let of_row = |name: &str| {
                    let of_name =
                        |s: &&&Start| s.contender == name && s.warm.is_none_or(|w| w == warm);
                    of_case.iter().find(of_name).copied()
                };
                let cache = match (figure.has_warmth, warm) {
                    (false, _) => "",
                    (true, false) => "cold",
                    (true, true) => "warm",
                };
                let ours = of_row(OURS);
                let floor = ours.and_then(figure.floor);
                let shown = floor.map_or(String::new(), figure.show);
                _ = write!(text, "| {} | {case} | {cache} | {shown} |", figure.name);
                for contender in &contenders {
                    let value =
                        of_row(contender).and_then(figure.of).map_or(String::new(), figure.show);
                    _ = write!(text, " {value} |");
                }
                let beyond = |start: &Start| {
                    let state = if figure.has_warmth { 0.0 } else { start.state_bytes as f64 };
                    (figure.of)(start).map(|value| value - state)
                };
                let others =
                    contenders.iter().filter(|name| !is_ours(name)).filter_map(|name| of_row(name));
                let best = others.filter_map(beyond).min_by(f64::total_cmp);
                let ratio = ours.and_then(beyond).zip(best).map(|(ours, best)| best / ours);
                _ = writeln!(text, " {} |", ratio.map_or(String::new(), |r| format!("{r:.2}")));
            }
        }
    }
    let planned = starts.iter().filter_map(|s| Some((s, s.arena_bytes?, s.bound_bytes?)));
    for (start, arena, bound) in planned {
        _ = writeln!(
            text,
            "\n{}, {}: state {}, arena {}, bound {} (arena / bound {:.3}), peak less state \
             {:.3} of the bound.",
            start.contender,
            start.case,
            gigabytes(start.state_bytes as f64),
            gigabytes(arena as f64),
            gigabytes(bound as f64),
            arena as f64 / bound as f64,
            start.peak_bytes.saturating_sub(start.state_bytes) as f64 / bound as f64,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Spread;
    use crate::table::tests::record;

    #[test]
    fn starts_have_a_table() {
        let start = |contender: &str, warm, seconds: f64, peak: u64| {
            let spread = |s: f64| Spread { samples: 2, min: s, p10: s, median: s, p90: s };
            Start {
                case: "step gpt".into(),
                contender: contender.into(),
                device: "cpu".into(),
                warm,
                seconds: spread(seconds),
                compile_seconds: (contender != "torch").then(|| spread(seconds / 4.0)),
                peak_bytes: peak << 20,
                state_bytes: 1000 << 20,
                arena_bytes: (contender == OURS).then_some(110 << 20),
                bound_bytes: (contender == OURS).then_some(100 << 20),
            }
        };
        let mut record = record("ours", vec![]);
        assert_eq!(markdown(std::slice::from_ref(&record)), "");
        record.starts = vec![
            start("wengert", None, 2.0, 1200),
            start("jax", Some(false), 12.0, 1500),
            start("jax", Some(true), 5.0, 1400),
            start("torch", None, 4.0, 1500),
        ];
        let expected = "
| start | case | cache | floor | wengert | jax | torch | ratio |
|---|---|---|---:|---:|---:|---:|---:|
| C7 start to the first step's end | step gpt | cold |  | 2.00 s | 12.0 s | 4.00 s | 2.00 |
| C7 start to the first step's end | step gpt | warm |  | 2.00 s | 5.00 s | 4.00 s | 2.00 |
| C8 peak memory | step gpt |  | 1.15 GB | 1.26 GB | 1.57 GB | 1.57 GB | 2.50 |
| C9 compiling | step gpt | cold |  | 500 ms | 3.00 s |  | 6.00 |
| C9 compiling | step gpt | warm |  | 500 ms | 1.25 s |  | 2.50 |

wengert, step gpt: state 1.05 GB, arena 0.1153 GB, bound 0.1049 GB (arena / bound 1.100), \
    peak less state 2.000 of the bound.
";
        assert_eq!(markdown(&[record]), expected);
    }
}
