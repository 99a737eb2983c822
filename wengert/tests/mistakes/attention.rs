//! Rotary embeddings, attention to another sequence or with shared keys, caches, experts.

use crate::{building, says};
use wengert::nn::{
    CrossAttention, GroupNorm, GroupedQueryAttention, InstanceNorm, KeyValueCache, Mask,
    MixtureOfExperts, Rotary, RotaryScaling, SelfAttention, VisibleKeys, dot_product_attention,
};
use wengert::prelude::*;

#[test]
fn a_rotation_of_heads_of_another_width() {
    says(
        building(|f| {
            let q = f.input("q", f32("B,T,2,8")); //~ q
            let at = f.input("at", i32("T"));
            f.output("y", Rotary::new(4).call(&q, &at)); //~ here
        }),
        "
        @f: a rotation of f32[B,T,2,8]
          --> {here}
          --> {q}: an operand, f32[B,T,2,8], is made here
          help: it takes floats [batch, positions, heads, 4]
        ",
    );
}

#[test]
fn positions_of_another_sequence() {
    says(
        building(|f| {
            let q = f.input("q", f32("B,T,2,4")); //~ q
            let at = f.input("at", i32("S")); //~ at
            f.output("y", Rotary::new(4).call(&q, &at)); //~ here
        }),
        "
        @f: positions i32[S] of f32[B,T,2,4]
          --> {here}
          --> {q}: an operand, f32[B,T,2,4], is made here
          --> {at}: an operand, i32[S], is made here
          help: positions are integers [positions] or [batch, positions]
        ",
    );
}

#[test]
fn a_rotation_of_an_odd_width() {
    says(
        building(|f| {
            let q = f.input("q", f32("B,T,2,5")); //~ q
            let at = f.input("at", i32("T"));
            f.output("y", Rotary::new(5).call(&q, &at)); //~ here
        }),
        "
        @f: a rotation of heads of width 5
          --> {here}
          --> {q}: an operand, f32[B,T,2,5], is made here
          help: the elements of a head form pairs, so its width is even
        ",
    );
}

#[test]
fn scalings_out_of_range() {
    let yarn = |fast, slow, trained| RotaryScaling::Yarn { factor: 2.0, trained, fast, slow };
    let (low, high) = (4.0, 1.0);
    for (scaling, base, message) in [
        (RotaryScaling::Linear { factor: 0.5 }, 1e4, "a rotary scaling with factor 0.5"),
        (RotaryScaling::NtkAware { factor: f64::NAN }, 1e4, "a rotary scaling with factor NaN"),
        (yarn(32.0, 1.0, 0), 1e4, "a rotary scaling for a length of training of 0"),
        (yarn(1.0, 32.0, 64), 1e4, "a rotary scaling between 32 and 1 turns"),
        (
            RotaryScaling::Llama3 { factor: 8.0, trained: 64, low, high },
            1e4,
            "a rotary scaling between 4 and 1 turns",
        ),
        (RotaryScaling::None, 1.0, "a rotation with base 1"),
    ] {
        let said = building(|f| {
            let q = f.input("q", f32("B,T,2,4"));
            let at = f.input("at", i32("T"));
            f.output("y", Rotary { scaling, base, ..Rotary::new(4) }.call(&q, &at));
        });
        let first = said.lines().next().unwrap();
        assert_eq!(first, format!("@f: {message}"));
        assert!(said.contains("mistakes/attention.rs") && said.contains("help: "), "{said}");
    }
}

#[test]
fn a_memory_of_another_batch() {
    says(
        building(|f| {
            let x = f.input("x", f32("4,T,8")); //~ x
            let memory = f.input("memory", f32("5,S,8")); //~ memory
            let layer = f.param("layer", CrossAttention::new(8, 8, 2));
            f.output("y", layer.call(&x, &memory, None)); //~ here
        }),
        "
        @f: attention of f32[4,T,8] to f32[5,S,8]
          --> {here}
          --> {x}: an operand, f32[4,T,8], is made here
          --> {memory}: an operand, f32[5,S,8], is made here
          help: they are [batch, positions, width] with one batch
        ",
    );
}

#[test]
fn valid_positions_as_numbers() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,T,8"));
            let memory = f.input("memory", f32("B,S,8")); //~ memory
            let valid = f.input("valid", i32("B,S")); //~ valid
            let layer = f.param("layer", CrossAttention::new(8, 8, 2));
            f.output("y", layer.call(&x, &memory, Some(&valid))); //~ here
        }),
        "
        @f: valid positions i32[B,S] of f32[B,S,8]
          --> {here}
          --> {valid}: an operand, i32[B,S], is made here
          --> {memory}: an operand, f32[B,S,8], is made here
          help: they are lengths, integers [batch], or bools [batch, positions] of the memory
        ",
    );
}

