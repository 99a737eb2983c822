//! The phase that a command is in, shown once it takes over a second: reading files, compiling,
//! evaluating, writing a checkpoint.
//!
//! [`Phases`] is a layer that follows spans, the same that a trace has ([`crate::trace`]). A thread
//! draws the innermost phase and its seconds, so a single pass that takes long is seen as well.

use super::Live;
use indicatif::ProgressBar;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// Spans that are phases, each with its text.
const PHASES: [(&str, &str); 5] = [
    ("read", "reading"),
    ("compile", "compiling"),
    ("pass", ""),
    ("evaluation", "evaluating"),
    ("checkpoint", "writing a checkpoint"),
];

/// Time until a phase is shown.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between pictures.
const FRAME: Duration = Duration::from_millis(100);

/// Follows the phases of a command.
#[derive(Clone, Debug)]
pub struct Phases(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    live: Live,
    /// The phases that have begun and not ended, the innermost last.
    open: Vec<Arc<str>>,
    /// When the outermost of them began.
    since: Option<Instant>,
    /// The picture, if there is one.
    bar: Option<ProgressBar>,
}

impl Phases {
    /// Follows phases, and draws them at this place.
    pub fn new(live: &Live) -> Phases {
        let state = State { live: live.clone(), open: vec![], since: None, bar: None };
        let phases = Phases(Arc::new(Mutex::new(state)));
        if live.is_shown() {
            let state = Arc::downgrade(&phases.0);
            // Without the thread nothing is drawn; the command works all the same.
            let _ = std::thread::Builder::new().name("phases".into()).spawn(move || draw(&state));
        }
        phases
    }

    /// The layer, as one of a subscriber that has others.
    pub fn filtered<S>(self) -> impl Layer<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        self.with_filter(filter_fn(|metadata| {
            metadata.is_span() && PHASES.iter().any(|(name, _)| *name == metadata.name())
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Draws until the phases are dropped.
fn draw(state: &Weak<Mutex<State>>) {
    loop {
        std::thread::sleep(FRAME);
        let Some(state) = state.upgrade() else { return };
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(time) = state.since.map(|since| since.elapsed()).filter(|t| *t >= PATIENCE) else {
            continue;
        };
        let text = text(&state.open, time, super::size().1);
        if state.bar.is_none() {
            state.bar = state.live.lines();
        }
        if let Some(bar) = &state.bar {
            bar.set_message(text);
        }
    }
}

/// `compiling @train_step: fuse, 3 s`, in at most `columns` columns.
fn text(open: &[Arc<str>], time: Duration, columns: usize) -> String {
    let seconds = format!(", {} s", time.as_secs());
    let names: Vec<&str> = open.iter().map(|name| &**name).collect();
    let text = names.join(": ");
    let room = columns.saturating_sub(seconds.chars().count() + 1);
    let text: String = match text.chars().count() > room {
        true => text.chars().take(room.saturating_sub(1)).chain(['…']).take(room).collect(),
        false => text,
    };
    text + &seconds
}

/// The text of a phase, kept with its span.
struct Text(Arc<str>);

/// The field `name` of a span.
struct Name(String);

impl Visit for Name {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "name" {
            self.0 = format!("{value:?}");
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "name" {
            self.0 = value.to_owned();
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Phases {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut name = Name(String::new());
        attributes.record(&mut name);
        let kind = attributes.metadata().name();
        let what = PHASES.iter().find(|(phase, _)| *phase == kind).map_or("", |(_, what)| what);
        let text = format!("{what} {}", name.0);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(Text(text.trim().into()));
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let extensions = span.extensions();
        let Some(Text(text)) = extensions.get::<Text>() else { return };
        let mut state = self.state();
        state.open.push(text.clone());
        state.since.get_or_insert_with(Instant::now);
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let extensions = span.extensions();
        let Some(Text(text)) = extensions.get::<Text>() else { return };
        let mut state = self.state();
        if let Some(at) = state.open.iter().rposition(|open| open == text) {
            state.open.remove(at);
        }
        if state.open.is_empty() {
            state.since = None;
            if let Some(bar) = state.bar.take() {
                state.live.erase(&bar);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::prelude::*;

    #[test]
    fn phases_are_followed() {
        let phases = Phases::new(&Live::default());
        let open = || phases.state().open.join(": ");
        let subscriber = tracing_subscriber::registry().with(phases.clone().filtered());
        tracing::subscriber::with_default(subscriber, || {
            assert_eq!((open(), phases.state().since), (String::new(), None));
            let compile = tracing::debug_span!("compile", name = "step").entered();
            let _other = tracing::debug_span!("run", name = "nothing").entered();
            let since = phases.state().since;
            {
                let _pass = tracing::debug_span!("pass", name = "fuse").entered();
                assert_eq!((open(), phases.state().since), ("compiling step: fuse".into(), since));
            }
            assert_eq!(open(), "compiling step");
            drop(compile);
            assert_eq!((open(), phases.state().since), (String::new(), None));
        });
    }

    #[test]
    fn texts_fit_the_terminal() {
        let open = ["compiling @step".into(), "fuse".into()];
        let seconds = Duration::from_millis(3900);
        assert_eq!(text(&open, seconds, 80), "compiling @step: fuse, 3 s");
        assert_eq!(text(&open, seconds, 20), "compiling @st…, 3 s");
        assert_eq!(text(&open, seconds, 3), ", 3 s");
    }
}
