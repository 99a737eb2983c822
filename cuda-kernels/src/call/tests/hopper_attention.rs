//! Attention by warpgroups: its values, its fences and waits, its machine code.

use super::hopper::{MODES, machine_code};
use super::*;
use crate::call::attention::in_warpgroups;
use crate::ptx::hopper::Hopper;
use crate::ptx::{Inst, Line};
use std::collections::{BTreeMap, BTreeSet};
use wengert_ci::gate::{Allowed, Source, assemble};
use wengert_core::call::Attention;
use wengert_testing::calls::attention::{biased, given_out, grouped, operands, prefixed};

const BF16: DType = DType::BF16;
const F16: DType = DType::F16;

fn packed(causal: bool, backward: bool) -> Kind {
    Kind { packed: true, causal, backward }
}

fn apart(causal: bool, backward: bool) -> Kind {
    Kind { packed: false, causal, backward }
}

fn compiled(attention: &Attention) -> Compiled {
    in_warpgroups(attention).expect("warpgroups can").unwrap()
}

/// The names of the kernels.
fn names(compiled: &Compiled) -> String {
    let names: Vec<&str> = compiled.stages.iter().map(|s| s.kernel.name.as_str()).collect();
    names.join(" ")
}

/// The results, which do not depend on when asynchronous operations take place, are within the
/// bounds of the reference.
fn check(attention: &Attention) {
    let call = Call::Attention(attention.clone());
    let compiled = compiled(attention);
    assert!(names(&compiled).contains("wgmma"), "{}", names(&compiled));
    let operands = operands(attention, 5);
    let [found, others @ ..] = MODES.map(|asynchrony| {
        let options = emulator::Options { asynchrony, ..emulator::Options::default() };
        run_with(&call, &compiled, &operands, None, |_| 0, options)
    });
    let bytes = |all: &[Literal]| all.iter().map(Literal::to_bytes).collect::<Vec<_>>();
    assert!(others.iter().all(|other| bytes(other) == bytes(&found)), "{attention:?}");
    calls::compare(&call, &operands, &found).unwrap();
}

/// Whole blocks, and masks that hide parts of them; heads of one panel and of two.
#[test]
fn values_of_whole_blocks() {
    for (width, dtype) in [(64, BF16), (128, F16)] {
        check(&attention([1, 256, 256, 1, width], packed(true, false), dtype));
        check(&attention([1, 256, 256, 1, width], packed(true, true), dtype));
    }
}

/// Partial blocks, more queries than keys and fewer, widths between panels, several examples and
/// heads, heads of queries that share one of keys, and m in the workspace.
#[test]
fn values_of_partial_blocks() {
    for (extents, causal, group, dtype) in [
        ([1, 150, 200, 2, 72], true, 1, F16),
        ([2, 200, 70, 1, 40], false, 1, BF16),
        ([1, 132, 140, 1, 64], true, 2, BF16),
        ([1, 66, 137, 1, 128], false, 2, F16),
    ] {
        let call = |backward| grouped(attention(extents, apart(causal, backward), dtype), group);
        check(&call(false));
        check(&call(true));
        check(&given_out(call(true)));
    }
}

/// Biases that repeat along each axis, prefixes, and both.
#[test]
fn values_with_biases_and_prefixes() {
    for (backward, causal) in [(false, false), (false, true), (true, false), (true, true)] {
        let call = attention([2, 131, 150, 1, 64], apart(causal, backward), BF16);
        let repeats = [causal, false, !causal];
        check(&biased(call.clone(), repeats));
        check(&prefixed(call.clone()));
        check(&prefixed(biased(grouped(call, 2), [false, true, false])));
    }
    for backward in [false, true] {
        let call = attention([1, 131, 150, 1, 128], apart(true, backward), F16);
        check(&prefixed(biased(call, [true, false, false])));
    }
    // Prefixes where sums overlap with the softmax.
    for causal in [false, true] {
        check(&prefixed(attention([2, 131, 290, 1, 128], apart(causal, false), BF16)));
    }
}