#[test]
fn heads_that_do_not_divide_the_width_of_the_memory() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,T,8"));
            let memory = f.input("memory", f32("B,S,6"));
            let layer = f.param("layer", CrossAttention::new(8, 6, 3));
            f.output("y", layer.call(&x, &memory, None)); //~ here
        }),
        "
        @f: a width of 8 is not divided by 3 heads
          --> {here}
          --> {here}: an operand, f32[B,T,8], is made here
          help: the width is a multiple of the number of heads
        ",
    );
}

#[test]
fn heads_of_queries_that_are_no_multiple_of_those_of_keys() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,T,24")); //~ x
            let layer = f.param("layer", GroupedQueryAttention::new(24, 6, 4));
            f.output("y", layer.call(&x)); //~ here
        }),
        "
        @f: 6 heads of queries share 4 heads of keys
          --> {here}
          --> {x}: an operand, f32[B,T,24], is made here
          help: the heads of queries are a multiple of those of keys and values
        ",
    );
}

#[test]
fn heads_of_keys_of_another_width_than_those_of_queries() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,T,8")); //~ x
            let layer =
                GroupedQueryAttention { key_value_heads: 1, ..GroupedQueryAttention::new(8, 4, 2) };
            let layer = f.param("layer", layer);
            f.output("y", layer.call(&x)); //~ here
        }),
        "
        @f: heads of queries have width 2, of keys 4, of values 4
          --> {here}
          --> {x}: an operand, f32[B,T,8], is made here
          help: all heads have one width
        ",
    );
}

/// A user may put any tensors into a layer.
#[test]
fn layers_of_tensors_without_axes() {
    for n in 0..4 {
        let said = building(|f| {
            let x = f.input("x", f32("2,3,8"));
            let number = f.input("number", f32(""));
            let vector = f.input("vector", f32("8"));
            let y = match n {
                0 => GroupNorm { weight: number, ..GroupNorm::new(2, 8) }.call(&x),
                1 => InstanceNorm { weight: number, ..InstanceNorm::new(8) }.call(&x),
                2 => {
                    let k_proj = Linear { weight: vector, bias: None };
                    let layer = GroupedQueryAttention::new(8, 4, 2);
                    GroupedQueryAttention { k_proj, ..layer }.call(&x)
                }
                _ => {
                    let layer = MixtureOfExperts::new(8, 8, 4, 1);
                    MixtureOfExperts { down_proj: vector, ..layer }.call(&x).0
                }
            };
            f.output("y", y);
        });
        assert!(said.contains("mistakes/attention.rs"), "{said}");
    }
}

/// The error of 3 new positions, given a cache and a position.
fn cached(
    cache: impl FnOnce(&mut FunctionBuilder, &GroupedQueryAttention) -> KeyValueCache,
    position: impl FnOnce(&mut FunctionBuilder) -> Tensor,
) -> String {
    building(|f| {
        let x = f.input("x", f32("2,3,8"));
        let layer = f.param("layer", GroupedQueryAttention::new(8, 4, 2));
        let (cache, position) = (cache(f, &layer), position(f));
        f.output("y", layer.call_cached(&x, &cache, &position).0);
    })
}

#[test]
fn positions_beyond_a_cache() {
    says(
        building(|f| {
            let x = f.input("x", f32("2,9,8")); //~ x
            let layer = GroupedQueryAttention::new(8, 4, 2);
            let cache = f.state("cache", layer.first_cache(2, 8)); //~ cache
            let layer = f.param("layer", layer);
            let position = f.input("position", i32("")); //~ position
            let (y, _) = layer.call_cached(&x, &cache, &position); //~ here
            f.output("y", y);
        }),
        "
        @f: 9 positions in a cache of 8
          --> {here}
          --> {x}: an operand, f32[2,9,8], is made here
          --> {cache}: an operand, f32[2,8,2,2], is made here
          --> {position}: an operand, i32[], is made here
          help: make the cache as long as the longest sequence
        ",
    );
    for (position, message) in
        [(6i32, "@f: 3 positions from 6 on in a cache of 8"), (-1, "@f: position -1 of a cache")]
    {
        let said = cached(|_, layer| layer.zero_cache(2, 8), |_| Tensor::constant(position));
        assert!(said.starts_with(message) && said.contains("attention.rs"), "{said}");
    }
    // A number of positions that is not known may be too large.
    let said = building(|f| {
        let x = f.input("x", f32("2,T,8"));
        let layer = f.param("layer", GroupedQueryAttention::new(8, 4, 2));
        f.output("y", layer.call_cached(&x, &layer.zero_cache(2, 8), &Tensor::constant(0i32)).0);
    });
    assert!(said.starts_with("@f: T positions in a cache of 8\n"), "{said}");
    assert!(said.contains("help: make the number of new positions known"), "{said}");
    // The last three positions are within.
    let mut program = Program::new();
    let built = program.function("f", |f| {
        let x = f.input("x", f32("2,3,8"));
        let layer = f.param("layer", GroupedQueryAttention::new(8, 4, 2));
        let (cache, last) = (layer.zero_cache(2, 8), Tensor::constant(5i32));
        f.output("y", layer.call_cached(&x, &cache, &last).0);
    });
    built.unwrap();
}

