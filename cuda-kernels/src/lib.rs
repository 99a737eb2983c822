//! Plans on NVIDIA GPUs.
//!
//! ```text
//! Plan ─► Lowered: one PTX module, launches ─► driver (cudarc)
//!                                           └► emulator (wengert-emulator, joined by `wengert`)
//! ```
//!
//! Everything up to the driver is pure: it needs no GPU, no driver and no toolkit, and gives the
//! same text for the same plan. Only `driver` calls a driver.
#![deny(unsafe_code)]

pub mod architecture;
pub mod assembly;
pub mod call;
pub mod condition;
pub mod driver;
pub mod executable;
pub mod lowered;
pub mod nest;
pub mod ptx;
pub mod scalar;
pub mod stage;
pub mod target;
