//! A model of NVIDIA GPUs: the time of a launch from its machine code and its counts, without a
//! GPU.
//!
//! Two sources are joined. The machine code (SASS) that `ptxas` makes of a kernel says which
//! instructions there are, on which pipe each runs, how wide its accesses are, how many blocks
//! are resident. The emulator says how often each line of the PTX text is executed, and which
//! sectors of which memory it touches. They meet in the line of the PTX text, which `ptxas
//! -lineinfo` keeps and `nvdisasm -gp` prints.
//!
//! ```text
//! PTX ─► ptxas -lineinfo ─► nvdisasm -gp -c ─► sass ─┐
//!  │                                                 ├─► join ─► predict ─► seconds, limiter
//!  └───► wengert-emulator ─────────────────► Counts ─┘              ▲
//!                                                          card ────┘
//! ```
//!
//! - [`card`]: figures of GPUs, each with its source.
//! - [`sass`]: parser, control-flow graph, loops, facts that follow from the code alone.
//! - [`pipe`]: cost of an instruction.
//! - [`ptxas`], [`occupancy`]: registers and shared memory of a kernel, and its resident blocks.
//! - [`ptx`], [`join`]: how often each machine instruction is executed.
//! - [`sampling`]: the blocks that the emulator runs and counts.
//! - [`predict`]: the time, and what limits it; its formulas are there.
//!
//! Constants come from publications, not from measurements of this project's kernels. So a
//! difference between prediction and measurement is a finding, about the model or the kernel.
//!
//! The crate reads no file and starts no process. Its result depends on its arguments only.
#![forbid(unsafe_code)]

pub mod card;
pub mod join;
pub mod occupancy;
pub mod pipe;
pub mod predict;
pub mod ptx;
pub mod ptxas;
pub mod sampling;
pub mod sass;
