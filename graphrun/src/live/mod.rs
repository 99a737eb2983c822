//! What a command shows on a terminal while it runs: the view of training, and the phase that it
//! has been in for over a second.
//!
//! Everything is drawn on the error stream, in the lines below the command's own output, and is
//! erased when it ends. So the scrollback holds the plain lines alone, the same as without a view.
//! Nothing is drawn if the error stream is no terminal, with `--plain`, or if the terminal cannot
//! move its cursor (`TERM=dumb`). Colours also need that `NO_COLOR` is not set.
//!
//! A terminal that becomes narrower breaks the lines that are on it, and what was drawn last may
//! stay above the view. The view is at most [`WIDEST`] columns wide, so this is rare.

mod curve;
mod kernels;
mod phases;
mod training;

pub use kernels::{KernelShares, Sampler};
pub use phases::Phases;
pub use training::TrainingView;

use console::Term;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal, Write};

/// Most columns of the view.
pub const WIDEST: usize = 100;

/// The place on the terminal where progress is drawn.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// None if nothing is drawn.
    drawn: Option<MultiProgress>,
    sampler: Sampler,
}

impl Live {
    /// The error stream, if it is a terminal that can show a view and `plain` is not asked for.
    pub fn new(plain: bool) -> Live {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let shows = !plain && !is_dumb && io::stderr().is_terminal();
        let target = || MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        Live { drawn: shows.then(target), sampler: Sampler::default() }
    }

    /// Whether anything is drawn.
    pub fn is_shown(&self) -> bool {
        self.drawn.is_some()
    }

    /// Calls `f`, which may write to the terminal, while nothing is drawn.
    pub fn suspend<T>(&self, f: impl FnOnce() -> T) -> T {
        match &self.drawn {
            Some(drawn) => drawn.suspend(f),
            None => f(),
        }
    }

    /// A writer to the error stream.
    pub fn stderr(&self) -> impl Write + use<> {
        LiveWriter(self.clone())
    }

    /// The layer that measures kernels for the view of training.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// Some lines, the last ones if there are others. None if nothing is drawn.
    fn lines(&self) -> Option<ProgressBar> {
        let style = ProgressStyle::with_template("{msg}").expect("the template is well-formed");
        Some(self.drawn.as_ref()?.add(ProgressBar::no_length().with_style(style)))
    }

    /// Erases lines of [`Self::lines`]. Other lines are drawn again with their next text.
    fn erase(&self, bar: &ProgressBar) {
        if let Some(drawn) = &self.drawn {
            // A terminal that is gone needs no cleaning.
            let _ = drawn.clear();
            drawn.remove(bar);
        }
    }
}

/// Rows and columns of the terminal.
fn size() -> (usize, usize) {
    let (rows, columns) = Term::stderr().size();
    (rows.into(), columns.into())
}

/// Writes to the error stream while nothing is drawn.
struct LiveWriter(Live);

impl Write for LiveWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
