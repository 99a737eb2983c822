//! The choice of pitches: padding between the rows of temporaries.
//!
//! Rows of 50257 halves begin at every multiple of 2 bytes. A kernel that reads such rows loads
//! single elements, and libraries of products have no fast kernels for them. With a
//! [pitch](wengert_core::pitch) of 50264 elements every row is aligned to 16 bytes. The padding
//! costs less than 16 bytes for each row, and no traffic.
//!
//! A buffer is a **candidate** if it is a temporary with long rows that are not aligned, and each
//! kernel that writes or reads it takes a pitch:
//!
//! - a nest whose parameter has the buffer's rows. Lowering gives a parameter that is accessed
//!   element by element one dimension ([`crate::lower`]); its accesses are aligned as they are.
//! - a product of which it is the result, or of which it is an operand that stays in the rows
//!   ([`padded`](wengert_core::call::Contract::padded)). A product with a follower takes padded
//!   operands; its result and the other operands of the follower are dense.
//!
//! A nest may overwrite an operand with a result only if both have the same pitch. In place saves
//! a whole buffer, so two buffers of which one may overwrite the other are padded both or not at
//! all. Such buffers form a group. A group is padded if a call writes or reads it: nests alone gain
//! too little.

use crate::kernels::{BufferId, Kernel, Kernels, Work};
use wengert_core::call::Call;
use wengert_core::id::{Id, IdVec};
use wengert_core::nest::{self, Nest};
use wengert_core::pitch::PaddedRows;
use wengert_core::{TensorType, Verified};

/// Fewest elements of a row that gets padding. Shorter rows are read by one warp or one thread.
const ROW: usize = 64;
/// Most padding of a row: this part of it.
const PART: usize = 8;

/// Gives the temporaries of a function, or of a region, pitches that align their rows to
/// `alignment` bytes.
pub(crate) fn pad(kernels: &mut Kernels, alignment: usize) {
    let rows = Candidates::new(kernels, alignment).chosen();
    if rows.iter().all(|(_, rows)| rows.is_none()) {
        return;
    }
    for (id, rows) in rows.iter() {
        kernels.buffers[id].pitch = rows.map(|rows| rows.pitch);
    }
    for kernel in &mut kernels.kernels {
        let arguments = || kernel.reads.iter().chain(&kernel.writes).map(|id| rows[*id]);
        match &mut kernel.work {
            Work::Nest(nest) if arguments().any(|rows| rows.is_some()) => {
                let pitches: Vec<_> = arguments().map(|rows| rows.map(|r| r.pitch)).collect();
                **nest = padded(nest, &pitches);
            }
            Work::Call(call) => pad_call(call, arguments()),
            Work::Followed(followed) => {
                let operands = followed.call.operands().len();
                pad_call(&mut followed.call, arguments().take(operands));
            }
            Work::Nest(_) | Work::Control(_) => {}
        }
    }
}

/// Gives a call the rows of its arguments.
fn pad_call(call: &mut Call, rows: impl Iterator<Item = Option<PaddedRows>>) {
    for (n, rows) in rows.enumerate() {
        if let Some(rows) = rows {
            *call = call.padded(n, rows).expect("a candidate has rows that its calls take");
        }
    }
}

/// The nest whose parameters have these pitches.
fn padded(nest: &Verified<Nest>, pitches: &[Option<usize>]) -> Verified<Nest> {
    let mut nest = nest.clone().into_inner();
    for (n, pitch) in pitches.iter().enumerate() {
        nest.buffers[nest::BufferId::new(n)].pitch = *pitch;
    }
    Verified::new(nest).expect("a pitch keeps every invariant of a nest with such rows")
}

/// The buffers that may get a pitch.
struct Candidates {
    /// The padded rows of each candidate.
    rows: IdVec<BufferId, Option<PaddedRows>>,
    /// The buffers that a call writes or reads.
    of_calls: IdVec<BufferId, bool>,
    /// Pairs of buffers, at least one of them a candidate: a nest may overwrite the first with the
    /// second.
    in_place: Vec<(BufferId, BufferId)>,
}

impl Candidates {
    fn new(kernels: &Kernels, alignment: usize) -> Candidates {
        let buffers = kernels.buffers.iter();
        let mut candidates = Candidates {
            rows: buffers.map(|(_, b)| aligned(&b.ty, alignment)).collect(),
            of_calls: kernels.buffers.ids().map(|_| false).collect(),
            in_place: Vec::new(),
        };
        let inputs = kernels.inputs.iter().map(|(_, id)| *id);
        let constants = kernels.constants.iter().map(|(id, _)| *id);
        let outputs = kernels.outputs.iter().map(|(_, _, id)| *id);
        inputs.chain(constants).chain(outputs).for_each(|id| candidates.rows[id] = None);
        for kernel in &kernels.kernels {
            for (n, id) in kernel.reads.iter().chain(&kernel.writes).enumerate() {
                let takes = |rows: PaddedRows| takes(kernel, n, rows);
                candidates.rows[*id] = candidates.rows[*id].filter(|rows| takes(*rows));
                candidates.of_calls[*id] |= kernel.call().is_some();
            }
        }
        for kernel in &kernels.kernels {
            candidates.add_in_place(kernel);
        }
        candidates
    }

