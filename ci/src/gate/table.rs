//! The report as a table and as JSON.

use std::fmt::Write;

use serde_json::json;
use wengert_cuda::architecture::Architecture;

use super::{Measure, Report};

/// Kernels shown by name: those of the lowest occupancy.
const SHOWN: usize = 20;

impl Report {
    fn of(&self, architecture: Architecture) -> Vec<&Measure> {
        self.measures.iter().filter(|m| m.architecture == architecture).collect()
    }

    /// One row per architecture, the kernels of the lowest occupancy, then failures and allowed
    /// spills.
    pub fn markdown(&self) -> String {
        let mut text = String::from("# Kernels as ptxas assembles them\n\n");
        text += "| architecture | kernels | registers, median | most | shared bytes, most | \
                 stack bytes, most | with spills | occupancy, median | least |\n";
        text += "|---|---|---|---|---|---|---|---|---|\n";
        for architecture in Architecture::ALL {
            let rows = self.of(architecture);
            if rows.is_empty() {
                continue;
            }
            let column = |f: &dyn Fn(&Measure) -> u32| {
                let mut values: Vec<_> = rows.iter().map(|m| f(m)).collect();
                values.sort();
                values
            };
            let registers = column(&|m| m.registers);
            let percent = column(&percent);
            let most = |f: &dyn Fn(&Measure) -> u32| column(f).last().copied().unwrap_or(0);
            let spilled = rows.iter().filter(|m| m.spills != (0, 0)).count();
            writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {spilled} | {} % | {} % |",
                architecture.name(),
                rows.len(),
                registers[registers.len() / 2],
                registers[registers.len() - 1],
                most(&|m| m.shared),
                most(&|m| m.stack),
                percent[percent.len() / 2],
                percent[0],
            )
            .expect("a string takes all text");
        }
        text += "\n## The lowest occupancies\n\n";
        text += "| module | kernel | architecture | threads | registers | shared | spills | \
                 occupancy | limit |\n";
        text += "|---|---|---|---|---|---|---|---|---|\n";
        let mut rows: Vec<_> = self.measures.iter().collect();
        rows.sort_by_key(|m| percent(m));
        // Each kernel once, on the architecture of its lowest occupancy.
        let mut seen = std::collections::BTreeSet::new();
        for m in rows.into_iter().filter(|m| seen.insert(&m.kernel)).take(SHOWN) {
            let limit = m
                .occupancy
                .map_or("does not fit".into(), |o| format!("{:?}", o.limit).to_lowercase());
            writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} / {} | {} % | {limit} |",
                m.module,
                m.kernel,
                m.architecture.name(),
                m.threads.map_or("open".into(), |t| t.to_string()),
                m.registers,
                m.shared,
                m.spills.0,
                m.spills.1,
                percent(m),
            )
            .expect("a string takes all text");
        }
        for (title, lines) in [("Failures", &self.failures), ("Allowed", &self.allowed)] {
            if !lines.is_empty() {
                writeln!(text, "\n## {title}\n").expect("a string takes all text");
                lines
                    .iter()
                    .for_each(|line| text += &format!("- {}\n", line.replace('\n', "\n  ")));
            }
        }
        text
    }

    /// Every measure, failures and allowed spills.
    pub fn json(&self) -> String {
        let measures = self.measures.iter().map(|m| {
            json!({
                "module": m.module,
                "kernel": m.kernel,
                "architecture": m.architecture.name(),
                "threads": m.threads,
                "registers": m.registers,
                "shared": m.shared,
                "stack": m.stack,
                "spill_stores": m.spills.0,
                "spill_loads": m.spills.1,
                "blocks": m.occupancy.map(|o| o.blocks),
                "occupancy": percent(m),
            })
        });
        let all = json!({
            "kernels": measures.collect::<Vec<_>>(),
            "failures": self.failures,
            "allowed": self.allowed,
        });
        format!("{all:#}\n")
    }
}

fn percent(m: &Measure) -> u32 {
    m.occupancy.map_or(0, |o| o.percent())
}
