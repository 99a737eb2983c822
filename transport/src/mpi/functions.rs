//! The functions of MPI that are used, typed for one binary interface.

use super::abi::Abi;
use super::library::Library;
use crate::error::Result;
use std::ffi::{c_char, c_int, c_void};

/// A buffer that MPI reads.
type From = *const c_void;
/// A buffer that MPI writes.
type Into = *mut c_void;

/// Makes the table and its loader from one list of signatures.
macro_rules! functions {
    ($($name:ident = $symbol:literal ($($argument:ty),*);)*) => {
        /// The functions of a library.
        pub(super) struct Functions<A: Abi> {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl<A: Abi> Functions<A> {
            /// The functions of a library.
            ///
            /// # Safety
            ///
            /// The library has the interface `A`.
            pub unsafe fn of(library: &Library) -> Result<Functions<A>> {
                Ok(Functions {
                    // SAFETY: these are the signatures of MPI 3.1 with the types of `A`, which is
                    // the library's interface.
                    $($name: unsafe { library.function($symbol)? },)*
                })
            }
        }

        #[cfg(test)]
        const SYMBOLS: &[&str] = &[$($symbol),*];
    };
}

functions! {
    initialized = "MPI_Initialized" (*mut c_int);
    init_thread = "MPI_Init_thread" (*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    finalize = "MPI_Finalize" ();
    abort = "MPI_Abort" (A::Handle, c_int);
    error_string = "MPI_Error_string" (c_int, *mut c_char, *mut c_int);
    set_errhandler = "MPI_Comm_set_errhandler" (A::Handle, A::Handle);
    comm_rank = "MPI_Comm_rank" (A::Handle, *mut c_int);
    comm_size = "MPI_Comm_size" (A::Handle, *mut c_int);
    comm_split = "MPI_Comm_split" (A::Handle, c_int, c_int, *mut A::Handle);
    comm_free = "MPI_Comm_free" (*mut A::Handle);
    isend = "MPI_Isend" (From, c_int, A::Handle, c_int, c_int, A::Handle, *mut A::Handle);
    irecv = "MPI_Irecv" (Into, c_int, A::Handle, c_int, c_int, A::Handle, *mut A::Handle);
    test = "MPI_Test" (*mut A::Handle, *mut c_int, *mut A::Status);
    get_count = "MPI_Get_count" (*const A::Status, A::Handle, *mut c_int);
    ialltoallv = "MPI_Ialltoallv" (
        From, *const c_int, *const c_int, A::Handle,
        Into, *const c_int, *const c_int, A::Handle,
        A::Handle, *mut A::Handle
    );
    iallgatherv = "MPI_Iallgatherv" (
        From, c_int, A::Handle,
        Into, *const c_int, *const c_int, A::Handle,
        A::Handle, *mut A::Handle
    );
    ibcast = "MPI_Ibcast" (Into, c_int, A::Handle, c_int, A::Handle, *mut A::Handle);
    ibarrier = "MPI_Ibarrier" (A::Handle, *mut A::Handle);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_is_named_once_and_none_reduces() {
        let mut names = SYMBOLS.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SYMBOLS.len());
        for name in names {
            assert!(name.starts_with("MPI_"), "{name}");
            let reduces = ["educe", "scan", "accumulate"].iter().any(|part| name.contains(part));
            assert!(!reduces, "{name}: ranks add locally, in a fixed order");
        }
    }
}
