//! Regions: shared bodies inside equations.

use super::Body;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

/// A body that an equation runs.
///
/// Cloning copies a pointer: equations that call one function share one body. Copy on write:
/// other holders keep the old body. Two regions are equal if their bodies are, whatever the
/// locations of their equations. [`Region::is_same`] compares identity.
#[derive(Clone)]
pub struct Region(Arc<Shared>);

#[derive(Default)]
struct Shared {
    body: Body,
    // Caches. Functions call functions, so without them each query would traverse every path to
    // each callee.
    hash: OnceLock<u64>,
    extent: OnceLock<Extent>,
    numbered: OnceLock<bool>,
}

/// The size of a body including its regions and callees.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    /// Nesting depth of regions, including those of callees.
    pub depth: u32,
    /// Number of equations with all calls inlined. Saturates at `u64::MAX`.
    pub equations: u64,
}

impl Body {
    /// The size of the body including its regions and callees.
    pub fn extent(&self) -> Extent {
        let mut extent = Extent { depth: 0, equations: self.equations.len() as u64 };
        for region in self.equations.iter().flat_map(|e| &e.regions) {
            let inner = region.extent();
            extent.depth = extent.depth.max(inner.depth.saturating_add(1));
            extent.equations = extent.equations.saturating_add(inner.equations);
        }
        extent
    }
}

impl Clone for Shared {
    fn clone(&self) -> Self {
        Shared { body: self.body.clone(), ..Shared::default() }
    }
}

impl Region {
    /// True if both are the same object, and so equal without a comparison.
    pub fn is_same(&self, other: &Region) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The address of the shared body, which identifies it while the region lives.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// A copy of the body.
    pub fn to_body(&self) -> Body {
        self.0.body.clone()
    }

    /// The body. It is moved if this is the only holder, else copied.
    pub fn into_body(self) -> Body {
        Arc::try_unwrap(self.0).map_or_else(|shared| shared.body.clone(), |shared| shared.body)
    }

    /// [`Body::extent`], computed once.
    pub fn extent(&self) -> Extent {
        *self.0.extent.get_or_init(|| self.0.body.extent())
    }

    /// [`Body::is_numbered`], computed once.
    pub(super) fn is_numbered(&self) -> bool {
        *self.0.numbered.get_or_init(|| self.0.body.is_numbered())
    }

    fn hash_value(&self) -> u64 {
        *self.0.hash.get_or_init(|| {
            let mut hasher = std::hash::DefaultHasher::new();
            self.0.body.hash(&mut hasher);
            hasher.finish()
        })
    }
}

impl From<Body> for Region {
    fn from(body: Body) -> Self {
        Region(Arc::new(Shared { body, ..Shared::default() }))
    }
}

impl Default for Region {
    fn default() -> Self {
        Body::default().into()
    }
}

impl Deref for Region {
    type Target = Body;

    fn deref(&self) -> &Body {
        &self.0.body
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut Body {
        let shared = Arc::make_mut(&mut self.0);
        (shared.hash, shared.extent, shared.numbered) = Default::default();
        &mut shared.body
    }
}

impl PartialEq for Region {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other)
            || (self.hash_value() == other.hash_value() && self.0.body == other.0.body)
    }
}

impl Eq for Region {}

impl Hash for Region {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash_value().hash(state);
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.body.fmt(f)
    }
}
