//! Nests from damaged or hostile files. The parser and the verifier report errors; they never panic
//! and never take long. Nests that the verifier still accepts keep its guarantees.

mod filetest;

use filetest::texts;
use wengert_core::nest::{
    Affine, AxisId, BufferId, Instr, Nest, Reg, ScalarOp, Term, parse_nests, verify, verify_at,
};
use wengert_core::{DType, Id};
use wengert_testing::Random;

#[test]
fn damaged_texts() {
    let texts = texts("nest");
    let pieces: Vec<&str> =
        texts.iter().flat_map(|(_, t)| t.split_inclusive(&[' ', '\n', ',', '[', '('])).collect();
    let mut random = Random(1);
    let (mut read, mut good) = (0, 0);
    for _ in 0..10_000 {
        let (_, text) = &texts[random.below(texts.len())];
        let nests: Vec<&str> = text.split("\nnest ").skip(1).collect();
        let mut text = format!("nest {}", nests[random.below(nests.len())]);
        for _ in 0..1 + random.below(3) {
            let cuts: Vec<usize> =
                text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let (a, b) = (random.below(cuts.len()), random.below(6));
            let range = cuts[a]..cuts[(a + b).min(cuts.len() - 1)];
            let new = match random.below(5) {
                0 => "",
                1 => *random.pick(&[
                    "0",
                    "-1",
                    "9223372036854775807",
                    "-9223372036854775808",
                    "18446744073709551616",
                ]),
                2 => *random.pick(&[
                    "%0", "i", "mod(", "{", "}", "]", "\"", "é", "\0", "..", "nan(0x1)", "-",
                    "1e999",
                ]),
                _ => *random.pick(&pieces),
            };
            text.replace_range(range, new);
        }
        let Ok(nests) = parse_nests("damaged", &text) else { continue };
        for (nest, places) in nests {
            read += 1;
            if verify_at(&nest, &places).is_ok() {
                good += 1;
                assert_eq!(parse_nests("printed", &nest.to_string()).unwrap()[0].0, nest);
            }
        }
    }
    assert!(read > 1000 && good > 100, "{read} read, {good} good");
}