/// Four panels: backward, the kernel of keys is that of multiply-adds.
#[test]
fn values_of_wide_heads() {
    for backward in [false, true] {
        check(&attention([1, 130, 140, 1, 256], apart(true, backward), BF16));
        check(&attention([1, 130, 70, 1, 200], apart(false, backward), F16));
    }
}

/// The fault that the emulator finds in a stage, on zeros.
fn fault(call: &Attention, compiled: &Compiled) -> String {
    let mut memory = emulator::Memory::new();
    let call = Call::Attention(call.clone());
    let arguments: Vec<(u64, u64)> = (call.operands().iter().chain(&call.results()))
        .map(|ty| {
            let bytes = (ty.elements().unwrap() * ty.dtype.size()) as u64;
            let address = memory.allocate("argument", bytes).unwrap();
            memory.write(address, &vec![0; bytes as usize]).unwrap();
            (address, bytes)
        })
        .collect();
    let options = emulator::Options::default();
    try_launch("", compiled, &arguments, 0, &mut memory, options).err().unwrap_or_default()
}

/// The emulator finds what is wrong with a kernel that lacks a fence, a wait or a barrier. What
/// stands before the loop, for tiles of rows, is repeated at its beginning.
#[test]
fn fences_and_waits_are_needed() {
    let extents = [1, 66, 140, 1, 128];
    let forward = attention(extents, apart(false, false), BF16);
    // Its sums do not overlap with the softmax.
    let narrow = attention([1, 66, 270, 1, 64], apart(false, false), BF16);
    let backward = attention(extents, apart(false, true), BF16);
    let in_flight = "an asynchronous operation is still to";
    let early = "before `wgmma.wait_group` has waited";
    let unfenced = "no `wgmma.fence` lies between";
    let wait = |groups| Inst::Hopper(Hopper::ProductWait(groups));
    let (fence, commit) = (Inst::Hopper(Hopper::ProductFence), Inst::Hopper(Hopper::ProductCommit));
    let [queries, keys] = [0, 1];
    for (call, stage, lacks, number, says) in [
        (&forward, 0, Inst::Hopper(Hopper::ProxyFence), 1, "no `fence.proxy.async` lies between"),
        (&forward, 0, Inst::Hopper(Hopper::ProxyFence), 2, "no `fence.proxy.async` lies between"),
        (&forward, 0, Inst::CopyWait(0), 1, "a `cp.async` is still to write"),
        (&forward, 0, Inst::CopyWait(0), 2, "a `cp.async` is still to write"),
        (&forward, 0, Inst::Barrier, 1, "SharedRace"),
        (&forward, 0, Inst::Barrier, 2, "SharedRace"),
        (&forward, 0, Inst::Barrier, 4, "SharedRace"),
        (&forward, 0, fence.clone(), 0, "needs a `wgmma.fence` before it"),
        (&forward, 0, fence.clone(), 3, unfenced),
        (&forward, 0, commit.clone(), 0, early),
        (&forward, 0, commit.clone(), 2, early),
        (&forward, 0, commit.clone(), 3, early),
        (&forward, 0, wait(0), 1, early),
        (&forward, 0, wait(1), 0, early),
        // In the branch that zeros take: there is nothing to rescale.
        (&forward, 0, wait(0), 4, early),
        (&forward, 0, wait(0), 6, early),
        (&narrow, 0, fence.clone(), 1, unfenced),
        (&narrow, 0, commit.clone(), 1, in_flight),
        (&narrow, 0, wait(0), 1, in_flight),
        (&narrow, 0, wait(0), 2, early),
        (&narrow, 0, wait(0), 3, early),
        (&backward, queries, wait(1), 0, early),
        (&backward, queries, wait(0), 2, early),
        (&backward, queries, fence.clone(), 2, unfenced),
        (&backward, keys, wait(1), 0, early),
        (&backward, keys, wait(1), 1, early),
        (&backward, keys, fence, 3, unfenced),
        (&backward, keys, commit, 3, early),
    ] {
        let mut compiled = compiled(call);
        let code = &mut compiled.stages[stage].kernel.code;
        let lines = code.lines().iter().enumerate();
        let is = |line: &Line| matches!(line, Line::Statement(s) if s.inst == lacks);
        let line = lines.filter(|(_, l)| is(l)).nth(number).expect("the kernel has it").0;
        code.remove(&BTreeSet::from([line]));
        let found = fault(call, &compiled);
        assert!(found.contains(says), "stage {stage} without `{lacks}` {number}: {found}");
    }
}

