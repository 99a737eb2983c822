//! Kernels that set the conditions of a CUDA graph's conditional nodes.
//!
//! A conditional node has a *handle*, a number of 64 bits. A kernel of the graph sets the handle's
//! value by the device function `cudaGraphSetConditional(handle, value)`. The node then executes a
//! body graph or not (IF), the body graph of that number (SWITCH), or its body graph again and
//! again, as long as the body sets a value other than 0 (WHILE).
//!
//! One thread of such a kernel reads the scalar of a plan's loop or branch, clamps it as
//! [`wengert_core::plan::walk`] does, and sets the value. A loop has a word of memory with the
//! iterations that are left, so a device stops an endless loop at the limit that its plan states.
//!
//! The parameters are addresses and numbers of 64 bits:
//!
//! | kernel | parameters | value | word `left` |
//! |---|---|---|---|
//! | `choose_BYTES` | handle, scalar, last | min(max(scalar, 0), last) | |
//! | `equals_BYTES` | handle, scalar, last, arm | whether that is `arm` | |
//! | `begin_while` | handle, bool, left, limit | bool and limit > 0 | limit |
//! | `next_while` | handle, bool, left | bool and left > 1 | left − 1 |
//! | `begin_count_BYTES` | handle, scalar, left, limit | n > 0 | n = min(max(scalar, 0), limit) |
//! | `begin_times` | handle, left, times | times > 0 | times |
//! | `next_count` | handle, left | left > 1 | left − 1 |
//! | `nothing` | | | |
//!
//! **The module is one of its own.** No text defines `cudaGraphSetConditional`, and the emulator
//! has no such function, so the kernels of plans are not in this module. The function is a system
//! call, such as `vprintf`: `ptxas` assembles a whole program that calls it, and lists the call
//! among those that the driver resolves (`EIATTR_SYSCALL_OFFSETS`), whereas an unknown external
//! function is an error. So it needs no `libcudadevrt`. NVIDIA does not document this. XLA relies
//! on it: its `command_buffer_kernels.cc` embeds PTX with the same declaration, which the driver
//! compiles. This project has not run it on a GPU. A driver that refuses the module leaves loops
//! and branches to the host.

use crate::ptx::{
    Binary, Code, Compare, Extern, Inst, Kernel, Module, Operand, Parameter, Reg, Rounding, Space,
    Type,
};

/// The device function that sets the value of a handle.
pub const SET: &str = "cudaGraphSetConditional";

/// Sizes of the scalars that a loop or branch reads: bool, i32, i64.
pub const SCALARS: [u64; 3] = [1, 4, 8];

/// The text of the module.
pub fn module() -> String {
    let mut kernels = vec![begin_while(), next_while(), begin_times(), next_count(), nothing()];
    for bytes in SCALARS {
        kernels.extend([choose(bytes), equals(bytes), begin_count(bytes)]);
    }
    let set = Extern { name: SET.into(), parameters: vec![Type::B64, Type::B32] };
    Module { externs: vec![set], kernels, ..Module::default() }.to_string()
}

/// The size of a scalar as the names of kernels have it: `walk` reads bool, i32, or else i64.
pub fn scalar_bytes(bytes: u64) -> u64 {
    match bytes {
        1 | 4 => bytes,
        _ => 8,
    }
}

fn choose(bytes: u64) -> Kernel {
    let remark = "Sets the number of the branch that is executed.";
    kernel(&format!("choose_{bytes}"), remark, &["handle", "scalar@", "last"], |code, given| {
        let chosen = clamped(code, bytes, given[1], given[2]);
        set(code, given[0], chosen);
    })
}

fn equals(bytes: u64) -> Kernel {
    let remark = "Sets whether the branch with the number `arm` is executed.";
    let parameters = ["handle", "scalar@", "last", "arm"];
    kernel(&format!("equals_{bytes}"), remark, &parameters, |code, given| {
        let chosen = clamped(code, bytes, given[1], given[2]);
        let equal = code.compare(Compare::Eq, Type::U64, chosen, given[3]);
        set_if(code, given[0], equal);
    })
}

fn begin_while() -> Kernel {
    let remark = "Sets whether the first iteration is executed, and the iterations that are left.";
    kernel("begin_while", remark, &["handle", "condition@", "left@", "limit"], |code, given| {
        code.store(Space::Global, Type::U64, given[2], 0, given[3]);
        set_while(code, given[0], given[1], given[3]);
    })
}

fn next_while() -> Kernel {
    let remark = "Ends an iteration, and sets whether the next one is executed.";
    kernel("next_while", remark, &["handle", "condition@", "left@"], |code, given| {
        let left = one_less(code, given[2]);
        set_while(code, given[0], given[1], left);
    })
}

