//! Errors: the kind, the rank and operation, the mistake, the remedy.

use std::fmt;

/// The result of an operation between ranks.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kinds of errors. All but [`Kind::Argument`] end the run: after one of them, every operation
/// of this rank fails ([`Kind::Earlier`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An argument that no communicator accepts. Nothing was started.
    Argument,
    /// An operation did not end in time. The awaited ranks are alive, as far as is known.
    Timeout,
    /// An operation did not end in time, and an awaited rank's heartbeat has stopped.
    Stopped,
    /// The process of a rank, or of the launcher, has ended without leaving the world.
    Died,
    /// A rank has left the world while others wait for it.
    Left,
    /// Ranks called different operations, or differ in the number of bytes.
    Mismatch,
    /// Ranks run with different programs, plans, data or versions.
    Hashes,
    /// The environment does not describe a world, or a wrong one.
    Environment,
    /// A library of MPI cannot be used, or reports an error.
    Library,
    /// A system call failed.
    System,
    /// An earlier operation of this rank failed.
    Earlier,
}

/// An error of one rank. Its text begins with the rank and the operation, where there is one.
#[derive(Clone, Debug, thiserror::Error)]
pub struct Error {
    kind: Kind,
    place: Option<String>,
    message: String,
    help: Option<String>,
    about: Vec<usize>,
}

impl Error {
    /// An error without a place and without a remedy.
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, place: None, message: message.into(), help: None, about: Vec::new() }
    }

    /// The failure of a system call.
    pub(crate) fn system(doing: impl fmt::Display, error: impl fmt::Display) -> Error {
        Error::new(Kind::System, format!("cannot {doing}: {error}"))
    }

    /// Adds the remedy.
    pub fn help(mut self, help: impl Into<String>) -> Error {
        self.help = Some(help.into());
        self
    }

    /// Names the ranks of the world that the error is about, for programs.
    pub fn about(mut self, ranks: impl IntoIterator<Item = usize>) -> Error {
        self.about = ranks.into_iter().collect();
        self
    }

    /// Adds the rank and its operation, unless the error has them.
    pub fn at(mut self, rank: usize, operation: &dyn fmt::Display) -> Error {
        self.place.get_or_insert_with(|| format!("rank {rank}, {operation}"));
        self
    }

    /// The kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The ranks of the world that the error is about: those that died, stopped, or differ.
    pub fn ranks(&self) -> &[usize] {
        &self.about
    }

    /// True if nothing was started, so that the ranks can go on.
    pub(crate) fn is_harmless(&self) -> bool {
        matches!(self.kind, Kind::Argument | Kind::Earlier)
    }

    /// The error of a later operation.
    pub(crate) fn earlier(&self) -> Error {
        if self.kind == Kind::Earlier {
            return self.clone();
        }
        let place = self.place.as_ref().map_or(String::new(), |place| format!("{place}: "));
        Error::new(Kind::Earlier, format!("an earlier operation failed ({place}{})", self.message))
            .help("end the process: a rank cannot continue after a failed operation")
            .about(self.about.iter().copied())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.message)?;
        if let Some(help) = &self.help {
            write!(f, "\nhelp: {help}")?;
        }
        Ok(())
    }
}

/// Ranks as text: `rank 2`, `ranks 0, 1 and 3`.
pub(crate) fn ranks_text(ranks: &[usize]) -> String {
    match ranks {
        [] => "no rank".into(),
        [one] => format!("rank {one}"),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(usize::to_string).collect();
            format!("ranks {} and {last}", first.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_place_the_mistake_and_the_remedy() {
        let error = Error::new(Kind::Died, "rank 2 (process 77) has ended")
            .help("see its output")
            .about([2])
            .at(0, &"all_gather 5 of `world`")
            .at(1, &"another");
        assert_eq!(
            error.to_string(),
            "rank 0, all_gather 5 of `world`: rank 2 (process 77) has ended\nhelp: see its output"
        );
        assert_eq!((error.kind(), error.ranks()), (Kind::Died, &[2][..]));
        let later = error.earlier().at(0, &"barrier 6 of `world`");
        assert_eq!(later.kind(), Kind::Earlier);
        assert!(later.to_string().contains("all_gather 5 of `world`: rank 2"), "{later}");
        assert_eq!(later.earlier().to_string(), later.to_string());
    }

    #[test]
    fn lists_of_ranks_are_text() {
        assert_eq!(ranks_text(&[]), "no rank");
        assert_eq!(ranks_text(&[4]), "rank 4");
        assert_eq!(ranks_text(&[0, 1, 3]), "ranks 0, 1 and 3");
    }
}
