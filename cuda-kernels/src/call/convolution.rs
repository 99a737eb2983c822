//! Convolutions as products (*implicit GEMM*), one for each group.
//!
//! | direction | rows | columns | sum over |
//! |---|---|---|---|
//! | forward | images, positions of the result | output channels | taps, input channels |
//! | input gradient | images, positions of the input | input channels | taps, output channels |
//! | filter gradient | taps, input channels | output channels | images, positions of the result |
//!
//! One operand of the product is the tensor that taps meet: each of its elements occurs as often
//! as a tap meets it. The other is a matrix with its layout in memory. Strides, dilations and
//! padding affect only the positions where taps meet.

use super::index::check_extent;
use super::number::Number;
use super::product::{self, ALIGNMENT, Digit, Gather, Meeting, Moves, Out, Product};
use super::{Kernels, Terms};
use crate::stage::Compiled;
use wengert_core::Result;
use wengert_core::call::{Addends, Convolution, Direction, Window};

impl Kernels for Convolution {
    fn compile(&self, terms: &Terms<'_>) -> Result<Compiled> {
        product::compile(&product(self, terms.workspace)?, terms)
    }

    fn workspace(&self) -> u64 {
        product::workspace(self)
    }
}

/// The product that computes a convolution.
///
/// Errors: positions of the padded input exceed the range that kernels can count.
fn product(call: &Convolution, workspace: u64) -> Result<Product> {
    for w in &call.window {
        let reach = (w.output.max(1) * w.stride).saturating_add(w.filter.max(1) * w.rhs_dilation);
        let reach = reach.max(w.input.max(1) * w.lhs_dilation + w.filter.max(1) * w.rhs_dilation);
        check_extent("the reach of a window", reach.saturating_add(w.low.unsigned_abs() as usize))?;
    }
    let number = Number(call.dtype);
    let volume = |f: fn(&Window) -> usize| call.window.iter().map(f).product::<usize>();
    let (input, filter, output) = (volume(|w| w.input), volume(|w| w.filter), volume(|w| w.output));
    let (cin, cout) = (call.input_channels, call.output_channels);
    let (inputs, outputs) = ((call.groups * cin) as i64, (call.groups * cout) as i64);
    let by = |extent: usize, stride: i64| Digit { extent, moves: Moves::By(stride) };
    let gather =
        |batch: usize, outer: Vec<Digit>, depth: Vec<Digit>, meetings: Vec<Meeting>| Gather {
            number,
            batch: batch as i64,
            base: 0,
            outer,
            depth,
            meetings,
            alignment: ALIGNMENT,
        };
    let plain = |batch: usize, outer: Digit, depth: Vec<Digit>| {
        gather(batch, vec![outer], depth, vec![]).simplify()
    };
    // Digits for the positions where taps meet the input, and where they meet the result.
    let in_input = |factor: fn(&Window) -> (usize, i64)| meet(call, factor);
    let (lhs, rhs, arguments, out, [m, n, k]);
    match call.direction {
        Direction::Forward => {
            let mut outer = vec![by(call.batch, input as i64 * inputs)];
            outer.extend(in_input(|w| (w.output, w.stride as i64)));
            let mut depth = in_input(|w| (w.filter, w.rhs_dilation as i64));
            depth.push(by(cin, 1));
            let meetings = meetings(call, inputs, |w| (-w.low, w.lhs_dilation, w.input));
            lhs = gather(cin, outer, depth, meetings);
            rhs = plain(cout, by(cout, 1), vec![by(filter * cin, outputs)]);
            arguments = [0, 1];
            out = Out { batch: cout as i64, row: outputs };
            [m, n, k] = [call.batch * output, cout, filter * cin];
        }
        Direction::InputGradient => {
            let mut outer = vec![by(call.batch, output as i64 * outputs)];
            outer.extend(in_input(|w| (w.input, w.lhs_dilation as i64)));
            let mut depth = in_input(|w| (w.filter, -(w.rhs_dilation as i64)));
            depth.push(by(cout, 1));
            let meetings = meetings(call, outputs, |w| (w.low, w.stride, w.output));
            lhs = gather(cout, outer, depth, meetings);
            rhs =
                plain(cout, by(cin, outputs), vec![by(filter, cin as i64 * outputs), by(cout, 1)]);
            arguments = [1, 0];
            out = Out { batch: cin as i64, row: inputs };
            [m, n, k] = [call.batch * input, cin, filter * cout];
        }
        Direction::FilterGradient => {
            let mut outer = in_input(|w| (w.filter, w.rhs_dilation as i64));
            outer.push(by(cin, 1));
            let mut depth = vec![by(call.batch, input as i64 * inputs)];
            depth.extend(in_input(|w| (w.output, w.stride as i64)));
            let meetings = meetings(call, inputs, |w| (-w.low, w.lhs_dilation, w.input));
            lhs = gather(cin, outer, depth, meetings);
            rhs = plain(cout, by(cout, 1), vec![by(call.batch * output, outputs)]);
            arguments = [0, 1];
            out = Out { batch: cout as i64, row: outputs };
            [m, n, k] = [filter * cin, cout, call.batch * output];
        }
    }
    // If the source has no element, every sum is empty.
    let k = if lhs.meetings.iter().any(|meeting| meeting.extent == 0) { 0 } else { k };
    Ok(Product {
        name: format!("convolution_{}", call.direction.name()),
        batch: call.groups,
        m,
        n,
        k,
        lhs: if k == 0 { lhs } else { lhs.simplify() },
        rhs,
        arguments,
        operand: call.dtype,
        scales: None,
        result: call.result_dtype(),
        out,
        addends: Addends::default(),
        follower: None,
        result_argument: 2,
        in_place: None,
        workspace,
        tf32: false,
        alignment: ALIGNMENT,
    })
}

/// One digit for each spatial axis, with its extent and its factor.
fn meet(call: &Convolution, factor: fn(&Window) -> (usize, i64)) -> Vec<Digit> {
    let digit = |(axis, w): (usize, &Window)| {
        let (extent, factor) = factor(w);
        Digit { extent, moves: Moves::Meeting(axis, factor) }
    };
    call.window.iter().enumerate().map(digit).collect()
}

/// Offset, divisor and extent along each axis of a source with `channels` channels.
fn meetings(
    call: &Convolution,
    channels: i64,
    axis: fn(&Window) -> (i64, usize, usize),
) -> Vec<Meeting> {
    let mut stride = channels;
    let mut found: Vec<Meeting> = vec![];
    for w in call.window.iter().rev() {
        let (offset, divisor, extent) = axis(w);
        found.push(Meeting { offset, divisor, extent, stride });
        stride *= extent as i64;
    }
    found.reverse();
    found
}
