//! The view of a training run: progress, the curve of the loss, the numbers of the last step,
//! throughput, the last evaluation, kernels.
//!
//! The trainer's events are its only source ([`Event`]). Text is made at most ten times a second,
//! and fits the terminal's width at that moment.

use super::curve::Curve;
use super::kernels::{EVERY, KernelShares};
use super::{Live, WIDEST};
use crate::trace::resident;
use console::Style;
use indicatif::ProgressBar;
use std::time::{Duration, Instant};
use wengert::core::plan::Bytes;
use wengert::train::event::rate;
use wengert::train::{Event, StepRecord};

/// Least time between pictures.
const FRAME: Duration = Duration::from_millis(100);
/// Rows of the curve, where the terminal has [`TALL`] rows.
const ROWS: usize = 3;
/// Rows of a terminal for a curve of more than one row.
const TALL: usize = 16;
/// Columns of the scale of the curve.
const SCALE: usize = 9;
/// Steps whose throughput is averaged.
const RECENT: usize = 64;

/// The view of a training run.
#[derive(Debug)]
pub struct TrainingView {
    live: Live,
    bar: Option<ProgressBar>,
    progress: Progress,
    drawn: Option<Instant>,
}

impl TrainingView {
    /// The view at this place.
    pub fn new(live: &Live) -> TrainingView {
        TrainingView {
            live: live.clone(),
            bar: live.lines(),
            progress: Progress::default(),
            drawn: None,
        }
    }

    /// Takes an event, and draws it if it is time.
    pub fn observe(&mut self, event: &Event<'_>) {
        let Some(bar) = &self.bar else { return };
        self.progress.observe(event);
        if let Event::Step(record) = event {
            self.live.sampler().switch(record.step.is_multiple_of(EVERY));
        }
        if self.drawn.is_some_and(|drawn| drawn.elapsed() < FRAME) {
            return;
        }
        self.drawn = Some(Instant::now());
        self.progress.kernels = self.live.sampler().shares();
        self.progress.memory = resident();
        let (rows, columns) = super::size();
        let painted = console::colors_enabled_stderr();
        // The last column stays free: some terminals go to the next line at once.
        let columns = columns.saturating_sub(1).min(WIDEST);
        let lines = self.progress.lines(rows.saturating_sub(1), columns, painted);
        // The echo `^C` of an interrupt moves the terminal on by a line, so that one line less is
        // erased. The first one is empty.
        bar.set_message(format!("\n{}", lines.join("\n")));
    }

    /// Erases the view.
    pub fn end(self) {
        self.live.sampler().switch(false);
        if let Some(bar) = &self.bar {
            self.live.erase(bar);
        }
    }
}

/// What is known of the run.
#[derive(Debug, Default)]
struct Progress {
    step: u64,
    total: u64,
    per_epoch: u64,
    /// When the first step of this process was done, and its number. The time of the first step
    /// includes compilation.
    first: Option<(Instant, u64)>,
    losses: Curve,
    last: Option<StepRecord>,
    /// Examples and time of the last steps.
    recent: Vec<(u64, Duration)>,
    /// The last evaluation: after which step, and its metrics.
    evaluation: Option<(u64, Vec<(String, f64)>)>,
    kernels: KernelShares,
    /// Resident bytes of the process.
    memory: Option<u64>,
}

impl Progress {
    fn observe(&mut self, event: &Event<'_>) {
        match event {
            Event::Start { step, total, steps_per_epoch } => {
                (self.step, self.total, self.per_epoch) = (*step, *total, *steps_per_epoch);
            }
            Event::Step(record) => {
                self.step = record.step;
                self.first.get_or_insert_with(|| (Instant::now(), record.step));
                self.losses.push(record.loss);
                if self.recent.len() == RECENT {
                    self.recent.remove(0);
                }
                self.recent.push((record.examples, record.time));
                self.last = Some((*record).clone());
            }
            Event::Evaluation { step, metrics, .. } => {
                self.evaluation = Some((*step, metrics.to_vec()));
            }
            _ => {}
        }
    }

    /// Time that the remaining steps take at the pace so far, evaluations included.
    fn left(&self) -> Option<Duration> {
        let (began, first) = self.first?;
        let done = self.step.checked_sub(first).filter(|done| *done > 0)?;
        let of_step = began.elapsed().as_secs_f64() / done as f64;
        Duration::try_from_secs_f64(of_step * self.total.saturating_sub(self.step) as f64).ok()
    }

