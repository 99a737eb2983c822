//! Whether a nest can consume a product tile by tile, while the product is computed.
//!
//! A product is computed tile by tile. If each row of a nest reads only the element of the
//! product with the row's number, the row can run as soon as the element is computed, while it is
//! still in cache: the nest *follows* the product. Its other operands must be finished before the
//! product begins, and its results must overlap nothing that the product still reads. The caller
//! that pairs the two ensures this.

use super::{Affine, BufferId, BufferRole, Instr, Nest, Term};

/// True if the rows of a nest are the elements of that operand, in row-major order of both: each
/// row runs its phases once, without loops, and loads only its own element of the operand. The
/// operand is dense.
pub fn follows(nest: &Nest, operand: BufferId) -> bool {
    let Some(buffer) = nest.buffers.get(operand) else { return false };
    let loops = nest.phases.iter().any(|phase| !phase.axes.is_empty());
    if buffer.role != BufferRole::In
        || loops
        || buffer.pitch.is_some()
        || buffer.elements() != nest.rows()
    {
        return false;
    }
    let extents = nest.parallel.iter().map(|axis| nest.axes[*axis].extent);
    let own = position(extents.collect::<Vec<_>>().as_slice(), |n| Affine::axis(nest.parallel[n]));
    // An axis of one iteration adds nothing to any index.
    let simple = |index: Affine| {
        let varies =
            |term: &Term| !matches!(term, Term::Axis(axis) if nest.axes[*axis].extent == 1);
        Affine::from_terms(index.constant, index.terms.into_iter().filter(|(term, _)| varies(term)))
    };
    let own = simple(own);
    let mut loads =
        nest.phases.iter().flat_map(|phase| &phase.body).filter_map(|instr| match instr {
            Instr::Load { access, .. } if access.buffer == operand => Some(access),
            _ => None,
        });
    loads.all(|access| {
        let flat = position(&buffer.shape, |n| access.indices[n].clone());
        access.guards.is_empty() && !access.clamp && simple(flat) == own
    })
}

/// The row-major position of an index.
fn position(extents: &[usize], index: impl Fn(usize) -> Affine) -> Affine {
    (0..extents.len())
        .fold(Affine::constant(0), |sum, n| sum.scale(extents[n] as i64).add(&index(n)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Id;
    use crate::nest::{parse_nests, verify};

    fn first(text: &str) -> bool {
        let nest = parse_nests("test", text).unwrap().remove(0).0;
        verify(&nest).unwrap();
        follows(&nest, BufferId::new(0))
    }

    fn of(shape: &str, axes: &str, load: &str) -> bool {
        first(&format!(
            "nest @f(in %x: f32[{shape}], out %y: f32[2,3]) {{ parallel {axes} phase {{
               %0: f32 = load %x[{load}]
               store %y[i, j], %0 }} }}"
        ))
    }

    #[test]
    fn rows_that_are_the_elements_follow() {
        assert!(of("2,3", "i: 2, j: 3", "i, j"));
        assert!(of("6", "i: 2, j: 3", "3*i+j"), "the same elements under another shape");
        assert!(of("1,2,3", "i: 2, j: 3", "0, i, j"));
        assert!(of("2,3", "i: 2, b: 1, j: 3", "i+b, j"), "an axis of one iteration is none");
        assert!(!of("2,3", "j: 3, i: 2", "i, j"), "rows in another order");
        assert!(!of("3,2", "i: 2, j: 3", "j, i"));
        assert!(!of("2,3", "i: 2, j: 3", "1, j"));
        assert!(!of("3", "i: 2, j: 3", "j"), "an operand of another size");
        let padded =
            "nest @f(in %x: f32[2,3] pitch 4, out %y: f32[2,3]) { parallel i: 2, j: 3 phase {
               %0: f32 = load %x[i, j]
               store %y[i, j], %0 } }";
        assert!(!first(padded), "rows are positions of a dense product");
    }

    #[test]
    fn what_waits_for_other_elements_does_not() {
        assert!(!first(
            "nest @f(in %x: f32[6], out %y: f32[6]) { parallel i: 6 phase {
               %0: f32 = load %x[i] clamp
               store %y[i], %0 } }"
        ));
        assert!(!first(
            "nest @f(in %x: f32[6], out %y: f32[6]) { parallel i: 6 phase {
               %0: f32 = const 0.0
               %1: f32 = load %x[i] {i in 1..6} else %0
               store %y[i], %1 } }"
        ));
        assert!(!first(
            "nest @f(in %x: f32[2,3], out %y: f32[2]) { parallel i: 2
               phase j: 3 { %0: f32 = load %x[i, j] %1: f32 = reduce(%0) sum tree(1) }
               phase { store %y[i], %1 } }"
        ));
        assert!(!first(
            "nest @f(in %x: f32[6], out %y: f32[6]) { parallel i: 6 phase {
               %0: f32 = load %x[i]
               %1: f32 = load %x[-i+5]
               %2: f32 = add %0, %1
               store %y[i], %2 } }"
        ));
    }

    #[test]
    fn results_are_no_operands() {
        let text = "nest @f(in %x: f32[6], out %y: f32[6]) { parallel i: 6 phase {
            %0: f32 = load %x[i]
            store %y[i], %0 } }";
        let nest = parse_nests("test", text).unwrap().remove(0).0;
        assert!(follows(&nest, BufferId::new(0)));
        assert!(!follows(&nest, BufferId::new(1)) && !follows(&nest, BufferId::new(2)));
    }
}