/// Changes one part of a nest at random, regardless of its meaning.
fn corrupt(nest: &mut Nest, random: &mut Random) {
    const NUMBERS: [i64; 8] = [0, 1, -1, 2, 1 << 40, i64::MAX, i64::MIN, 7];
    let number = *random.pick(&NUMBERS);
    let id = random.below(40);
    let phase = random.below(nest.phases.len());
    let extents = [0, 1, 3, 1 << 33, usize::MAX];
    match random.below(12) {
        0 => {
            let buffer = BufferId::new(random.below(nest.buffers.len()));
            let shape = &mut nest.buffers[buffer].shape;
            let at = random.below(shape.len() + 1);
            shape.insert(at, *random.pick(&extents));
        }
        1 if !nest.axes.is_empty() => {
            let axis = AxisId::new(random.below(nest.axes.len()));
            nest.axes[axis].extent = *random.pick(&extents);
        }
        2 => nest.parallel.push(AxisId::new(id)),
        3 => nest.phases[phase].axes.push(AxisId::new(id)),
        4 => {
            nest.registers.push(*random.pick(&DType::ALL));
        }
        5 if !nest.registers.is_empty() => {
            let reg = Reg::new(random.below(nest.registers.len()));
            nest.registers[reg] = *random.pick(&DType::ALL);
        }
        6 => {
            let body = &mut nest.phases[phase].body;
            let (a, b) = (random.below(body.len()), random.below(body.len()));
            if !body.is_empty() {
                body.swap(a, b);
            }
        }
        7 => {
            for reduction in &mut nest.phases[phase].reductions {
                match random.below(5) {
                    0 => reduction.tree.lanes = number as u32,
                    1 => reduction.tree.block = number as u32,
                    2 => reduction.values.push(Reg::new(id)),
                    3 => reduction.combine.results.push(Reg::new(id)),
                    _ => drop(reduction.combine.body.pop()),
                }
            }
        }
        8 => nest.name = "no name".into(),
        _ => {
            let body = &mut nest.phases[phase].body;
            let at = random.below(body.len());
            let Some(instr) = body.get_mut(at) else { return };
            let expression = |e: &mut Affine, random: &mut Random| match random.below(5) {
                0 => e.constant = number,
                1 => e.terms.iter_mut().for_each(|(_, c)| *c = number),
                2 => e.terms.push((Term::Axis(AxisId::new(id)), number)),
                3 => e.terms.push((Term::FloorDiv(Box::new(e.clone()), number), 1)),
                _ => e.terms.insert(0, (Term::Reg(Reg::new(id)), number)),
            };
            match instr {
                Instr::Scalar { result, op, operands } => match random.below(3) {
                    0 => *result = Reg::new(id),
                    1 => *op = *random.pick(ScalarOp::ALL),
                    _ => operands.push(Reg::new(id)),
                },
                Instr::Const { result, .. } => *result = Reg::new(id),
                Instr::Index { value, .. } => expression(value, random),
                Instr::Test { guards, .. } => {
                    guards.iter_mut().for_each(|g| expression(&mut g.index, random))
                }
                Instr::Load { access, .. } | Instr::Store { access, .. } => match random.below(6) {
                    0 => access.buffer = BufferId::new(id),
                    1 => access.clamp = !access.clamp,
                    2 => access.guards.iter_mut().for_each(|g| g.high = number),
                    3 => access.guards.iter_mut().for_each(|g| expression(&mut g.index, random)),
                    _ => access.indices.iter_mut().for_each(|i| expression(i, random)),
                },
                Instr::Prefix(prefix) => match random.below(3) {
                    0 => prefix.reverse = !prefix.reverse,
                    1 => prefix.values.push(Reg::new(id)),
                    _ => prefix.combine.identity.clear(),
                },
            }
        }
    }
}

#[test]
fn damaged_nests() {
    let nests: Vec<Nest> = texts("nest")
        .iter()
        .filter_map(|(_, t)| parse_nests("file", t).ok())
        .flatten()
        .map(|(nest, _)| nest)
        .filter(|n| !n.phases.is_empty() && !n.buffers.is_empty())
        .collect();
    assert!(nests.len() > 30);
    let mut random = Random(2);
    let mut good = 0;
    for _ in 0..20_000 {
        let mut nest = nests[random.below(nests.len())].clone();
        for _ in 0..1 + random.below(3) {
            corrupt(&mut nest, &mut random);
        }
        let _ = nest.renumber();
        let _ = nest.without_dead_code();
        let text = nest.to_string();
        if verify(&nest).is_ok() {
            good += 1;
            assert_eq!(parse_nests("printed", &text).unwrap()[0].0, nest, "{text}");
        }
    }
    assert!(good > 200, "{good}");
}

#[test]
fn large_texts_take_linear_time() {
    let body: String = (0..100_000).map(|n| format!("    %r{n}: f32 = const {n}.5\n")).collect();
    let text =
        format!("nest @long(out %y: f32[]) {{\n  phase {{\n{body}    store %y[], %r7\n  }}\n}}\n");
    let (nest, places) = parse_nests("long", &text).unwrap().remove(0);
    verify_at(&nest, &places).unwrap();
    // Many loads beside the stores of one buffer. The verifier compares every load with every
    // store.
    let loads: String = (0..20_000).map(|n| format!("    %l{n}: f32 = load %x[i, 2]\n")).collect();
    let stores: String = (0..64).map(|n| format!("    store %x[i, {}], %l0\n", n + 3)).collect();
    let text = format!(
        "nest @many(inout %x: f32[4,99]) {{\n  parallel i: 4\n  phase {{\n{loads}{stores}  }}\n}}\n"
    );
    let (nest, places) = parse_nests("many", &text).unwrap().remove(0);
    verify_at(&nest, &places).unwrap();
}
