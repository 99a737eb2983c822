//! Active waiting, for a bounded time.

use std::time::{Duration, Instant};

/// How long a thread polls for work, or for the end of a job, before it sleeps: longer than a
/// plan's short steps on one thread, and than the gap between two runs of a small plan. Waking a
/// thread takes some fifty microseconds.
pub(super) const PATIENCE: Duration = Duration::from_micros(200);
/// The least time, where workers were paused.
const LEAST: Duration = Duration::from_micros(50);
/// Polls between two readings of the clock.
const LOOKS: u32 = 32;

/// A wait.
pub(super) struct Patience {
    looks: u32,
    since: Option<Instant>,
    most: Duration,
}

impl Patience {
    pub fn new() -> Self {
        Patience { looks: 0, since: None, most: PATIENCE }
    }

    /// Waits for a worker that may be paused, at the end of a job for which this thread worked so
    /// long. The worker's share takes about as long.
    pub fn after(worked: Duration) -> Self {
        Patience { most: (2 * worked).clamp(LEAST, PATIENCE), ..Patience::new() }
    }

    /// Waits for a moment; false if the time is used up.
    pub fn goes_on(&mut self) -> bool {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS) {
            // A short wait does not read the clock.
            return self.since.get_or_insert_with(Instant::now).elapsed() < self.most;
        }
        std::hint::spin_loop();
        true
    }
}