    /// The lines of the view, each of at most `columns` characters beside codes of colours.
    fn lines(&self, rows: usize, columns: usize, painted: bool) -> Vec<String> {
        let style = |style: Style| style.for_stderr().force_styling(painted);
        let (accent, faint) = (style(Style::new().cyan()), style(Style::new().dim()));
        let mut lines = vec![self.progress(columns, &accent)];
        if let Some((least, greatest)) = self.losses.range() {
            let height = if rows >= TALL { ROWS } else { 1 };
            let wide = columns.saturating_sub(SCALE + 1);
            for (row, line) in self.losses.lines(height, wide).into_iter().enumerate() {
                let scale = match row {
                    _ if wide == 0 => break,
                    0 if height > 1 => format!("{greatest:>SCALE$.4}"),
                    _ if row + 1 == height => format!("{least:>SCALE$.4}"),
                    _ => " ".repeat(SCALE),
                };
                // A scale that has no room for its digits is left out.
                if scale.chars().count() > SCALE {
                    lines.push(format!("{} {}", " ".repeat(SCALE), accent.apply_to(line)));
                } else {
                    lines.push(format!("{} {}", faint.apply_to(scale), accent.apply_to(line)));
                }
            }
        }
        lines.extend(wrapped(&self.numbers(), columns));
        lines.extend(wrapped(&self.throughput(), columns));
        if let Some((step, metrics)) = &self.evaluation {
            let mut parts = vec![format!("evaluation at step {step}:")];
            parts.extend(metrics.iter().map(|(name, value)| format!("{name} {value:.4}")));
            lines.extend(wrapped(&parts, columns));
        }
        if !self.kernels.0.is_empty() {
            let mut parts = vec!["time by kernel:".to_owned()];
            let share = |(name, share): &(String, f64)| format!("{name} {:.0} %", 100.0 * share);
            parts.extend(self.kernels.0.iter().take(3).map(share));
            lines.extend(wrapped(&parts, columns));
        }
        // What does not fit the terminal cannot be erased from it.
        lines.truncate(rows.saturating_sub(1).max(1));
        lines
    }

    /// Epoch, bar, steps and the time that is left, or as much of it as there is room for.
    fn progress(&self, columns: usize, accent: &Style) -> String {
        let Progress { step, total, per_epoch, .. } = self;
        let epochs = total.div_ceil((*per_epoch).max(1));
        let epoch = step.saturating_sub(1) / (*per_epoch).max(1) + 1;
        let before = if epochs > 1 { format!("epoch {epoch}/{epochs} ") } else { String::new() };
        let left = self.left().map(|left| format!(" {} left", clock(left))).unwrap_or_default();
        let after = format!("{step}/{total}{left}");
        let taken = before.chars().count() + 1 + after.chars().count();
        let wide = columns.saturating_sub(taken).min(40);
        if wide >= 4 {
            let done = (wide as u64 * step / (*total).max(1)) as usize;
            let bar = accent.apply_to("━".repeat(done));
            return format!("{before}{bar}{} {after}", "─".repeat(wide - done));
        }
        let percent = format!("{} %{left}", 100 * step / (*total).max(1));
        let narrower = [format!("{before}{after}"), after, percent];
        let fits = |text: &String| text.chars().count() <= columns;
        match narrower.iter().find(|text| fits(text)) {
            Some(text) => text.clone(),
            None => cut(format!("{step}/{total}"), columns),
        }
    }

    /// The numbers of the last step.
    fn numbers(&self) -> Vec<String> {
        let Some(record) = &self.last else { return vec![] };
        let mut parts = vec![format!("loss {:.4}", record.loss)];
        parts.extend(record.metrics.iter().map(|(name, value)| format!("{name} {value:.4}")));
        parts.extend(record.grad_norm.map(|norm| format!("gradient norm {norm:.4}")));
        parts.extend(record.learning_rate.map(|rate| format!("learning rate {rate:.3e}")));
        parts.extend(record.loss_scale.map(|scale| format!("loss scale {scale}")));
        if record.skipped {
            parts.push("skipped".into());
        }
        parts
    }

    fn throughput(&self) -> Vec<String> {
        if self.recent.is_empty() {
            return vec![];
        }
        let examples = self.recent.iter().map(|(examples, _)| examples).sum();
        let time: Duration = self.recent.iter().map(|(_, time)| *time).sum();
        let of_step = 1e3 * time.as_secs_f64() / self.recent.len() as f64;
        let mut parts = vec![
            format!("{:.0} examples/s", rate(examples, time)),
            format!("{of_step:.3} ms/step"),
        ];
        parts.extend(self.memory.map(|bytes| format!("{} resident", Bytes(bytes))));
        parts
    }
}