    /// Adds the pairs of buffers that a nest may have in place.
    fn add_in_place(&mut self, kernel: &Kernel) {
        let Work::Nest(nest) = &kernel.work else { return };
        for read in kernel.distinct_reads() {
            for (n, write) in kernel.writes.iter().enumerate() {
                if self.rows[read].or(self.rows[*write]).is_none() {
                    continue;
                }
                let result = nest::BufferId::new(kernel.reads.len() + n);
                let places = (0..kernel.reads.len()).filter(|n| kernel.reads[*n] == read);
                let pairs: Vec<_> = places.map(|n| (nest::BufferId::new(n), result)).collect();
                if nest::may_alias(nest, &pairs) {
                    self.in_place.push((read, *write));
                }
            }
        }
    }

    /// The padded rows of the buffers that get a pitch: those of groups without any other buffer,
    /// and with one that a call writes or reads.
    fn chosen(self) -> IdVec<BufferId, Option<PaddedRows>> {
        let others: Vec<_> = self.in_place.iter().flat_map(|(a, b)| [*a, *b]).collect();
        let others = others.into_iter().filter(|id| self.rows[*id].is_none());
        let dense = self.reached(others);
        let of_calls = self.of_calls.iter().filter(|(_, of)| **of).map(|(id, _)| id);
        let of_calls = self.reached(of_calls);
        let chosen = |(id, rows): (BufferId, &Option<PaddedRows>)| {
            rows.filter(|_| of_calls[id] && !dense[id])
        };
        self.rows.iter().map(chosen).collect()
    }

    /// The buffers of the groups of some buffers.
    fn reached(&self, of: impl Iterator<Item = BufferId>) -> IdVec<BufferId, bool> {
        let mut neighbours: IdVec<BufferId, Vec<BufferId>> =
            self.rows.iter().map(|_| Vec::new()).collect();
        for (read, write) in &self.in_place {
            neighbours[*read].push(*write);
            neighbours[*write].push(*read);
        }
        let mut reached: IdVec<BufferId, bool> = self.rows.iter().map(|_| false).collect();
        let mut next: Vec<BufferId> = of.collect();
        while let Some(id) = next.pop() {
            if !std::mem::replace(&mut reached[id], true) {
                next.extend(&neighbours[id]);
            }
        }
        reached
    }
}

/// The rows that align a type to `alignment` bytes; `None` if it is aligned, or not worth it.
fn aligned(ty: &TensorType, alignment: usize) -> Option<PaddedRows> {
    let extents = ty.extents()?;
    let (extent, outer) = extents.split_last()?;
    let unit = alignment / ty.dtype.size();
    let several = outer.iter().product::<usize>() > 1;
    if unit <= 1 || !several || *extent < ROW || extent.is_multiple_of(unit) {
        return None;
    }
    let pitch = extent.checked_next_multiple_of(unit)?;
    (pitch - extent <= extent / PART).then_some(PaddedRows { extent: *extent, pitch })
}

