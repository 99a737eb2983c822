//! Aliasing: whether a result of a nest may overwrite an operand.
//!
//! A plan runs a nest in place by giving an `in` and an `out` parameter the same bytes. This is
//! valid if and only if the nest is valid with both merged into one `inout` buffer, whose rules
//! (N10, N18) require that each element is read before it is written, by the iteration or row
//! that writes it. The verifier therefore checks the merged nest.

use super::{BufferId, BufferRole, Instr, Nest, verify};
use crate::id::Id;

/// True if each `(operand, result)` pair of parameters may share its bytes. Operands with the
/// same result must be the same value; an operand has one result.
///
/// The nest must be one that [`verify()`](super::verify()) accepts. A pair with different dtypes,
/// shapes or pitches may not share its bytes, since equal indices would name different elements.
pub fn may_alias(nest: &Nest, pairs: &[(BufferId, BufferId)]) -> bool {
    in_place(nest, pairs).is_some_and(|merged| verify(&merged).is_ok())
}

/// The nest with each pair of parameters merged. The result becomes `inout` and replaces the
/// operand in loads; the operand remains as an unused parameter. `None` if a pair is not an
/// operand and a result of one type and pitch.
pub fn in_place(nest: &Nest, pairs: &[(BufferId, BufferId)]) -> Option<Nest> {
    let mut target: Vec<BufferId> = nest.buffers.ids().collect();
    let mut merged = nest.clone();
    for (operand, result) in pairs {
        let (a, b) = (nest.buffers.get(*operand)?, nest.buffers.get(*result)?);
        let fits = a.role == BufferRole::In
            && b.role == BufferRole::Out
            && a.dtype == b.dtype
            && a.shape == b.shape
            && a.pitch == b.pitch
            && [*operand, *result].contains(&target[operand.index()]);
        if !fits {
            return None;
        }
        target[operand.index()] = *result;
        merged.buffers[*result].role = BufferRole::InOut;
    }
    for phase in &mut merged.phases {
        for instr in &mut phase.body {
            if let Instr::Load { access, .. } = instr
                && let Some(result) = target.get(access.buffer.index())
            {
                access.buffer = *result;
            }
        }
    }
    Some(merged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nest::{parse_nests, verify};

    /// Whether the last parameter may overwrite parameter 0.
    fn first_and_last(text: &str) -> bool {
        let nest = parse_nests("test", text).unwrap().remove(0).0;
        verify(&nest).unwrap();
        let last = nest.parameters().count() - 1;
        may_alias(&nest, &[(BufferId::new(0), BufferId::new(last))])
    }

    fn elementwise(parameters: &str, load: &str) -> String {
        format!(
            "nest @f({parameters}) {{ parallel i: 2, j: 2 phase {{
               %0: f32 = load {load}
               store %y[i, j], %0 }} }}"
        )
    }

    #[test]
    fn the_same_element_may() {
        assert!(first_and_last(&elementwise("in %x: f32[2,2], out %y: f32[2,2]", "%x[i, j]")));
    }

    #[test]
    fn another_element_may_not() {
        assert!(!first_and_last(&elementwise("in %x: f32[2,2], out %y: f32[2,2]", "%x[j, i]")));
        assert!(!first_and_last(&elementwise("in %x: f32[2,2], out %y: f32[2,2]", "%x[i, 0]")));
        assert!(!first_and_last(&elementwise("in %x: f32[2,2], out %y: f32[2,2]", "%x[0, j]")));
    }

    /// The gradient of a cross-entropy: a pass over the row, a load of the label's logit, and a
    /// pass that writes.
    #[test]
    fn a_row_that_was_read_before_may() {
        let nest = |label: &str| {
            format!(
                "nest @f(in %x: f32[2,8], in %l: i32[2], out %y: f32[2,8]) {{ parallel i: 2
                 phase k: 8 {{ %0: f32 = load %x[i, k] %1: f32 = reduce(%0) sum tree(4) }}
                 phase {{ %2: i32 = load %l[i]
                   %3: f32 = load %x[{label}] clamp
                   %4: f32 = add %3, %1 }}
                 phase k: 8 {{ %5: f32 = load %x[i, k]
                   %6: f32 = sub %5, %4
                   store %y[i, k], %6 }} }}"
            )
        };
        assert!(first_and_last(&nest("i, %2")));
        assert!(!first_and_last(&nest("%2, 3")));
    }

    #[test]
    fn other_shapes_and_roles_may_not() {
        assert!(!first_and_last(&elementwise("in %x: f32[4], out %y: f32[2,2]", "%x[2*i+j]")));
        assert!(!first_and_last(&elementwise(
            "in %x: f32[2,2], out %y: f32[2,2]",
            "%x[i, j] clamp"
        )));
        let nest = elementwise("in %x: f32[2,2], out %y: f32[2,2]", "%x[i, j]");
        let nest = parse_nests("test", &nest).unwrap().remove(0).0;
        let (x, y) = (BufferId::new(0), BufferId::new(1));
        assert!(may_alias(&nest, &[]));
        assert!(may_alias(&nest, &[(x, y), (x, y)]));
        for pairs in [[(y, x)], [(x, x)], [(y, y)], [(x, BufferId::new(2))]] {
            assert!(!may_alias(&nest, &pairs));
        }
    }

    #[test]
    fn rows_of_other_pitches_may_not() {
        let of = |x: &str, y: &str| {
            let parameters = format!("in %x: f32[2,2]{x}, out %y: f32[2,2]{y}");
            first_and_last(&elementwise(&parameters, "%x[i, j]"))
        };
        assert!(of("", "") && of(" pitch 4", " pitch 4"));
        assert!(!of("", " pitch 4") && !of(" pitch 4", "") && !of(" pitch 4", " pitch 5"));
    }

    #[test]
    fn rows_may_be_read_whole_before_they_are_written() {
        let row = |index: &str| {
            format!(
                "nest @f(in %x: f32[2,3], out %y: f32[2,3]) {{ parallel i: 2
                   phase j: 3 {{ %0: f32 = load %x[i, j] %1: f32 = reduce(%0) sum tree(1) }}
                   phase j: 3 {{ %2: f32 = load %x[{index}] %3: f32 = div %2, %1 \
                 store %y[i, j], %3 }} }}"
            )
        };
        assert!(first_and_last(&row("i, j")));
        assert!(
            !first_and_last(&row("i, -j+2")),
            "another iteration of the storing phase reads it"
        );
    }

    #[test]
    fn an_operand_read_twice_is_checked_at_both_places() {
        let two = |second: &str| {
            format!(
                "nest @f(in %x: f32[2], in %z: f32[2], out %y: f32[2]) {{ parallel i: 2 phase {{
                   %0: f32 = load %x[i]
                   %1: f32 = load %z[{second}]
                   %2: f32 = add %0, %1
                   store %y[i], %2 }} }}"
            )
        };
        let parse = |text: &str| parse_nests("test", text).unwrap().remove(0).0;
        let (x, z, y) = (BufferId::new(0), BufferId::new(1), BufferId::new(2));
        assert!(may_alias(&parse(&two("i")), &[(x, y), (z, y)]));
        assert!(may_alias(&parse(&two("-i+1")), &[(x, y)]));
        assert!(!may_alias(&parse(&two("-i+1")), &[(x, y), (z, y)]));
    }
}
