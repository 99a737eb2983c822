//! The element that an access names: an expression over the axes of the nest.

use wengert_core::nest::{Access, Affine, AxisId, Nest, Term};

/// Maximum number of bytes that one instruction moves.
pub(super) const VECTOR_BYTES: usize = 16;

/// The index of the element of an access, over the axes of the nest, without clamping.
pub(super) fn element(nest: &Nest, access: &Access) -> Affine {
    let strides = nest.buffers[access.buffer].strides();
    let scaled = access.indices.iter().zip(strides).map(|(index, stride)| index.scale(stride));
    scaled.fold(Affine::default(), |sum, index| sum.add(&index))
}

/// Whether elements `width` apart along axes that form one, from 0 on, are always aligned to
/// `width` elements.
pub(super) fn is_aligned(element: &Affine, one: &[AxisId], width: usize) -> bool {
    let by = width as i64;
    let along = |term: &Term| matches!(term, Term::Axis(axis) if one.contains(axis));
    let mut others = element.terms.iter().filter(|(t, _)| !along(t));
    element.constant % by == 0 && others.all(|(_, factor)| factor % by == 0)
}
