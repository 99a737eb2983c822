//! The two binary interfaces of MPI.
//!
//! MPI's standard (before version 5) fixes the functions of C, but not their types. Open MPI's
//! handles are pointers, to structures that the library exports for the predefined ones. MPICH's
//! handles are integers with fixed values, the same in Intel MPI and MVAPICH ("MPICH ABI
//! compatibility initiative"). `MPI_Status` differs in the order of its fields and in its size.
//! Each interface is a type here, and [`super::functions`] has the signatures for both.

use super::library::Library;
use crate::error::Result;
use std::ffi::{c_int, c_void};

/// A family of libraries with one binary interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Vendor {
    /// Open MPI 2 to 5.
    OpenMpi,
    /// MPICH 3.1 and later, Intel MPI, MVAPICH 2.
    Mpich,
}

impl Vendor {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Vendor::OpenMpi => "Open MPI",
            Vendor::Mpich => "MPICH",
        }
    }

    /// Names of the shared libraries, the usual one first.
    pub fn files(self) -> &'static [&'static str] {
        match self {
            Vendor::OpenMpi => &["libmpi.so.40"],
            Vendor::Mpich => &["libmpich.so.12", "libmpi.so.12"],
        }
    }

    /// How to install it.
    pub fn package(self) -> &'static str {
        match self {
            Vendor::OpenMpi => "Debian's `libopenmpi3` (`libopenmpi3t64` from Debian 13 on)",
            Vendor::Mpich => "Debian's `libmpich12`",
        }
    }

    /// The family, by the text of `MPI_Get_library_version`.
    pub fn of_version(version: &str) -> Option<Vendor> {
        const TEXTS: [(&str, Vendor); 4] = [
            ("Open MPI", Vendor::OpenMpi),
            ("MPICH", Vendor::Mpich),
            ("Intel(R) MPI", Vendor::Mpich),
            ("MVAPICH", Vendor::Mpich),
        ];
        TEXTS.iter().find(|(text, _)| version.starts_with(text)).map(|(_, vendor)| *vendor)
    }
}

/// The predefined handles that are used.
pub(super) struct Handles<H> {
    pub world: H,
    pub byte: H,
    pub errors_return: H,
    pub no_request: H,
}

/// Not a color: the rank joins no group. Both interfaces have the same value.
pub(super) const UNDEFINED: c_int = -32766;
/// Calls may come from any thread, one at a time. Both interfaces have the same value.
pub(super) const THREAD_SERIALIZED: c_int = 2;
/// Bytes for the text of an error or a version: the larger of both interfaces' limits.
pub(super) const TEXT: usize = 8192;

/// A binary interface.
pub(super) trait Abi: Sized + Send + Sync + 'static {
    /// A handle: communicator, datatype, request, error handler.
    type Handle: Copy + Send + Sync + 'static;
    /// What is known of a completed request.
    type Status: Copy;
    /// An empty status.
    const STATUS: Self::Status;

    /// True for the code of an error that says that a message is longer than its receive.
    fn is_truncation(code: c_int) -> bool;

    /// The predefined handles.
    fn handles(library: &Library) -> Result<Handles<Self::Handle>>;
}

/// Open MPI's interface.
pub(super) struct OpenMpi;

/// A handle of Open MPI.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pointer(pub *mut c_void);

// SAFETY: a handle is a name that only MPI's functions follow. They may be called from any thread,
// one at a time (`THREAD_SERIALIZED`), and are called under a lock.
unsafe impl Send for Pointer {}
// SAFETY: as above.
unsafe impl Sync for Pointer {}

/// `MPI_Status` of Open MPI.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenMpiStatus {
    pub source: c_int,
    pub tag: c_int,
    pub error: c_int,
    pub cancelled: c_int,
    pub bytes: usize,
}

impl Abi for OpenMpi {
    type Handle = Pointer;
    type Status = OpenMpiStatus;
    const STATUS: OpenMpiStatus =
        OpenMpiStatus { source: 0, tag: 0, error: 0, cancelled: 0, bytes: 0 };

    fn is_truncation(code: c_int) -> bool {
        code == 15
    }

    fn handles(library: &Library) -> Result<Handles<Pointer>> {
        let at = |name: &str| library.address(name).map(Pointer);
        Ok(Handles {
            world: at("ompi_mpi_comm_world")?,
            byte: at("ompi_mpi_byte")?,
            errors_return: at("ompi_mpi_errors_return")?,
            no_request: at("ompi_request_null")?,
        })
    }
}

/// MPICH's interface.
pub(super) struct Mpich;

/// `MPI_Status` of MPICH.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct MpichStatus {
    pub count_low: c_int,
    pub count_high_and_cancelled: c_int,
    pub source: c_int,
    pub tag: c_int,
    pub error: c_int,
}

impl Abi for Mpich {
    type Handle = c_int;
    type Status = MpichStatus;
    const STATUS: MpichStatus =
        MpichStatus { count_low: 0, count_high_and_cancelled: 0, source: 0, tag: 0, error: 0 };

    /// The last seven bits are the class of an error, the others its details.
    fn is_truncation(code: c_int) -> bool {
        code & 0x7f == 14
    }

    fn handles(_: &Library) -> Result<Handles<c_int>> {
        Ok(Handles {
            world: 0x4400_0000,
            byte: 0x4c00_010d,
            errors_return: 0x5400_0001,
            no_request: 0x2c00_0000,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn statuses_have_the_layout_of_the_headers() {
        // `mpi.h` of Open MPI 4.1.4: int MPI_SOURCE, MPI_TAG, MPI_ERROR, _cancelled; size_t.
        assert_eq!(size_of::<OpenMpiStatus>(), 24);
        assert_eq!(offset_of!(OpenMpiStatus, source), 0);
        assert_eq!(offset_of!(OpenMpiStatus, bytes), 16);
        // `mpi.h` of MPICH 4.0.2: int count_lo, count_hi_and_cancelled, MPI_SOURCE, …
        assert_eq!(size_of::<MpichStatus>(), 20);
        assert_eq!(offset_of!(MpichStatus, source), 8);
        assert_eq!(offset_of!(MpichStatus, error), 16);
        // `MPI_ERR_TRUNCATE` of both; 681230 came from MPICH 4.0.2.
        assert!(OpenMpi::is_truncation(15) && !OpenMpi::is_truncation(14));
        assert!(Mpich::is_truncation(14) && Mpich::is_truncation(681_230));
        assert!(!Mpich::is_truncation(0) && !Mpich::is_truncation(15));
    }

    #[test]
    fn versions_say_the_interface() {
        let cases = [
            ("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4", Some(Vendor::OpenMpi)),
            ("MPICH Version:\t4.0.2\nMPICH Release date:\t…", Some(Vendor::Mpich)),
            ("Intel(R) MPI Library 2021.9 for Linux* OS\n", Some(Vendor::Mpich)),
            ("MVAPICH2 Version      :\t2.3.7", Some(Vendor::Mpich)),
            ("LAM/MPI 7.1", None),
        ];
        for (version, vendor) in cases {
            assert_eq!(Vendor::of_version(version), vendor, "{version}");
        }
    }
}