/// Whether a kernel takes argument `n` with such rows.
fn takes(kernel: &Kernel, n: usize, rows: PaddedRows) -> bool {
    match &kernel.work {
        Work::Nest(nest) => {
            let shape = &nest.buffers[nest::BufferId::new(n)].shape;
            shape.len() > 1 && shape.last() == Some(&rows.extent)
        }
        Work::Call(call) => call.padded(n, rows).is_some(),
        Work::Followed(followed) => {
            n < followed.call.operands().len() && followed.call.padded(n, rows).is_some()
        }
        Work::Control(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::kernels::{Kernels, Work};
    use crate::pipeline::{Options, compile_kernels};
    use wengert_core::Target;
    use wengert_core::graph::parse_program;
    use wengert_testing::targets::gpu;

    fn kernels(text: &str, target: &Target) -> Kernels {
        let program = parse_program(text, "f.ir").unwrap();
        compile_kernels(&program.functions()[0], target, &Options::default()).unwrap().kernels
    }

    /// Extents and pitch of each padded buffer, those of regions included.
    fn pitches(kernels: &Kernels) -> Vec<(Vec<usize>, usize)> {
        let buffers = kernels.buffers.iter();
        let own = buffers.filter_map(|(_, b)| Some((b.ty.extents().unwrap(), b.pitch?)));
        let mut found: Vec<_> = own.collect();
        for kernel in &kernels.kernels {
            if let Work::Control(control) = &kernel.work {
                found.extend(control.regions.iter().flat_map(pitches));
            }
        }
        found
    }

    /// Logits that a softmax replaces and a product reads; `V` is the number of classes.
    fn classifier(rows: usize, classes: usize, dtype: &str, outputs: &str) -> String {
        let text = "func @f(%x: T[R,24], %w: T[24,V]) -> (y: T[R,24]OUT) {
              %0: T[R,V] = dot_general %x, %w {contract=[[1],[0]]}
              %1: T[R,V] = softmax %0 {axis=1}
              %2: T[R,24] = dot_general %1, %w {contract=[[1],[1]]}
              return %2MORE }";
        let (out, more) = match outputs {
            "" => (String::new(), ""),
            value => (format!(", z: {dtype}[{rows},{classes}]"), value),
        };
        text.replace("OUT", &out)
            .replace("MORE", more)
            .replace("T[", &format!("{dtype}["))
            .replace("[R,", &format!("[{rows},"))
            .replace("V]", &format!("{classes}]"))
    }

    #[test]
    fn logits_and_what_replaces_them_are_padded_together() {
        let found = kernels(&classifier(8, 67, "f32", ""), &gpu());
        assert_eq!(pitches(&found), [(vec![8, 67], 68), (vec![8, 67], 68)], "{found}");
        let found = kernels(&classifier(8, 67, "bf16", ""), &gpu());
        let all = pitches(&found);
        assert!(all.contains(&(vec![8, 67], 72)), "{found}");
        found.verify().unwrap();
    }

    #[test]
    fn a_buffer_that_the_caller_sees_keeps_its_whole_group_dense() {
        for output in [", %0", ", %1"] {
            let found = kernels(&classifier(8, 67, "f32", output), &gpu());
            assert_eq!(pitches(&found), [], "{output}\n{found}");
        }
    }

    #[test]
    fn buffers_with_other_rows_than_their_parameters_are_refused() {
        let good = kernels(&classifier(8, 67, "f32", ""), &gpu());
        let padded = good.buffers.iter().find(|(_, b)| b.pitch.is_some()).unwrap().0;
        let (input, output) = (good.inputs[0].1, good.outputs[0].2);
        for (buffer, pitch) in
            [(padded, Some(72)), (padded, None), (input, Some(28)), (output, Some(28))]
        {
            let mut bad = good.clone();
            bad.buffers[buffer].pitch = pitch;
            let error = bad.verify().unwrap_err().to_string();
            assert!(error.contains("(K6)"), "{error}");
        }
        let mut follower = kernels(
            "func @f(%x: f32[8,24], %w: f32[24,67]) -> (y: f32[8,67], z: f32[8,67]) {
               %0: f32[8,67] = dot_general %x, %w {contract=[[1],[0]]}
               %1: f32[8,67] = tanh %0
               return %1, %0 }",
            &gpu(),
        );
        follower.verify().unwrap();
        let made = follower.kernels[0].writes[0];
        follower.buffers[made].pitch = Some(68);
        assert!(follower.verify().unwrap_err().to_string().contains("(K6)"));
    }

    #[test]
    fn rows_that_are_aligned_or_short_or_alone_stay_dense() {
        for (rows, classes) in [(8, 64), (8, 68), (8, 63), (1, 67)] {
            let found = kernels(&classifier(rows, classes, "f32", ""), &gpu());
            assert_eq!(pitches(&found), [], "{rows} {classes}\n{found}");
        }
        let dense = Target { row_alignment: 1, ..gpu() };
        assert_eq!(pitches(&kernels(&classifier(8, 67, "f32", ""), &dense)), []);
    }

    #[test]
    fn the_tiles_of_a_product_with_a_follower_are_dense() {
        let found = kernels(
            "func @f(%x: f32[8,24], %w: f32[24,67]) -> (y: f32[8,24]) {
               %0: f32[8,67] = dot_general %x, %w {contract=[[1],[0]]}
               %1: f32[8,67] = tanh %0
               %2: f32[8,24] = dot_general %1, %w {contract=[[1],[1]]}
               return %2 }",
            &gpu(),
        );
        assert!(found.kernels.iter().any(|k| matches!(k.work, Work::Followed(_))), "{found}");
        assert_eq!(pitches(&found), []);
    }

    #[test]
    fn a_product_with_a_follower_reads_padded_rows() {
        let found = kernels(
            "func @f(%x: f32[8,24], %w: f32[24,67]) -> (y: f32[8,24]) {
               %0: f32[8,67] = dot_general %x, %w {contract=[[1],[0]]}
               %1: f32[8,67] = softmax %0 {axis=1}
               %2: f32[8,24] = dot_general %1, %w {contract=[[1],[1]]}
               %3: f32[8,24] = tanh %2
               return %3 }",
            &gpu(),
        );
        assert!(found.kernels.iter().any(|k| matches!(k.work, Work::Followed(_))), "{found}");
        assert_eq!(pitches(&found), [(vec![8, 67], 68), (vec![8, 67], 68)], "{found}");
    }
}
