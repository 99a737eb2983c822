//! Buffers with a record of the accesses to each element.

use super::resolve::Place;
use crate::allocation::reserved;
use crate::diagnostic::{Diagnostic, Result};
use crate::literal::Literal;
use crate::nest::{Buffer, BufferRole, Nest};
use crate::scalar::Scalar;
use crate::ty::TensorType;

/// The time of an access. Numbers are never reused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Now {
    /// Number of the row.
    pub row: u64,
    /// Number of this run of a phase: one for each phase of each row.
    pub epoch: u64,
    /// Number of this run of a body.
    pub iteration: u64,
}

/// The last accesses to an element.
#[derive(Clone, Default)]
struct Trace {
    written: Option<Now>,
    read: Option<Now>,
    /// Whether more than one iteration made the reads of `read`'s epoch, and whether more than
    /// one row made those of the run.
    read_by_iterations: bool,
    read_by_rows: bool,
}

/// A vector of equal elements.
///
/// Error: there is not enough memory.
fn filled<T: Clone>(value: T, count: usize) -> Result<Vec<T>> {
    let mut vector = reserved(count)?;
    vector.resize(count, value);
    Ok(vector)
}

pub(super) struct Memory {
    buffer: Buffer,
    bits: Vec<u64>,
    record: Record,
}

/// The record of accesses, by element.
enum Record {
    /// For `in`: nothing.
    None,
    /// For `out`: whether it is written.
    Written(Vec<bool>),
    /// For the others: the last accesses.
    Traced(Vec<Trace>),
}

impl Memory {
    /// A buffer that holds `input`, or is uninitialised.
    pub fn new(buffer: &Buffer, input: Option<&Literal>) -> Result<Memory> {
        let elements: usize = buffer.shape.iter().product();
        let bits = match input {
            Some(literal) if literal.dtype() == buffer.dtype && literal.shape() == buffer.shape => {
                let mut bits = reserved(elements)?;
                bits.extend(literal.scalars().map(|s| s.bits()));
                bits
            }
            Some(literal) => {
                return Err(Diagnostic::new(format!(
                    "`%{}` is {}, the input given is {}",
                    buffer.name,
                    TensorType::new(buffer.dtype, buffer.shape.iter().copied()),
                    literal.ty()
                )));
            }
            None => filled(0, elements)?,
        };
        let record = match buffer.role {
            BufferRole::In => Record::None,
            BufferRole::Out => Record::Written(filled(false, elements)?),
            BufferRole::InOut | BufferRole::Row => {
                Record::Traced(filled(Trace::default(), elements)?)
            }
        };
        Ok(Memory { buffer: buffer.clone(), bits, record })
    }

    /// The number of the accessed element.
    pub fn locate(
        &self,
        place: &Place,
        axes: &[i64],
        registers: &[u64],
    ) -> std::result::Result<usize, String> {
        let mut at = 0;
        for (index, extent) in place.indices.iter().zip(&self.buffer.shape) {
            let mut value = index.evaluate(axes, registers);
            let last = *extent as i64 - 1;
            if place.clamp {
                value = value.clamp(0, last);
            } else if value < 0 || value > last {
                return Err(format!(
                    "index {value} is out of bounds of extent {extent} of `%{}`",
                    self.buffer.name
                ));
            }
            at = at * extent + value as usize;
        }
        Ok(at)
    }

    /// Reads an element.
    pub fn load(&mut self, at: usize, now: Now) -> std::result::Result<u64, String> {
        let Record::Traced(traces) = &mut self.record else { return Ok(self.bits[at]) };
        let trace = &mut traces[at];
        let name = &self.buffer.name;
        match (self.buffer.role, trace.written) {
            (BufferRole::Row, Some(written)) if written.epoch == now.epoch => {
                return Err(format!(
                    "element {at} of `%{name}` is read in the phase that wrote it"
                ));
            }
            (BufferRole::Row, Some(written)) if written.row == now.row => {}
            (BufferRole::Row, _) => {
                return Err(format!("element {at} of `%{name}` is read before it is written"));
            }
            (_, Some(_)) => {
                return Err(format!("element {at} of `%{name}` is read after it was written"));
            }
            _ => {}
        }
        let last = trace.read.unwrap_or(now);
        trace.read_by_rows |= last.row != now.row;
        trace.read_by_iterations = last.epoch == now.epoch
            && (trace.read_by_iterations || last.iteration != now.iteration);
        trace.read = Some(now);
        Ok(self.bits[at])
    }

    /// Writes an element.
    pub fn store(&mut self, at: usize, bits: u64, now: Now) -> std::result::Result<(), String> {
        let (name, row) = (&self.buffer.name, self.buffer.role == BufferRole::Row);
        let again = || format!("element {at} of `%{name}` is written a second time");
        let trace = match &mut self.record {
            Record::Traced(traces) => &mut traces[at],
            Record::Written(written) => {
                if std::mem::replace(&mut written[at], true) {
                    return Err(again());
                }
                self.bits[at] = bits;
                return Ok(());
            }
            Record::None => unreachable!("the verifier lets nothing be stored to an `in` buffer"),
        };
        if trace.written.is_some_and(|w| !row || w.epoch == now.epoch) {
            return Err(again());
        }
        if let Some(read) = trace.read {
            let by_row = !row && (trace.read_by_rows || read.row != now.row);
            let by_iteration = read.epoch == now.epoch
                && (trace.read_by_iterations || read.iteration != now.iteration);
            if by_row || by_iteration {
                return Err(format!(
                    "element {at} of `%{name}` has been read by another iteration"
                ));
            }
        }
        trace.written = Some(now);
        self.bits[at] = bits;
        Ok(())
    }

    /// The results: `out` and `inout` buffers. Fails if an element of `out` was never written.
    pub fn into_literal(self, nest: &Nest) -> Option<Result<Literal>> {
        let Buffer { name, dtype, shape, role, .. } = &self.buffer;
        if matches!(role, BufferRole::In | BufferRole::Row) {
            return None;
        }
        if let Record::Written(written) = &self.record
            && let Some(at) = written.iter().position(|w| !w)
        {
            let wrong = format!("nest @{}: element {at} of `%{name}` is never written", nest.name);
            return Some(Err(Diagnostic::new(wrong)));
        }
        let values: Vec<Scalar> = self.bits.iter().map(|b| Scalar::from_bits(*dtype, *b)).collect();
        Some(Literal::from_scalars(*dtype, shape, &values))
    }
}
