//! Memory that holds code: written first, then made executable and never written again.

use memmap2::{Mmap, MmapMut};
use wengert_core::Diagnostic;

/// Executable code.
#[derive(Debug)]
pub(super) struct Code(Mmap);

impl Code {
    /// Copies code to pages of its own.
    ///
    /// Error: the system gives no memory, or does not permit execution.
    pub fn new(code: &[u8]) -> Result<Self, Diagnostic> {
        let failed = |what: &str, e: std::io::Error| {
            Diagnostic::new(format!("cannot {what} {} bytes of code: {e}", code.len()))
        };
        let mut pages = MmapMut::map_anon(code.len().max(1)).map_err(|e| failed("allocate", e))?;
        pages[..code.len()].copy_from_slice(code);
        pages.make_exec().map(Code).map_err(|e| failed("make executable", e))
    }

    /// Address of the code.
    pub fn start(&self) -> *const u8 {
        self.0.as_ptr()
    }
}
