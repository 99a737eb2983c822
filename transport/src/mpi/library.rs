//! Finding and loading a library of MPI.

use super::abi::{TEXT, Vendor};
use crate::error::{Error, Kind, Result};
use libloading::os::unix::{Library as Loaded, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::{c_char, c_int, c_void};

/// The variable that names a library to load instead of the launcher's.
pub const VARIABLE: &str = "WENGERT_MPI_LIBRARY";

/// A loaded library. It is never unloaded: MPI registers functions that run when the process
/// ends.
pub(super) struct Library {
    loaded: &'static Loaded,
    /// The name by which it was loaded.
    pub file: String,
    /// Its own text about its version, as far as the first line or comma.
    pub version: String,
    pub vendor: Vendor,
}

impl Library {
    /// Loads the library that the user names, or the first that exists of some vendors.
    pub fn open(named: Option<&str>, vendors: &[Vendor]) -> Result<Library> {
        let files: Vec<&str> = match named {
            Some(file) => vec![file],
            None => vendors.iter().flat_map(|vendor| vendor.files()).copied().collect(),
        };
        let mut refusals = Vec::new();
        for file in &files {
            // SAFETY: libraries of MPI may be loaded at any time; loading runs their constructors,
            // as linking does. Their plug-ins need their symbols to be global.
            match unsafe { Loaded::open(Some(*file), RTLD_NOW | RTLD_GLOBAL) } {
                Ok(loaded) => return Library::identify(loaded, file),
                Err(error) => refusals.push(reason(&error)),
            }
        }
        let packages: Vec<&str> = vendors.iter().map(|vendor| vendor.package()).collect();
        let help = match named {
            Some(_) => format!("{VARIABLE} names a library of MPI: a path, or a name to search"),
            None => format!(
                "install {}, or set {VARIABLE} to the path of the launcher's library",
                packages.join(" or ")
            ),
        };
        let message = format!("cannot load {}: {}", files.join(" or "), refusals.join("; "));
        Err(Error::new(Kind::Library, message).help(help))
    }

    fn identify(loaded: Loaded, file: &str) -> Result<Library> {
        let mut library = Library {
            loaded: Box::leak(Box::new(loaded)),
            file: file.into(),
            version: String::new(),
            vendor: Vendor::OpenMpi,
        };
        type GetVersion = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
        // SAFETY: the signature of `MPI_Get_library_version` is the same in all interfaces.
        let get_version: GetVersion = unsafe { library.function("MPI_Get_library_version")? };
        let (mut text, mut len) = (vec![0u8; TEXT], 0);
        // SAFETY: the buffer has the largest size that an interface asks for. The function may be
        // called before MPI is initialised.
        let status = unsafe { get_version(text.as_mut_ptr().cast(), &mut len) };
        text.truncate(usize::try_from(len).unwrap_or(0));
        let text = String::from_utf8_lossy(&text).into_owned();
        let first = text.lines().next().unwrap_or("").split(',').next().unwrap_or("");
        let first = first.trim_end_matches('\0').replace('\t', " ");
        match Vendor::of_version(&text) {
            Some(vendor) if status == 0 => {
                library.vendor = vendor;
                library.version = first;
                Ok(library)
            }
            _ => Err(Error::new(
                Kind::Library,
                format!("{file} is a library of MPI of an unknown kind: `{first}`"),
            )
            .help("Open MPI and libraries with the binary interface of MPICH are supported")),
        }
    }

    /// The address of a symbol.
    pub fn address(&self, name: &str) -> Result<*mut c_void> {
        // SAFETY: the symbol is not accessed, only its address is taken.
        let symbol = unsafe { self.loaded.get::<*mut c_void>(name.as_bytes()) };
        symbol.map(|symbol| symbol.as_raw_ptr()).map_err(|error| {
            Error::new(Kind::Library, format!("{} lacks `{name}`: {}", self.file, reason(&error)))
                .help(format!(
                    "it says that it is `{}`; set {VARIABLE} to another library",
                    self.version
                ))
        })
    }

    /// A function.
    ///
    /// # Safety
    ///
    /// `F` is the type of a function pointer, with the function's signature in this library.
    pub unsafe fn function<F: Copy>(&self, name: &str) -> Result<F> {
        let address = self.address(name)?;
        assert_eq!(size_of::<F>(), size_of_val(&address), "a pointer to a function");
        // SAFETY: the caller says that `F` is the type of this function's pointer.
        Ok(unsafe { std::mem::transmute_copy(&address) })
    }
}

/// The reason of the loader, without the chain of errors around it.
fn reason(error: &libloading::Error) -> String {
    use std::error::Error as _;
    error.source().map_or_else(|| error.to_string(), |source| source.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_says_what_to_install() {
        let path = "/nonexistent/libmpi.so.40";
        let error = Library::open(Some(path), &[Vendor::OpenMpi]).map(|_| ()).expect_err("none");
        assert_eq!(error.kind(), Kind::Library);
        let text = error.to_string();
        assert!(text.starts_with("cannot load /nonexistent/libmpi.so.40: "), "{text}");
        assert!(text.contains("help: WENGERT_MPI_LIBRARY names a library"), "{text}");
        let refusal = Library::open(None, &[]).map(|_| ()).expect_err("no vendor");
        assert!(refusal.to_string().contains("or set WENGERT_MPI_LIBRARY"), "{refusal}");
    }

    #[test]
    fn a_library_that_is_not_mpi_is_refused() {
        let error =
            Library::open(Some("libc.so.6"), &[Vendor::Mpich]).map(|_| ()).expect_err("no MPI");
        let text = error.to_string();
        assert!(text.starts_with("libc.so.6 lacks `MPI_Get_library_version`"), "{text}");
    }
}
