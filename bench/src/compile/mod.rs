//! Scaling of compile time: the time per equation in graphs of 1,000, 10,000 and 100,000
//! equations.
//!
//! Every pass is at most O(n log n) in the number of equations. A quadratic pass is invisible in
//! small tests and dominates on unrolled graphs. So graphs of several [shapes](graphs::Form) are
//! compiled at three sizes, and the times per equation must not differ by a factor above
//! [`FLAT`]. The compiler has no clock: [`passes`] computes the time of each pass from its
//! `tracing` spans, so that a failure shows the pass. A figure is processor time, the least of
//! several rounds. Graphs are compiled, not run.

pub mod graphs;
pub mod passes;

use graphs::{Form, count};
use passes::{Clock, processor_time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use wengert::pipeline::{Options, compile};
use wengert::{Binding, Result, target};

/// Greatest allowed ratio of the times per equation.
pub const FLAT: f64 = 2.0;

/// Numbers of equations.
pub const SIZES: [usize; 3] = [1_000, 10_000, 100_000];

/// Compile times of one graph.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// Equations, those of regions included.
    pub equations: usize,
    /// Time of making the graph: tracing, differentiation, tidying.
    pub traced: Duration,
    /// From the graph to the verified plan.
    pub compiled: Duration,
    /// The part of each pass; the entry `` is the time outside passes.
    pub passes: BTreeMap<String, Duration>,
}

impl Compiled {
    /// Microseconds per equation.
    fn each(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / self.equations as f64
    }
}

/// Graphs of one shape, by size.
#[derive(Clone, Debug)]
pub struct Scaling {
    /// The shape.
    pub form: Form,
    /// The times of each graph, in the order of the requested sizes.
    pub graphs: Vec<Compiled>,
}

impl Scaling {
    /// Compiles graphs of a shape, each in `rounds` rounds.
    ///
    /// Errors: a graph cannot be made or compiled.
    pub fn measure(form: Form, sizes: &[usize], rounds: usize) -> Result<Scaling> {
        let graphs = sizes.iter().map(|size| best(form, *size, rounds)).collect::<Result<_>>()?;
        Ok(Scaling { form, graphs })
    }

    /// The ratio of the greatest to the least time per equation.
    pub fn spread(&self) -> f64 {
        let each = self.graphs.iter().map(|g| g.each(g.compiled));
        each.clone().fold(0.0, f64::max) / each.fold(f64::INFINITY, f64::min)
    }
}

/// The fastest of several rounds.
fn best(form: Form, size: usize, rounds: usize) -> Result<Compiled> {
    let began = processor_time();
    let program = form.program(size)?;
    let traced = processor_time() - began;
    let target = target("cpu")?;
    let (binding, options) = (Binding::new(), Options::default());
    let mut best: Option<Compiled> = None;
    for _ in 0..rounds.max(1) {
        let clock = Arc::new(Clock::default());
        let began = processor_time();
        let plan = tracing::subscriber::with_default(clock.clone(), || {
            compile(&program, "f", &binding, &target, &options)
        })?;
        let compiled = processor_time() - began;
        drop(plan);
        let mut passes = clock.total();
        let named = passes.values().sum();
        passes.insert(String::new(), compiled.saturating_sub(named));
        if best.as_ref().is_none_or(|b| compiled < b.compiled) {
            best = Some(Compiled { equations: count(&program), traced, compiled, passes });
        }
    }
    Ok(best.expect("there is at least one round"))
}

/// All figures of the shapes in Markdown.
pub fn summary(all: &[Scaling]) -> String {
    let mut lines = vec![
        "| graph | equations | traced, µs each | compiled, ms | µs each | greatest / least |"
            .to_owned(),
        "|---|--:|--:|--:|--:|--:|".to_owned(),
    ];
    for scaling in all {
        for graph in &scaling.graphs {
            lines.push(format!(
                "| {} | {} | {:.2} | {:.1} | {:.2} | {:.2} |",
                scaling.form.name(),
                graph.equations,
                graph.each(graph.traced),
                graph.compiled.as_secs_f64() * 1e3,
                graph.each(graph.compiled),
                scaling.spread(),
            ));
        }
    }
    lines.join("\n") + "\n"
}

/// The passes of one shape in Markdown.
pub fn passes_of(scaling: &Scaling) -> String {
    let sizes: Vec<String> = scaling.graphs.iter().map(|g| g.equations.to_string()).collect();
    let mut lines = vec![
        format!("{}: {}; µs for each equation\n", scaling.form.name(), scaling.form.description()),
        format!("| pass | {} |", sizes.join(" | ")),
        format!("|---|{}", "--:|".repeat(sizes.len())),
    ];
    let names: BTreeSet<&String> = scaling.graphs.iter().flat_map(|g| g.passes.keys()).collect();
    for name in names {
        let time = |g: &Compiled| g.each(g.passes.get(name).copied().unwrap_or_default());
        let times: Vec<String> = scaling.graphs.iter().map(|g| format!("{:.3}", time(g))).collect();
        let name = if name.is_empty() { "(no pass)" } else { name };
        lines.push(format!("| {name} | {} |", times.join(" | ")));
    }
    lines.join("\n") + "\n\n"
}