#[test]
fn a_cache_of_another_batch_or_positions_of_another_batch() {
    let said = cached(|_, layer| layer.zero_cache(4, 8), |f| f.input("position", i32("")));
    assert!(
        said.starts_with("@f: a cache of keys f32[4,8,2,2] and values f32[4,8,2,2]\n")
            && said.contains("both are f32[2,positions,2,2]: make the cache by the layer's"),
        "{said}"
    );
    let said = cached(|_, layer| layer.zero_cache(2, 8), |f| f.input("position", i32("3")));
    assert!(
        said.starts_with("@f: positions i32[3] of 2 examples\n")
            && said.contains("help: an integer for each example, [batch], or a scalar for all"),
        "{said}"
    );
    // One of two positions is beyond.
    let two = || Tensor::constant(Literal::from_vec(&[2], vec![0i32, 6]).unwrap());
    let said = cached(|_, layer| layer.zero_cache(2, 8), |_| two());
    assert!(said.starts_with("@f: 3 positions from 6 on in a cache of 8\n"), "{said}");
}

#[test]
fn lengths_of_another_batch() {
    says(
        building(|f| {
            let q = f.input("q", f32("4,5,2,8"));
            let lengths = f.input("lengths", i32("5")); //~ lengths
            let visible = VisibleKeys::Lengths(&lengths);
            f.output("y", dot_product_attention(&q, &q, &q, visible, None)); //~ here
        }),
        "
        @f: lengths i32[5] of 4 examples
          --> {here}
          --> {lengths}: an operand, i32[5], is made here
          help: an integer for each example, [batch], or a scalar for all
        ",
    );
}

#[test]
fn first_positions_that_are_floats() {
    says(
        building(|f| {
            let q = f.input("q", f32("4,1,2,8"));
            let cache = f.input("cache", f32("4,9,2,8"));
            let first = f.input("first", f32("4")); //~ first
            let visible = VisibleKeys::CausalFrom(&first);
            f.output("y", dot_product_attention(&q, &cache, &cache, visible, None)); //~ here
        }),
        "
        @f: first positions f32[4] of 4 examples
          --> {here}
          --> {first}: an operand, f32[4], is made here
          help: an integer for each example, [batch], or a scalar for all
        ",
    );
}

#[test]
fn lengths_under_a_causal_mask() {
    says(
        building(|f| {
            let x = f.input("x", f32("4,5,8")); //~ x
            let lengths = f.input("lengths", i32("4")); //~ lengths
            let layer = f.param("layer", SelfAttention::new(8, 2, Mask::Causal));
            f.output("y", layer.call_padded(&x, &lengths)); //~ here
        }),
        "
        @f: lengths of sequences under a causal mask
          --> {here}
          --> {x}: an operand, f32[4,5,8], is made here
          --> {lengths}: an operand, i32[4], is made here
          help: no position attends to later padding: use `call`
        ",
    );
}

#[test]
fn more_experts_for_a_token_than_there_are() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,6,8")); //~ x
            let layer = f.param("layer", MixtureOfExperts::new(8, 16, 4, 5)); //~ layer
            f.output("y", layer.call(&x).0); //~ here
        }),
        "
        @f: each token uses 5 of 4 experts
          --> {here}
          --> {x}: an operand, f32[B,6,8], is made here
          --> {layer}: an operand, f32[8,4], is made here
          help: the number is at least 1, and at most the number of experts
        ",
    );
}

#[test]
fn experts_of_an_unknown_number_of_tokens() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,T,8")); //~ x
            let layer = f.param("layer", MixtureOfExperts::new(8, 16, 4, 2)); //~ layer
            f.output("y", layer.call(&x).0); //~ here
        }),
        "
        @f: experts of T tokens in each example
          --> {here}
          --> {x}: an operand, f32[B,T,8], is made here
          --> {layer}: an operand, f32[8,4], is made here
          help: the capacity of an expert follows from it, so it is a number
        ",
    );
}

#[test]
fn experts_of_another_width_or_without_capacity() {
    for (shape, factor, message) in [
        ("B,6,5", 1.0, "@f: experts of width 8 of f32[B,6,5]\n"),
        ("B,8", 1.0, "@f: experts of f32[B,8]\n"),
        ("B,6,8", 0.0, "@f: a capacity factor of 0\n"),
    ] {
        let said = building(|f| {
            let x = f.input("x", f32(shape));
            let layer =
                MixtureOfExperts { capacity_factor: factor, ..MixtureOfExperts::new(8, 16, 4, 2) };
            let layer = f.param("layer", layer);
            f.output("y", layer.call(&x).0);
        });
        assert!(said.starts_with(message) && said.contains("attention.rs"), "{said}");
    }
}