/// Halves on Hopper, with enough rows of 16 aligned bytes, and nothing else.
#[test]
fn where_warpgroups_multiply() {
    let name = |call: Attention, architecture: &str, options: Options<'_>| {
        let architecture = self::architecture(architecture);
        names(&compile_with(&Call::Attention(call), architecture, options).unwrap())
    };
    let usual = Options::default();
    let call = |queries, keys, width, backward| {
        attention([1, queries, keys, 2, width], apart(true, backward), BF16)
    };
    assert_eq!(name(call(65, 65, 64, false), "sm_90", usual), "attention_bf16_wgmma");
    let both = "attention_bf16_dq_wgmma attention_bf16_dkv_wgmma";
    assert_eq!(name(call(65, 65, 128, true), "sm_90", usual), both);
    let wide = "attention_bf16_dq_wgmma attention_bf16_dkv";
    assert_eq!(name(call(65, 65, 256, true), "sm_90", usual), wide);
    for other in Architecture::ALL.iter().filter(|a| a.number != 90) {
        assert_eq!(name(call(65, 65, 64, false), &other.name(), usual), "attention_bf16");
    }
    // Few queries, few keys, narrow heads, heads that are not aligned.
    for (queries, keys, width) in [(64, 200, 64), (200, 64, 64), (200, 200, 32), (200, 200, 68)] {
        assert_eq!(name(call(queries, keys, width, false), "sm_90", usual), "attention_bf16");
    }
    let invariant = Options { batch_invariant: true, ..usual };
    assert_eq!(name(call(200, 200, 64, false), "sm_90", invariant), "attention_bf16");
    let shifted = Options { alignment: 8, ..usual };
    assert_eq!(name(call(200, 200, 64, false), "sm_90", shifted), "attention_bf16");
    let f32s = attention([1, 200, 200, 2, 64], apart(true, false), DType::F32);
    assert_eq!(name(f32s, "sm_90", usual), "attention_f32");
}

/// The calls whose machine code is checked: whole blocks with a mask, partial ones, and what takes
/// registers.
fn calls_of(width: usize, backward: bool) -> Vec<Attention> {
    let call = attention([8, 1000, 300, 12, width], apart(true, backward), F16);
    let whole = attention([8, 1024, 1024, 12, width], packed(true, backward), BF16);
    let with_bias = biased(call.clone(), [true, false, false]);
    let both = prefixed(with_bias.clone());
    let all = [whole, call.clone(), prefixed(call), with_bias, both];
    all.map(|call| if backward { given_out(call) } else { call }).to_vec()
}

/// Each step has the products of its block, which nothing makes wait for each other; no register is
/// spilled, and as many blocks are resident as the block is made for.
#[test]
fn the_machine_code_is_that_of_the_block() {
    for (width, backward) in [64, 80, 128, 256].into_iter().flat_map(|w| [(w, false), (w, true)]) {
        for call in calls_of(width, backward) {
            let stages = compiled(&call).stages;
            for stage in stages.iter().filter(|stage| stage.kernel.name.contains("wgmma")) {
                check_machine_code(stage, width);
            }
        }
    }
}

