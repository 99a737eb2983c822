//! Which launcher has started this process, by its environment.

use super::abi::Vendor;
use super::library::{Library, VARIABLE};
use crate::error::{Error, Kind, Result};

/// What a launcher says of this process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Launch {
    /// The launcher, in errors.
    pub by: &'static str,
    /// The family of libraries that it starts, where that is known.
    pub vendor: Option<Vendor>,
    pub rank: usize,
    /// Number of ranks, where the environment has it.
    pub ranks: Option<usize>,
}

/// Launchers: the variables of rank and number of ranks, the family, the name. The first whose
/// rank is set counts. Launchers may be nested in an allocation of Slurm, hence the order.
const LAUNCHERS: [(&str, &[&str], Option<Vendor>, &str); 4] = [
    ("OMPI_COMM_WORLD_RANK", &["OMPI_COMM_WORLD_SIZE"], Some(Vendor::OpenMpi), "Open MPI's mpirun"),
    (
        "PMI_RANK",
        &["PMI_SIZE"],
        Some(Vendor::Mpich),
        "a launcher with PMI, such as MPICH's mpiexec",
    ),
    (
        "PMIX_RANK",
        &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        Some(Vendor::OpenMpi),
        "a launcher with PMIx, such as srun --mpi=pmix",
    ),
    ("SLURM_PROCID", &["SLURM_STEP_NUM_TASKS"], None, "Slurm's srun"),
];

