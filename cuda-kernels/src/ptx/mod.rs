//! PTX as typed data: registers, instructions, kernels, a module; printed as text.
//!
//! The text is the output: the driver compiles it when a plan is loaded, `ptxas` assembles it in
//! the project's checks, and the emulator runs it. Instructions are typed, so that a form which
//! PTX lacks cannot be written by accident. Their semantics are those of the PTX ISA.
//!
//! **Registers have a width, not a type.** `.b32` registers may be the operands of any 32-bit
//! instruction (PTX ISA, "Operand Size Exceeding Instruction-Type Size" and "Operand type
//! compatibility"), so a bitcast costs nothing and needs no instruction.
//!
//! **Rounding is always written.** Every addition, multiplication, division, square root and
//! fused multiply-add on floats says `.rn`: without it, `ptxas` contracts a multiplication and an
//! addition into one rounding. No instruction flushes subnormals.
//!
//! **Comments are part of the contract.** A comment line says which instruction of a nest the
//! following lines compute; reports of the emulator quote it.
//!
//! Source: NVIDIA, "Parallel Thread Execution ISA", version 8.0.

mod builder;
mod bundle;
pub mod descriptor;
pub mod hopper;
mod instruction;
mod kernel;
mod lanes;
mod module;
mod spelling;
mod template;
mod types;

pub use builder::{Code, Label};
pub use bundle::{Bundle, Class, Family};
pub use instruction::{Binary, Compare, Inst, Line, Rounding, Shuffle, Statement, Ternary, Unary};
pub use kernel::{Extern, Function, Kernel, Parameter, SharedArray};
pub use lanes::Lanes;
pub use module::Module;
pub use template::Template;
pub use types::{Operand, Reg, Space, Special, Type, Width};

#[cfg(test)]
mod tests;
