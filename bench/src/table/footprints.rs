//! The table of the memory of compiled training steps.

use super::{OURS, duration, figures, in_order, is_ours};
use crate::memory::Footprint;
use crate::record::Record;
use std::fmt::Write;

/// A row for each step; empty without any. For a contender with several variants, the one with the
/// least memory is shown. The last ratio counts results too: below 1, this library takes less.
pub(super) fn markdown(records: &[Record]) -> String {
    let all: Vec<&Footprint> = records.iter().flat_map(|r| &r.footprints).collect();
    if all.is_empty() {
        return String::new();
    }
    let others: Vec<&str> = in_order(all.iter().map(|f| f.contender.as_str()))
        .into_iter()
        .filter(|n| !is_ours(n))
        .collect();
    let mut text = String::from(
        "\n| step | parameters | state | arena | bound | arena ÷ bound | naive order | \
         arena ÷ naive | compiling | planning |",
    );
    let mut rule = format!("|---|{}", "---:|".repeat(9));
    for other in &others {
        _ = write!(text, " {other} | wengert ÷ {other} |");
        rule.push_str("---:|---:|");
    }
    _ = writeln!(text, "\n{rule}");
    for case in in_order(all.iter().map(|f| f.case.as_str())) {
        let least = |name: &str| {
            all.iter()
                .filter(|f| f.case == case && f.contender == name)
                .min_by_key(|f| f.bytes())
                .copied()
        };
        let ours = least(OURS);
        let Some(any) = ours.or_else(|| all.iter().find(|f| f.case == case).copied()) else {
            continue;
        };
        let of_ours =
            |show: &dyn Fn(&Footprint) -> Option<String>| ours.and_then(show).unwrap_or_default();
        let by = |f: &Footprint, whole: Option<u64>| whole.map(|whole| ratio(f.arena_bytes, whole));
        _ = write!(text, "| {case} | {} | {} |", any.parameters, size(any.state_bytes));
        let cells = [
            of_ours(&|f| Some(size(f.arena_bytes))),
            of_ours(&|f| f.bound_bytes.map(size)),
            of_ours(&|f| by(f, f.bound_bytes)),
            of_ours(&|f| f.naive_bytes.map(size)),
            of_ours(&|f| by(f, f.naive_bytes)),
            of_ours(&|f| Some(duration(f.compile_seconds))),
            of_ours(&|f| f.planning.map(|share| format!("{:.0}%", 100.0 * share))),
        ];
        _ = write!(text, " {} |", cells.join(" | "));
        for other in &others {
            let theirs = least(other);
            let shown = theirs.map_or(String::new(), |f| size(f.bytes()));
            let compared =
                ours.zip(theirs).map_or(String::new(), |(a, b)| ratio(a.bytes(), b.bytes()));
            _ = write!(text, " {shown} | {compared} |");
        }
        text.push('\n');
    }
    text
}

/// A quotient with enough digits to show 0.01.
fn ratio(part: u64, whole: u64) -> String {
    format!("{:.3}", part as f64 / whole as f64)
}

/// Bytes with a suitable unit.
fn size(bytes: u64) -> String {
    match bytes as f64 {
        b if b >= 1e9 => format!("{:.3} GB", b / 1e9),
        b if b >= 1e6 => format!("{} MB", figures(b / 1e6)),
        b => format!("{} kB", figures(b / 1e3)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::record;

    #[test]
    fn footprints_have_a_table() {
        let footprint = |contender: &str, way: &str, arena: u64| {
            let known = contender == OURS;
            Footprint {
                case: "step gpt".into(),
                contender: contender.into(),
                device: "cpu".into(),
                way: way.into(),
                parameters: 1000,
                state_bytes: 12_000,
                arena_bytes: arena,
                result_bytes: 4,
                bound_bytes: known.then_some(2_000_000),
                naive_bytes: known.then_some(4_000_000_000),
                compile_seconds: 0.25,
                planning: known.then_some(0.5),
            }
        };
        let mut record = record("ours", vec![]);
        assert_eq!(markdown(std::slice::from_ref(&record)), "");
        record.footprints = vec![
            footprint("jax", "a", 4_000_000),
            footprint(OURS, "", 2_020_000),
            footprint("jax", "b", 3_999_999),
        ];
        let expected = "
| step | parameters | state | arena | bound | arena ÷ bound | naive order | arena ÷ naive | compiling | planning | jax | wengert ÷ jax |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
| step gpt | 1000 | 12.0 kB | 2.02 MB | 2.00 MB | 1.010 | 4.000 GB | 0.001 | 250 ms | 50% | 4.00 MB | 0.505 |
";
        assert_eq!(markdown(&[record]), expected);
    }
}
