//! The peak of the given order: the baseline for planning.

use super::homes::Homes;
use crate::kernels::{Kernel, Kernels, Work};
use wengert_core::Target;

/// The greatest load of the arena in the given order without memory planning. Each buffer has
/// bytes of its own from its kernel to its last reader, rounded up as in a plan. Operands and
/// results do not share bytes, so no result is in place.
///
/// Memory outside the arena (inputs, variables, constants, outputs) does not count, as in a plan:
/// a variable's new value is assumed to overwrite the old one, even if that is still read.
/// Workspaces of calls count while their kernel runs. So do regions, one at a time, each with its
/// own such peak.
pub fn naive_peak(kernels: &Kernels, target: &Target) -> u64 {
    let mut bytes = Homes::fixed(kernels).arena_bytes(kernels);
    bytes.iter_mut().for_each(|(_, bytes)| *bytes = bytes.next_multiple_of(target.alignment));
    let count = kernels.kernels.len();
    // Bytes freed after each kernel. A buffer without readers is freed after its own kernel.
    let mut last: Vec<usize> = vec![0; bytes.len()];
    for (k, kernel) in kernels.kernels.iter().enumerate() {
        kernel.reads.iter().chain(&kernel.writes).for_each(|b| last[b.0 as usize] = k);
    }
    let mut freed = vec![0u64; count];
    for buffer in kernels.kernels.iter().flat_map(|kernel| &kernel.writes) {
        freed[last[buffer.0 as usize]] += bytes[*buffer];
    }
    let (mut load, mut peak) = (0u64, 0u64);
    for (kernel, freed) in kernels.kernels.iter().zip(freed) {
        load += kernel.writes.iter().map(|b| bytes[*b]).sum::<u64>();
        peak = peak.max(load + workspace(kernel, target));
        load -= freed;
    }
    peak
}

/// Bytes of the arena that a kernel needs besides operands and results.
fn workspace(kernel: &Kernel, target: &Target) -> u64 {
    match &kernel.work {
        Work::Nest(_) => 0,
        Work::Call(call) => target.workspace(call),
        Work::Followed(followed) => target.workspace(&followed.call),
        Work::Control(control) => {
            control.regions.iter().map(|region| naive_peak(region, target)).max().unwrap_or(0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Sample;
    use wengert_core::graph::{InputRole, OutputRole};

    #[test]
    fn everything_lies_beside_everything_until_it_was_last_read() {
        let mut s = Sample::new();
        let x = s.input("x", InputRole::Input, 1000);
        let a = s.reversed(x);
        let b = s.reversed(x);
        let c = s.reversed(a);
        let d = s.sum(&[b, c]);
        s.output("y", OutputRole::Output, d);
        // a, b and c are live while c is computed; input and output lie outside the arena.
        assert_eq!(naive_peak(&s.0, &Target::cpu()), 3 * 4032);
    }
}
