//! The thread that shows that a rank is alive, and watches the others.
//!
//! Each rank has a monitor. It advances the rank's heartbeat in the segment, and looks at those of
//! the others. A process that is stopped, by a signal, a debugger or the machine, has no heartbeat.
//! That is no error in itself: a wait that takes too long reads how long a heartbeat has been
//! silent, to say what is wrong.
//!
//! The monitor also has a file descriptor (`pidfd`) of the process of each other rank and of the
//! launcher. The kernel makes it readable when the process ends, however it ends. Waits of this
//! rank are then woken at once.

use super::doorbell;
use super::segment::{JOINED, NEW, Segment};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::futex::Timespec;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time between two beats.
const BEAT: Duration = Duration::from_millis(100);

/// What a monitor knows of the others.
pub(super) struct Health {
    /// Ranks whose process has ended.
    ended: Vec<AtomicBool>,
    launcher_ended: AtomicBool,
    /// The last heartbeat of each rank, and when it was seen to change.
    beats: Mutex<Vec<(u64, Instant)>>,
}

impl Health {
    fn new(ranks: usize) -> Health {
        Health {
            ended: (0..ranks).map(|_| AtomicBool::new(false)).collect(),
            launcher_ended: AtomicBool::new(false),
            beats: Mutex::new(vec![(0, Instant::now()); ranks]),
        }
    }

    /// True if the process of a rank has ended.
    pub fn has_ended(&self, rank: usize) -> bool {
        self.ended[rank].load(Ordering::Acquire)
    }

    /// True if the launcher has ended.
    pub fn launcher_has_ended(&self) -> bool {
        self.launcher_ended.load(Ordering::Acquire)
    }

    /// How long the heartbeat of a rank has been the same.
    pub fn silent(&self, rank: usize) -> Duration {
        let beats = self.beats.lock().unwrap_or_else(|poison| poison.into_inner());
        beats[rank].1.elapsed()
    }

    /// Notes the end of a process. A rank that left before is no culprit.
    fn note(&self, segment: &Segment, what: Watched) {
        match what {
            Watched::Rank(rank) => {
                if matches!(segment.rank(rank).state.load(Ordering::Acquire), NEW | JOINED) {
                    segment.accuse(rank);
                }
                self.ended[rank].store(true, Ordering::Release);
            }
            Watched::Launcher => self.launcher_ended.store(true, Ordering::Release),
        }
    }

    fn listen(&self, segment: &Segment) {
        let mut beats = self.beats.lock().unwrap_or_else(|poison| poison.into_inner());
        for (rank, (last, since)) in beats.iter_mut().enumerate() {
            let now = segment.rank(rank).heartbeat.load(Ordering::Acquire);
            if now != *last {
                (*last, *since) = (now, Instant::now());
            }
        }
    }
}

/// A running monitor. Dropping it ends the thread.
pub(super) struct Monitor {
    health: Arc<Health>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Monitor {
    /// Starts the monitor of a rank. `launcher` is the launcher's process, where there is one.
    /// Processes of other ranks are those in the segment.
    pub fn start(
        segment: Arc<Segment>,
        rank: usize,
        launcher: Option<u32>,
    ) -> crate::Result<Monitor> {
        let health = Arc::new(Health::new(segment.ranks()));
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| crate::Error::system("make an event (eventfd)", error))?;
        let stop = Arc::new(stop);
        let own = std::process::id();
        let mut watched = Vec::new();
        for other in 0..segment.ranks() {
            let process = segment.rank(other).process.load(Ordering::Acquire);
            // Ranks of this process end with it.
            if process != own {
                watched.push((Watched::Rank(other), process));
            }
        }
        watched.extend(launcher.filter(|l| *l != own).map(|l| (Watched::Launcher, l)));
        let mut files = Vec::new();
        for (what, process) in watched {
            match descriptor(process) {
                Ok(file) => files.push((what, file)),
                // It has ended already.
                Err(rustix::io::Errno::SRCH) => health.note(&segment, what),
                Err(error) => {
                    let doing = format!("watch process {process} (pidfd_open)");
                    return Err(crate::Error::system(doing, error));
                }
            }
        }
        let thread = {
            let (health, stop) = (health.clone(), stop.clone());
            std::thread::Builder::new()
                .name(format!("rank-{rank}-monitor"))
                .spawn(move || watch(&segment, rank, &health, files, &stop))
                .map_err(|error| crate::Error::system("start a thread", error))?
        };
        Ok(Monitor { health, stop, thread: Some(thread) })
    }

    /// What it knows.
    pub fn health(&self) -> &Health {
        &self.health
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // The counter of an event takes this; a failure would let the join below wait for ever.
        let one = 1u64.to_ne_bytes();
        rustix::io::write(&*self.stop, &one).expect("an event takes a number");
        if let Some(thread) = self.thread.take() {
            // A panic of the monitor was printed when it happened.
            let _ = thread.join();
        }
    }
}

#[derive(Clone, Copy)]
enum Watched {
    Rank(usize),
    Launcher,
}

/// A file descriptor of a process, readable after its end.
pub(super) fn descriptor(process: u32) -> rustix::io::Result<OwnedFd> {
    let pid = Pid::from_raw(process as i32).ok_or(rustix::io::Errno::SRCH)?;
    pidfd_open(pid, PidfdFlags::empty())
}

fn watch(
    segment: &Segment,
    rank: usize,
    health: &Health,
    mut files: Vec<(Watched, OwnedFd)>,
    stop: &OwnedFd,
) {
    let cell = segment.rank(rank);
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(BEAT.subsec_nanos()) as _ };
    loop {
        cell.heartbeat.fetch_add(1, Ordering::AcqRel);
        health.listen(segment);
        let mut polled: Vec<PollFd<'_>> = std::iter::once(stop)
            .chain(files.iter().map(|(_, file)| file))
            .map(|file| PollFd::new(file, PollFlags::IN))
            .collect();
        // An interrupted poll is a short one.
        let ready = poll(&mut polled, Some(&timeout)).unwrap_or(0);
        let flags: Vec<bool> = polled.iter().map(|one| !one.revents().is_empty()).collect();
        if ready == 0 {
            continue;
        }
        if flags[0] {
            return;
        }
        for at in (0..files.len()).filter(|at| flags[at + 1]).rev().collect::<Vec<_>>() {
            let (what, _) = files.remove(at);
            health.note(segment, what);
        }
        doorbell::ring(cell);
    }
}