fn begin_count(bytes: u64) -> Kernel {
    let remark = "Reads the number of iterations, and sets whether there is one.";
    let parameters = ["handle", "scalar@", "left@", "limit"];
    kernel(&format!("begin_count_{bytes}"), remark, &parameters, |code, given| {
        let left = clamped(code, bytes, given[1], given[3]);
        code.store(Space::Global, Type::U64, given[2], 0, left);
        set_left(code, given[0], left);
    })
}

fn begin_times() -> Kernel {
    let remark = "Sets a constant number of iterations, and whether there is one.";
    kernel("begin_times", remark, &["handle", "left@", "times"], |code, given| {
        code.store(Space::Global, Type::U64, given[1], 0, given[2]);
        set_left(code, given[0], given[2]);
    })
}

fn next_count() -> Kernel {
    let remark = "Ends an iteration, and sets whether there is another one.";
    kernel("next_count", remark, &["handle", "left@"], |code, given| {
        let left = one_less(code, given[1]);
        set_left(code, given[0], left);
    })
}

fn nothing() -> Kernel {
    kernel("nothing", "The body of a branch without steps.", &[], |_, _| {})
}

/// A kernel of one thread. The names of addresses end in `@`.
fn kernel(
    name: &str,
    remark: &str,
    parameters: &[&str],
    body: impl FnOnce(&mut Code, &[Reg]),
) -> Kernel {
    let mut code = Code::new();
    let mut given = Vec::new();
    let parameters: Vec<Parameter> = parameters
        .iter()
        .map(|name| {
            let (name, align) = match name.strip_suffix('@') {
                Some(name) => (name, 1),
                None => (*name, 0),
            };
            Parameter { name: name.into(), ty: Type::U64, align }
        })
        .collect();
    for parameter in &parameters {
        let name = Operand::Symbol(parameter.name.clone());
        given.push(code.load(Space::Param, Type::U64, name, 0));
    }
    body(&mut code, &given);
    Kernel {
        name: name.into(),
        remark: remark.into(),
        parameters,
        threads: 1,
        resident: 0,
        shared: Vec::new(),
        dynamic_shared: false,
        // The condition must be set when the node begins, so nothing overlaps.
        early: false,
        local: Vec::new(),
        code,
    }
}

/// A scalar, at least 0 and at most `most`.
fn clamped(code: &mut Code, bytes: u64, at: Reg, most: Reg) -> Reg {
    let value = match bytes {
        1 => {
            let byte = code.load(Space::Global, Type::U8, at, 0);
            code.convert(Rounding::Exact, Type::U64, Type::U32, byte)
        }
        4 => {
            let word = code.load(Space::Global, Type::S32, at, 0);
            code.convert(Rounding::Exact, Type::S64, Type::S32, word)
        }
        _ => code.load(Space::Global, Type::S64, at, 0),
    };
    let value = code.binary(Binary::Max, Type::S64, value, 0);
    code.binary(Binary::Min, Type::U64, value, most)
}

/// Takes one from the word, and returns the rest.
fn one_less(code: &mut Code, at: Reg) -> Reg {
    let left = code.load(Space::Global, Type::U64, at, 0);
    let left = code.binary(Binary::Sub, Type::U64, left, 1);
    code.store(Space::Global, Type::U64, at, 0, left);
    left
}

/// Sets whether iterations are left.
fn set_left(code: &mut Code, handle: Reg, left: Reg) {
    let more = code.compare(Compare::Ne, Type::U64, left, 0);
    set_if(code, handle, more);
}

/// Sets whether iterations are left and the condition is true.
fn set_while(code: &mut Code, handle: Reg, condition: Reg, left: Reg) {
    let holds = code.load(Space::Global, Type::U8, condition, 0);
    let holds = code.convert(Rounding::Exact, Type::U64, Type::U32, holds);
    let zero = code.mov(Type::U64, 0);
    let more = code.compare(Compare::Ne, Type::U64, left, 0);
    let value = code.select(Type::U64, holds, zero, more);
    let value = code.compare(Compare::Ne, Type::U64, value, 0);
    set_if(code, handle, value);
}

fn set_if(code: &mut Code, handle: Reg, predicate: Reg) {
    let value = code.select(Type::U64, 1, 0, predicate);
    set(code, handle, value);
}

/// Sets a value below 2³².
fn set(code: &mut Code, handle: Reg, value: Reg) {
    let value = code.convert(Rounding::Exact, Type::U32, Type::U64, value);
    code.push(Inst::CallExtern {
        function: SET.into(),
        arguments: vec![(Type::B64, handle.into()), (Type::B32, value.into())],
    });
}

#[cfg(test)]
pub(crate) mod tests;