/// Parts in lines of at most `columns` characters.
fn wrapped(parts: &[String], columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![];
    for part in parts {
        let part = cut(part.clone(), columns);
        match lines.last_mut() {
            Some(line) if line.chars().count() + 2 + part.chars().count() <= columns => {
                *line += "  ";
                *line += &part;
            }
            _ => lines.push(part),
        }
    }
    lines
}

/// At most `columns` characters of a text.
fn cut(text: String, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text;
    }
    text.chars().take(columns.saturating_sub(1)).chain(['…']).take(columns).collect()
}

/// `1:02:03`, or `2:03` below an hour.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(step: u64) -> StepRecord {
        StepRecord {
            step,
            epoch: 0,
            loss: 2.0 / step as f64,
            metrics: vec![("accuracy".into(), 0.75)],
            grad_norm: Some(0.5),
            learning_rate: Some(1e-3),
            loss_scale: None,
            skipped: false,
            examples: 32,
            time: Duration::from_millis(2),
            waited: Duration::ZERO,
        }
    }

    fn progress() -> Progress {
        let mut progress = Progress::default();
        progress.observe(&Event::Start { step: 0, total: 90, steps_per_epoch: 45 });
        for step in 1..=60 {
            progress.observe(&Event::Step(&record(step)));
        }
        let metrics = [("loss".to_owned(), 0.5), ("accuracy".to_owned(), 0.875)];
        progress.observe(&Event::Evaluation {
            step: 45,
            epoch: 0,
            set: None,
            metrics: &metrics,
            matrices: &[],
        });
        progress.kernels =
            KernelShares(vec![("gemm 32x128x64".into(), 0.6), ("n3 adamw".into(), 0.4)]);
        progress.memory = Some(64 << 20);
        progress.first = None;
        progress
    }

    #[test]
    fn the_view_of_a_wide_terminal() {
        let lines = progress().lines(40, 79, false);
        let bar = format!("epoch 2/2 {}{} 60/90", "━".repeat(26), "─".repeat(14));
        assert_eq!(lines[0], bar);
        assert!(lines[1].starts_with("   2.0000 █"), "{lines:#?}");
        assert!(lines[3].starts_with("   0.0333 █") && lines[3].ends_with('▁'), "{lines:#?}");
        let numbers = "loss 0.0333  accuracy 0.7500  gradient norm 0.5000  learning rate 1.000e-3";
        assert_eq!(lines[4], numbers);
        assert_eq!(lines[5], "16000 examples/s  2.000 ms/step  64.00 MiB resident");
        assert_eq!(lines[6], "evaluation at step 45:  loss 0.5000  accuracy 0.8750");
        assert_eq!(lines[7], "time by kernel:  gemm 32x128x64 60 %  n3 adamw 40 %");
        assert_eq!(lines.len(), 8);
    }

    #[test]
    fn lines_fit_any_terminal() {
        for columns in 1..130 {
            for rows in [2, 5, 24] {
                let lines = progress().lines(rows, columns, false);
                let widest = lines.iter().map(|line| line.chars().count()).max().unwrap();
                assert!(widest <= columns && lines.len() < rows, "{columns}: {lines:#?}");
            }
        }
        assert_eq!(progress().lines(10, 39, false).iter().filter(|l| l.contains('▁')).count(), 1);
    }

    /// Colours change no character.
    #[test]
    fn colours_are_codes_beside_the_text() {
        let painted = progress().lines(40, 79, true);
        assert!(painted[0].contains("\u{1b}[36m"), "{painted:?}");
        let plain: Vec<_> =
            painted.iter().map(|line| console::strip_ansi_codes(line).into_owned()).collect();
        assert_eq!(plain, progress().lines(40, 79, false));
        let codes = |lines: &[String]| lines.iter().any(|line| line.contains('\u{1b}'));
        assert!(codes(&painted) && !codes(&plain));
    }

    #[test]
    fn times_are_written_as_on_a_clock() {
        let text = |seconds| clock(Duration::from_secs(seconds));
        assert_eq!([text(5), text(65), text(3725)], ["0:05", "1:05", "1:02:05"]);
        assert_eq!(progress().lines(10, 16, false)[0], "epoch 2/2 60/90");
        assert_eq!(progress().lines(10, 12, false)[0], "60/90");
        assert_eq!(progress().lines(10, 4, false)[0], "66 %");
        let mut progress = progress();
        let before = Instant::now().checked_sub(Duration::from_secs(30)).unwrap();
        progress.first = Some((before, 1));
        // 59 steps took 30 s, and 30 are left.
        assert!(progress.lines(40, 79, false)[0].ends_with(" 60/90 0:15 left"));
    }
}