impl Launch {
    /// Reads the environment. None if no launcher has set it.
    ///
    /// Error: a variable is no number, or the rank is not one of the ranks.
    pub fn detect(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Launch>> {
        for (rank, ranks, vendor, by) in LAUNCHERS {
            let Some(text) = variable(rank) else { continue };
            let ranks = ranks.iter().find_map(|name| Some((*name, variable(name)?)));
            // An allocation of Slurm sets the rank also where srun has started nothing.
            if vendor.is_none() && ranks.is_none() {
                continue;
            }
            let rank = number(rank, &text)?;
            let ranks = ranks.map(|(name, text)| number(name, &text)).transpose()?;
            if ranks.is_some_and(|ranks| rank >= ranks) {
                let message = format!("{by} says rank {rank} of {} ranks", ranks.unwrap_or(0));
                return Err(Error::new(Kind::Environment, message)
                    .help("start the ranks again, with no variables of another launcher set"));
            }
            return Ok(Some(Launch { by, vendor, rank, ranks }));
        }
        Ok(None)
    }

    /// The families of libraries to try.
    pub fn vendors(&self) -> Vec<Vendor> {
        self.vendor.map_or(vec![Vendor::OpenMpi, Vendor::Mpich], |vendor| vec![vendor])
    }

    /// Compares the world of the library with the launcher's.
    pub fn compare(&self, library: &Library, rank: usize, ranks: usize) -> Result<()> {
        self.compare_with(&library.version, &library.file, library.vendor, rank, ranks)
    }

    fn compare_with(
        &self,
        version: &str,
        file: &str,
        vendor: Vendor,
        rank: usize,
        ranks: usize,
    ) -> Result<()> {
        if self.ranks.is_none_or(|wanted| wanted == ranks) && self.rank == rank {
            return Ok(());
        }
        let of = self.ranks.map_or(String::new(), |ranks| format!(" of {ranks}"));
        let message = format!(
            "{} has started this process as rank {}{of}, but in {version} ({file}) it is rank \
             {rank} of {ranks}",
            self.by, self.rank
        );
        let help = match self.vendor {
            Some(wanted) if wanted != vendor => format!(
                "the library is not the launcher's: install {}, or set {VARIABLE} to the path of \
                 the launcher's library; or start the ranks with a launcher of {}",
                wanted.package(),
                vendor.name()
            ),
            _ => format!(
                "the library does not know this launcher: set {VARIABLE} to the path of the \
                 launcher's library; with srun, choose `--mpi=pmix` for Open MPI or `--mpi=pmi2` \
                 for MPICH"
            ),
        };
        Err(Error::new(Kind::Environment, message).help(help))
    }
}

fn number(name: &str, text: &str) -> Result<usize> {
    text.trim().parse().map_err(|_| {
        let message = format!("{name} is `{}`, which is no number", text.escape_debug());
        Error::new(Kind::Environment, message).help("only a launcher of MPI sets it; unset it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Variables<'a> = &'a [(&'a str, &'a str)];

    fn detect(variables: Variables<'_>) -> Result<Option<Launch>> {
        let find = |name: &str| {
            variables.iter().find(|(other, _)| *other == name).map(|(_, text)| (*text).into())
        };
        Launch::detect(&find)
    }

    #[test]
    fn each_launcher_is_known_by_its_variables() {
        let cases: [(Variables<'_>, Option<Vendor>, usize, Option<usize>); 5] = [
            (
                &[
                    ("OMPI_COMM_WORLD_RANK", "1"),
                    ("OMPI_COMM_WORLD_SIZE", "4"),
                    ("PMIX_RANK", "1"),
                    ("SLURM_PROCID", "0"),
                ],
                Some(Vendor::OpenMpi),
                1,
                Some(4),
            ),
            (&[("PMI_RANK", "2"), ("PMI_SIZE", "3")], Some(Vendor::Mpich), 2, Some(3)),
            (&[("PMIX_RANK", "0")], Some(Vendor::OpenMpi), 0, None),
            (
                &[("PMIX_RANK", "5"), ("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_PROCID", "5")],
                Some(Vendor::OpenMpi),
                5,
                Some(8),
            ),
            (&[("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2")], None, 1, Some(2)),
        ];
        for (variables, vendor, rank, ranks) in cases {
            let launch = detect(variables).expect("numbers").expect("a launcher");
            assert_eq!((launch.vendor, launch.rank, launch.ranks), (vendor, rank, ranks));
            assert!(launch.vendors().len() == if vendor.is_none() { 2 } else { 1 });
        }
        assert_eq!(detect(&[]).expect("nothing is wrong"), None);
        // The script of a batch job is no rank.
        let batch = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")];
        assert_eq!(detect(&batch).expect("nothing is wrong"), None);
    }

    #[test]
    fn variables_that_make_no_sense_are_named() {
        let text = |variables: Variables<'_>| {
            let error = detect(variables).expect_err("no sense");
            assert_eq!(error.kind(), Kind::Environment);
            error.to_string()
        };
        assert!(text(&[("PMI_RANK", "x")]).starts_with("PMI_RANK is `x`, which is no number"));
        let beyond = text(&[("PMI_RANK", "2"), ("PMI_SIZE", "2")]);
        assert!(beyond.contains("mpiexec says rank 2 of 2 ranks"), "{beyond}");
    }

    #[test]
    fn a_world_of_another_size_says_what_to_install() {
        let launch = detect(&[("PMI_RANK", "1"), ("PMI_SIZE", "4")]).expect("numbers");
        let launch = launch.expect("a launcher");
        let compare = |vendor: Vendor, rank, ranks| {
            launch.compare_with("Open MPI v4.1.4", "libmpi.so.40", vendor, rank, ranks)
        };
        compare(Vendor::OpenMpi, 1, 4).expect("the same world");
        let text = compare(Vendor::OpenMpi, 0, 1).expect_err("alone").to_string();
        let wanted = "a launcher with PMI, such as MPICH's mpiexec has started this process as \
                      rank 1 of 4, but in Open MPI v4.1.4 (libmpi.so.40) it is rank 0 of 1\n\
                      help: the library is not the launcher's: install Debian's `libmpich12`, or \
                      set WENGERT_MPI_LIBRARY";
        assert!(text.starts_with(wanted), "{text}");
        let text = compare(Vendor::Mpich, 1, 3).expect_err("another size").to_string();
        assert!(text.contains("`--mpi=pmi2` for MPICH"), "{text}");
    }
}
