//! `--trace FILE`: a timeline of a command, for Perfetto and similar viewers.
//!
//! Every part of the program marks what it does by spans of `tracing`. A [`Recorder`] listens to
//! them and writes the file when the command ends, also if it fails: the file then has the events
//! up to the failure, at least those of the command itself.
//!
//! | span | of | its name in the timeline |
//! |---|---|---|
//! | `command` | all of it | the subcommand |
//! | `read` | a file | the path |
//! | `compile` | the compiler and the preparation of kernels | the function |
//! | `pass` | the compiler | the pass |
//! | `step`, `evaluation`, `checkpoint` | a training run | the same, and its number |
//! | `run` | a function | the function |
//! | `kernel` | a step of a plan | the nest, or the call with its extents |
//! | `tasks` | a thread's share of a kernel | the kernel's |
//!
//! There is also a counter of the resident memory of the process, taken as steps, runs and passes
//! end. A span costs the time of a check if there is no recorder.

mod json;
mod perfetto;

use std::cell::Cell;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;
use wengert::{Diagnostic, atomic, diagnostic};

/// Most events that are kept, of some 30 bytes each.
const MOST: usize = 4 << 20;

/// The formats of timelines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    /// Chrome's: JSON.
    Json,
    /// Perfetto's: protobuf.
    Perfetto,
}

/// What happens on a thread at a time.
#[derive(Clone, PartialEq, Debug)]
struct Event {
    /// Nanoseconds since the beginning.
    time: u64,
    thread: u64,
    what: What,
}

#[derive(Clone, PartialEq, Debug)]
enum What {
    /// A span of a kind begins; its name.
    Begin(&'static str, Arc<str>),
    /// The last span that has begun on the thread ends.
    End,
    /// The resident memory, in bytes.
    Memory(u64),
}

/// All events so far, in the order in which they were recorded.
#[derive(Debug, Default)]
struct Timeline {
    events: Vec<Event>,
    /// Names of the threads that have events, by their numbers.
    threads: Vec<(u64, String)>,
    /// Events beyond the most that are kept.
    lost: u64,
    /// The kernel that runs.
    kernel: Option<Arc<str>>,
}

/// Records spans, and writes them to a file.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    format: Format,
    began: Instant,
    timeline: Mutex<Timeline>,
}

impl Recorder {
    /// A recorder that writes to a file ending in .json or .pftrace.
    ///
    /// # Errors
    /// The name has another ending, or the file cannot be written.
    pub fn new(path: &Path) -> Result<Recorder, Diagnostic> {
        let format = match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => Format::Json,
            Some("pftrace") => Format::Perfetto,
            _ => {
                return Err(diagnostic!("`{}` is no name for a trace", path.display())
                    .help("names of traces end in .json or .pftrace"));
            }
        };
        atomic::can_write(path)?;
        Ok(Recorder(Arc::new(Shared {
            path: path.into(),
            format,
            began: Instant::now(),
            timeline: Mutex::default(),
        })))
    }

    /// The recorder as a layer of a subscriber that has others: it enables its own spans only.
    pub fn filtered<S>(self) -> impl Layer<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        self.with_filter(filter_fn(|metadata| {
            metadata.is_span() && KINDS.contains(&metadata.name())
        }))
    }

    /// Writes the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self) -> Result<Written, Diagnostic> {
        let Shared { path, format, .. } = &*self.0;
        let timeline = self.timeline();
        let bytes = match format {
            Format::Json => json::encoded(&timeline),
            Format::Perfetto => perfetto::encoded(&timeline),
        };
        atomic::write_bytes(path, &bytes)?;
        Ok(Written { path: path.clone(), events: timeline.events.len(), lost: timeline.lost })
    }

    fn timeline(&self) -> MutexGuard<'_, Timeline> {
        // A thread that panicked has added whole events.
        self.0.timeline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        // A command runs for less than 500 years.
        self.0.began.elapsed().as_nanos() as u64
    }
}

/// What was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    path: PathBuf,
    events: usize,
    lost: u64,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trace of {} events written to {}", self.events, self.path.display())?;
        match self.lost {
            0 => Ok(()),
            lost => write!(f, "; {lost} later ones are left out"),
        }
    }
}

impl Timeline {
    fn push(&mut self, event: Event) {
        if self.events.len() == MOST {
            self.lost += 1;
            return;
        }
        if !self.threads.iter().any(|(number, _)| *number == event.thread) {
            let name = std::thread::current().name().unwrap_or("thread").to_owned();
            self.threads.push((event.thread, name));
        }
        self.events.push(event);
    }
}

