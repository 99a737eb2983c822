//! Who computes a product: a library, or kernels of this crate.
//!
//! A library multiplies faster. Kernels of this crate run the nest that follows a product on its
//! tiles, which saves to store the product and to load it again. So a product is the library's,
//! unless the library cannot compute it or its follower saves more than the library gains
//! ([`Target::runs_follower`](wengert_core::Target::runs_follower)). A device that measured both
//! goes by the measurement.

use crate::nest::Follower;
use wengert_core::Result;
use wengert_core::call::{Addends, Call};

/// The implementation of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Choice {
    /// The device's library, which leaves these addends of a GEMM.
    Library(Addends),
    /// Kernels of this crate, for this reason.
    Kernels(String),
}

/// A call whose implementation is chosen. Calls with equal questions are asked once.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Question {
    /// The call.
    pub call: Call,
    /// The operand that shares the result's memory.
    pub in_place: Option<usize>,
    /// Every address is a multiple of this many bytes.
    pub alignment: u64,
    /// Bytes of workspace that it may use.
    pub workspace: u64,
}

/// A nest that may run in the kernels of a product.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Following {
    /// The nest.
    pub follower: Follower,
    /// The common alignment of the arguments of both.
    pub alignment: u64,
    /// Bytes that are then not moved: the product is not loaded, and, unless others read it, not
    /// stored.
    pub saved: u64,
    /// Whether these bytes take longer than the library gains.
    pub pays: bool,
}

impl Following {
    /// The reason to compute the product and its follower in one kernel, if the rule says so.
    pub fn by_rule(&self) -> Option<String> {
        let megabytes = self.saved as f64 / 1e6;
        self.pays.then(|| format!("its follower saves {megabytes:.0} MB"))
    }
}

/// A device, as far as it chooses implementations.
pub trait Choose {
    /// The implementation of a call. `compared`: [`product`](Choose::product) has compared it with
    /// kernels of this crate, so that the library computes it if it can.
    ///
    /// Errors: those of the device.
    fn call(&mut self, question: &Question, compared: bool) -> Result<Choice>;

    /// The reason why kernels of this crate compute a product and its follower together, even if
    /// the library can compute the product. None if it is decided by [`call`](Choose::call).
    ///
    /// Errors: those of the device.
    fn product(&mut self, _: &Question, following: &Following) -> Result<Option<String>> {
        Ok(following.by_rule())
    }
}

/// A device without a library.
#[derive(Clone, Copy, Debug)]
pub struct NoLibrary;

impl Choose for NoLibrary {
    fn call(&mut self, _: &Question, _: bool) -> Result<Choice> {
        Ok(Choice::Kernels("there is no library".into()))
    }

    fn product(&mut self, _: &Question, _: &Following) -> Result<Option<String>> {
        Ok(None)
    }
}
