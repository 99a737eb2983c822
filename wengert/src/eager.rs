//! Re-export of define-by-run execution: see [`wengert_compiler::autodiff::eager`].
//!
//! ```
//! use wengert::prelude::*;
//! # fn main() -> Result<()> {
//! let x = Tracked::new(&Tensor::constant(1.5f64));
//! let mut y = x.sin();
//! while y.item()? > 0.1 {
//!     y = y.square() * 0.5;
//! }
//! // The gradient of what was computed, by walking its list back.
//! let dx = x.gradient(&y);
//! assert!(dx.item()?.is_finite());
//! println!("{x}"); // every operation so far, with its value
//! # Ok(())
//! # }
//! ```

pub use wengert_compiler::autodiff::eager::{
    Tracked, gradient, or_poison, pull_back, push_forward,
};
