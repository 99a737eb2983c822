//! How a process finds the segment of its launcher.
//!
//! The launcher sets one variable. It names the rank, the number of ranks, the launcher's process,
//! the file descriptor of the segment there, and the random bits of the run, which are also in the
//! segment. A process opens the segment by its path under `/proc`, so nothing is inherited.

use super::processors;
use super::segment::{RunId, Segment};
use crate::communicator::Communicator;
use crate::error::{Error, Kind, Result};
use crate::options::Options;
use std::fmt;
use std::path::PathBuf;

/// The variable by which a launcher tells a process its rank.
pub const VARIABLE: &str = "WENGERT_SHARED_MEMORY";

/// The value of [`VARIABLE`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Invitation {
    pub rank: usize,
    pub ranks: usize,
    pub launcher: u32,
    pub segment: i32,
    pub run: RunId,
}

impl fmt::Display for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Invitation { rank, ranks, launcher, segment, run: [a, b] } = self;
        write!(f, "{rank}/{ranks},launcher={launcher},segment={segment},run={a:016x}{b:016x}")
    }
}

impl Invitation {
    fn parse(text: &str) -> Option<Invitation> {
        let mut parts = text.split(',');
        let (rank, ranks) = parts.next()?.split_once('/')?;
        let mut part = |name: &str| parts.next()?.strip_prefix(name)?.strip_prefix('=');
        let (launcher, segment, run) = (part("launcher")?, part("segment")?, part("run")?);
        let (a, b) = run.split_at_checked(16)?;
        let word = |text| u64::from_str_radix(text, 16).ok();
        let invitation = Invitation {
            rank: rank.parse().ok()?,
            ranks: ranks.parse().ok()?,
            launcher: launcher.parse().ok()?,
            segment: segment.parse().ok()?,
            run: [word(a)?, word(b)?],
        };
        let is_whole = parts.next().is_none() && invitation.to_string() == text;
        (is_whole && invitation.rank < invitation.ranks).then_some(invitation)
    }
}

/// Joins the world of the launcher that has started this process, and waits for the other ranks.
/// None if [`VARIABLE`] is not set.
///
/// The calling thread, and those that it starts afterwards, run on this rank's share of the
/// processors from then on, if there is at least one for each rank.
pub fn join(options: &Options) -> Result<Option<Communicator>> {
    match std::env::var_os(VARIABLE) {
        None => Ok(None),
        Some(text) => accept(&text.to_string_lossy(), options).map(Some),
    }
}

fn accept(text: &str, options: &Options) -> Result<Communicator> {
    let invitation = Invitation::parse(text).ok_or_else(|| {
        Error::new(Kind::Environment, format!("{VARIABLE} is `{}`", text.escape_debug()))
            .help("only a launcher sets it; unset it to run alone")
    })?;
    let Invitation { rank, ranks, launcher, segment, run } = invitation;
    let path = PathBuf::from(format!("/proc/{launcher}/fd/{segment}"));
    let place = format!("joining a world of {ranks} ranks");
    let segment = Segment::open(&path, ranks, run).map_err(|error| error.at(rank, &place))?;
    let segment = std::sync::Arc::new(segment);
    super::claim(&segment, rank).map_err(|error| error.at(rank, &place))?;
    let has_own = processors::bind(rank, ranks);
    super::enter(segment, rank, Some(launcher), has_own, options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, AsRawFd};
    use std::time::Duration;

    fn invitation(segment: &Segment) -> Invitation {
        let (launcher, file) = (std::process::id(), segment.file().as_fd().as_raw_fd());
        let run = [3, u64::MAX];
        Invitation { rank: 1, ranks: segment.ranks(), launcher, segment: file, run }
    }

    #[test]
    fn an_invitation_is_text() {
        let one = Invitation { rank: 1, ranks: 4, launcher: 77, segment: 5, run: [3, u64::MAX] };
        let text = "1/4,launcher=77,segment=5,run=0000000000000003ffffffffffffffff";
        assert_eq!((one.to_string(), Invitation::parse(text)), (text.into(), Some(one)));
        let wrong = [
            "",
            "1/4",
            "4/4,launcher=77,segment=5,run=0000000000000003ffffffffffffffff",
            "1/4,launcher=77,segment=5,run=03",
            "1/4,launcher=77,segment=5,run=0000000000000003ffffffffffffffff,",
            "+1/4,launcher=77,segment=5,run=0000000000000003ffffffffffffffff",
        ];
        for text in wrong {
            assert_eq!(Invitation::parse(text), None, "{text}");
            let error = accept(text, &Options::default()).map(|_| ()).expect_err(text);
            assert_eq!(error.kind(), Kind::Environment);
            assert!(error.to_string().contains("unset it to run alone"), "{error}");
        }
    }

    #[test]
    fn a_rank_that_is_missing_or_doubled_is_named() {
        let segment = Segment::create(3, [3, u64::MAX]).expect("memory");
        let options = Options { timeout: Duration::from_millis(100), ..Options::default() };
        let text = invitation(&segment).to_string();
        let error = accept(&text, &options).map(|_| ()).expect_err("two ranks are missing");
        assert_eq!((error.kind(), error.ranks()), (Kind::Timeout, &[0, 2][..]));
        let wanted = "rank 1, joining a world of 3 ranks: after 0.1 s, ranks 0 and 2 of 3 have";
        assert!(error.to_string().starts_with(wanted), "{error}");
        let error = accept(&text, &options).map(|_| ()).expect_err("the rank is taken");
        assert!(error.to_string().contains("rank 1 has joined already, as process"), "{error}");
    }

    #[test]
    fn the_environment_of_another_run_is_refused() {
        let segment = Segment::create(3, [3, u64::MAX]).expect("memory");
        let old = Invitation { run: [4, 4], ..invitation(&segment) };
        let error = accept(&old.to_string(), &Options::default()).map(|_| ()).expect_err("old");
        assert!(error.to_string().contains("it belongs to another run"), "{error}");
        // The launcher has ended.
        let old = Invitation { launcher: i32::MAX as u32, ..invitation(&segment) };
        let error = accept(&old.to_string(), &Options::default()).map(|_| ()).expect_err("old");
        assert!(error.to_string().contains("cannot be opened"), "{error}");
    }
}
