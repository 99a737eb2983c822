//! `docs/ops.md` is generated from the catalogue. `WENGERT_BLESS=1 cargo test -p wengert-core
//! --test ops docs` writes it.

use std::collections::BTreeSet;
use std::path::Path;
use wengert_core::Op;
use wengert_core::op::COMPOSITES;
use wengert_testing::samples::markdown;

#[test]
fn the_table_of_ops_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ops.md");
    let text = markdown();
    if std::env::var_os("WENGERT_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == text,
        "docs/ops.md is not what the catalogue says; run `WENGERT_BLESS=1 cargo test -p \
         wengert-core --test ops docs`"
    );
}

/// The names that a user of `jax.lax` and `jax.random` looks for, by family.
const EXPECTED: &str = "
    neg abs sign floor ceil round is_finite exp exp2 expm1 log log1p log2 logistic sin cos tan \
    asin acos atan sinh cosh tanh asinh acosh atanh
    erf erfc erf_inv lgamma digamma sqrt rsqrt cbrt square reciprocal not popcnt clz
    add sub mul div rem max min pow integer_pow atan2 nextafter and or xor \
    shift_left shift_right_logical shift_right_arithmetic
    eq ne lt le gt ge select select_n clamp
    iota constant broadcast_in_dim reshape permute slice dynamic_slice dynamic_update_slice pad \
    concatenate reverse
    gather scatter scatter_add scatter_mul scatter_min scatter_max
    reduce_sum reduce_prod reduce_max reduce_min reduce_and reduce_or reduce argmax argmin
    reduce_window_max reduce_window_min reduce_window_sum cumsum cumprod cummax cummin cumlogsumexp
    dot_general conv_general_dilated sort top_k
    convert_element_type bitcast_convert_type reduce_precision
    random_bits split uniform normal truncated_normal bernoulli gumbel categorical permutation";

#[test]
fn every_name_that_is_looked_for_is_an_op_or_a_composite() {
    let ops: BTreeSet<&str> = Op::catalogue().iter().map(|e| e.name).collect();
    let composites: BTreeSet<&str> = COMPOSITES.iter().map(|c| c.name).collect();
    assert!(ops.len() > 100, "README says over a hundred, and there are {}", ops.len());
    assert_eq!(composites.len(), COMPOSITES.len());
    assert!(ops.is_disjoint(&composites));
    let missing: Vec<&str> = EXPECTED
        .split_whitespace()
        .filter(|name| !ops.contains(name) && !composites.contains(name))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    for composite in COMPOSITES {
        let made_of = composite.ops();
        assert!(
            made_of.contains("random_bits") && made_of.is_subset(&ops),
            "{}: {made_of:?}",
            composite.name
        );
    }
}