fn check_machine_code(stage: &stage::Stage, width: usize) {
    let text = text(stage);
    let (words, code) = machine_code(&text);
    let name = &stage.kernel.name;
    let remark = &stage.kernel.remark;
    let columns = columns_of(stage);
    // Along the width, and along the columns.
    let (of_scores, of_sums) = (width.div_ceil(16), columns / 16);
    let [scores, sums] = match name {
        name if name.contains("dkv") => [2, 2],
        name if name.contains("dq") => [2, 1],
        _ => [1, 1],
    };
    // The first scores and the last sums of an overlapped loop are outside of it.
    let parts = if columns == 128 && width > 64 { 2 } else { 1 };
    let (scores, sums) = (parts * scores, parts * sums);
    let products = scores * of_scores + sums * of_sums;
    assert_eq!(code.matches("HGMMA.64x").count(), products, "{remark}");
    let wide = code.matches(&format!("HGMMA.64x{}x16.F32", width.next_multiple_of(16))).count();
    assert!(wide >= sums * of_sums, "{remark}: {wide}");
    assert!(!words.contains("serialized"), "{remark}: {words}");
    let mut source = Source::new(remark.clone(), text);
    source.dynamic_shared.insert(name.clone(), stage.dynamic_shared);
    let report = assemble(&[source], &Allowed::nothing()).unwrap();
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
    let [measure] = &report.measures[..] else { panic!("{:?}", report.measures) };
    println!("{remark}: {} registers", measure.registers);
    let resident = measure.occupancy.as_ref().unwrap().blocks;
    assert!(resident >= stage.kernel.resident, "{remark}: {measure:?}");
}

/// Instructions of the innermost loop that has products: all, and those of a step that moves no
/// reference. Such a step skips what forward branches skip, except for copies.
fn instructions_of_the_loop(code: &str) -> [usize; 2] {
    let (mut labels, mut list): (BTreeMap<&str, usize>, Vec<&str>) = Default::default();
    for line in code.lines().map(str::trim) {
        match line.strip_suffix(':') {
            Some(label) if label.starts_with(".L") => {
                labels.insert(label, list.len());
            }
            // `/*1a20*/ HGMMA …`.
            _ if line.starts_with("/*") && line.ends_with(';') => list.push(line),
            _ => {}
        }
    }
    let target = |line: &str| {
        let label = line.contains("BRA").then(|| line.split_once("`(")?.1.split_once(')'));
        labels.get(label??.0).copied()
    };
    let has = |begin: usize, end: usize, opcode: &str| {
        list[begin..end].iter().any(|line| line.contains(opcode))
    };
    let loops = list.iter().enumerate().filter_map(|(end, line)| Some((target(line)?, end + 1)));
    let loops = loops.filter(|(begin, end)| begin < end && has(*begin, *end, "HGMMA"));
    let (begin, end) = loops.min_by_key(|(begin, end)| end - begin).expect("a loop has products");
    let (mut at, mut usual) = (begin, 0);
    while at < end {
        usual += 1;
        at = match target(list[at]) {
            Some(to) if at < to && to <= end && !has(at, to, "LDGSTS") => to,
            _ => at + 1,
        };
    }
    [end - begin, usual]
}

/// For a block of 128 by 128 scores without a mask, no more instructions than Triton 3.9 runs, by
/// `docs/gpu-model.md`, "Attention beside Triton's", and no fewer resident warps.
#[test]
fn a_block_of_scores_has_no_more_instructions_than_tritons() {
    for (width, instructions, warps) in [(64, 3768, 8), (128, 4392, 8)] {
        let call = attention([8, 1024, 1024, 12, width], packed(false, false), F16);
        let compiled = compiled(&call);
        let [stage] = &compiled.stages[..] else { panic!("{}", names(&compiled)) };
        let (words, code) = machine_code(&text(stage));
        assert!(!words.contains("serialized"), "{words}");
        let blocks = 128 / columns_of(stage) * stage.kernel.threads as usize / 32;
        let [all, found] = instructions_of_the_loop(&code).map(|n| n * blocks);
        println!("width {width}: {found} of {all} instructions, Triton's {instructions}");
        assert!(found <= instructions, "width {width}: {found}");
        assert!(stage.kernel.resident * stage.kernel.threads / 32 >= warps, "width {width}");
    }
}

/// Columns of a block, by the remark.
fn columns_of(stage: &stage::Stage) -> usize {
    let remark = stage.kernel.remark.trim_end_matches('.');
    remark.rsplit(' ').next().unwrap().parse().unwrap()
}
