//! Runs Wengert plans on CPU threads with SIMD.

pub mod call;
pub mod executable;
mod kernels;
pub mod memory;
mod native;
pub mod nest;
pub mod pool;
pub mod ranks;
pub mod simd;
mod transfers;

pub use call::CompiledCall;
pub use executable::{CpuExecutable, RunMemory};
pub use memory::{AlignedBytes, Buffer, Workspace};
pub use nest::CompiledNest;
pub use pool::Pool;
pub use ranks::World;
pub use simd::Simd;