/// A number of this thread, from 1 on.
fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// The name of a span: its field `name`, and its field `number`.
#[derive(Default)]
struct Named {
    name: Option<String>,
    number: Option<u64>,
}

impl Visit for Named {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "name" {
            self.name = Some(format!("{value:?}"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "name" {
            self.name = Some(value.to_owned());
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "number" {
            self.number = Some(value);
        }
    }
}

/// The name that a span has, kept with it.
struct Name(Arc<str>);

/// The spans that the timeline has.
const KINDS: [&str; 10] = [
    "command",
    "read",
    "compile",
    "pass",
    "step",
    "evaluation",
    "checkpoint",
    "run",
    "kernel",
    "tasks",
];
/// Those of them whose end samples the memory.
const SAMPLED: [&str; 6] = ["read", "compile", "pass", "step", "evaluation", "run"];

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut named = Named::default();
        attributes.record(&mut named);
        let kind = attributes.metadata().name();
        let name = match named {
            Named { name: Some(name), .. } => name,
            Named { number: Some(number), .. } => format!("{kind} {number}"),
            Named { .. } => kind.to_owned(),
        };
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(Name(name.into()));
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let extensions = span.extensions();
        let Some(Name(name)) = extensions.get::<Name>() else { return };
        let kind = span.name();
        let mut timeline = self.timeline();
        let name = match (kind, &timeline.kernel) {
            ("tasks", Some(kernel)) => kernel.clone(),
            _ => name.clone(),
        };
        if kind == "kernel" {
            timeline.kernel = Some(name.clone());
        }
        timeline.push(Event { time: self.now(), thread: thread(), what: What::Begin(kind, name) });
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let kind = span.name();
        let memory = if SAMPLED.contains(&kind) { resident() } else { None };
        let mut timeline = self.timeline();
        let (time, thread) = (self.now(), thread());
        timeline.push(Event { time, thread, what: What::End });
        if let Some(bytes) = memory {
            timeline.push(Event { time, thread, what: What::Memory(bytes) });
        }
    }
}

/// The resident memory of this process, where the system tells it.
pub(crate) fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(1024 * kibibytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::prelude::*;

    fn recorded(name: &str) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        let recorder = Recorder::new(&path).unwrap();
        let subscriber = tracing_subscriber::registry().with(recorder.clone().filtered());
        tracing::subscriber::with_default(subscriber, || {
            let _step = tracing::debug_span!("step", number = 3u64).entered();
            let _other = tracing::debug_span!("unknown", name = "nothing").entered();
            let _kernel = tracing::trace_span!("kernel", name = "gemm 2x3").entered();
            let _tasks = tracing::trace_span!("tasks").entered();
        });
        let written = recorder.write().unwrap();
        assert_eq!(written.lost, 0);
        std::fs::read(path).unwrap()
    }

    #[test]
    fn spans_are_nested_and_named() {
        let json: serde_json::Value = serde_json::from_slice(&recorded("t.json")).unwrap();
        let all = json["traceEvents"].as_array().unwrap();
        let phases: String = all.iter().filter_map(|e| e["ph"].as_str()).collect();
        let counts = phases.matches('C').count();
        assert_eq!(phases.replace(['C', 'M'], ""), "BBBEEE");
        assert_eq!(counts, usize::from(resident().is_some()));
        let names: Vec<&str> = all
            .iter()
            .filter(|event| event["ph"] == "B")
            .filter_map(|event| event["name"].as_str())
            .collect();
        assert_eq!(names, ["step 3", "gemm 2x3", "gemm 2x3"]);
        let times: Vec<f64> = all.iter().filter_map(|event| event["ts"].as_f64()).collect();
        assert!(times.is_sorted());
    }

    #[test]
    fn both_formats_have_the_same_spans() {
        let spans = perfetto::spans(&recorded("t.pftrace"));
        let wanted = ["begin step 3", "begin gemm 2x3", "begin gemm 2x3", "end", "end", "end"];
        assert_eq!(spans, wanted);
    }

    #[test]
    fn other_names_are_refused() {
        let error = Recorder::new(Path::new("t.txt")).unwrap_err();
        assert!(error.message.contains("no name for a trace"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let folder_of_name = folder.path().join("t.json");
        std::fs::create_dir(&folder_of_name).unwrap();
        assert!(Recorder::new(&folder_of_name).is_err());
    }
}
