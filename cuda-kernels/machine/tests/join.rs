//! Executed instructions of kernels whose counts are known by hand.
//!
//! `loops.ptx` has a loop that `ptxas` unrolls; `rolled.ptx` has the same loop with
//! `.pragma "nounroll"`. Their machine code was recorded for three architectures by
//! `ptxas -lineinfo` 13.0 and `nvdisasm -gp -c`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::Path;
use wengert_emulator::count::{Counts, LineCounts};
use wengert_machine::card::Card;
use wengert_machine::join::{Executed, join};
use wengert_machine::pipe::Pipe;
use wengert_machine::ptx::statements;
use wengert_machine::sass::{Flow, Module};

fn read(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sass");
    fs::read_to_string(folder.join(name)).unwrap()
}

/// Counts of a kernel of these files: `trips` of the loop for each of 4 warps, of 2 blocks out of
/// a grid of 10. The first warp makes `more` trips more.
fn counts(text: &str, trips: u64, more: u64) -> Counts {
    let warps = 8;
    let mut counts = Counts { grid: 10, blocks: 2, warps, ..Counts::default() };
    let lines: Vec<&str> = text.lines().collect();
    let find = |what: &str| lines.iter().position(|l| l.starts_with(what)).unwrap();
    let (begin, end) = (find("$LOOP:"), find("    @%p0 bra"));
    for (at, line) in lines.iter().enumerate() {
        let line = line.trim();
        if !line.ends_with(';') || line.starts_with('.') {
            continue;
        }
        let times = if at > begin && at <= end { warps * trips + more } else { warps };
        let found = LineCounts { issued: times, lanes: 32 * times, ..LineCounts::default() };
        counts.lines.insert(at as u32 + 1, found);
    }
    counts
}

fn executed(kernel: &str, architecture: u32, trips: u64, more: u64) -> (Executed, f64) {
    let text = read(&format!("{kernel}.ptx"));
    let module = Module::parse(&read(&format!("{kernel}.sm_{architecture}.sass"))).unwrap();
    let flow = Flow::new(&module.kernels[0]).unwrap();
    let found =
        join(&module.kernels[0], &flow, &statements(&text), &counts(&text, trips, more)).unwrap();
    let card = Card::all().iter().find(|c| c.architecture.number == architecture).unwrap();
    let busy = found.busy(&module.kernels[0], &flow, card).unwrap();
    (found, busy[&Pipe::Fma])
}

#[test]
fn an_unrolled_loop_executes_what_the_rolled_one_does() {
    for architecture in [80, 90, 120] {
        for trips in [100, 101, 102, 103, 1000] {
            let (rolled, _) = executed("rolled", architecture, trips, 0);
            let (unrolled, _) = executed("loops", architecture, trips, 0);
            let at = format!("sm_{architecture}, {trips} trips");
            // 40 warps of the grid, two products a trip.
            let expected = 40.0 * 2.0 * trips as f64;
            assert_eq!(rolled.opcodes["FFMA"], expected, "{at}");
            // A guarded tail is issued whether it works or not: at most 6 products a warp.
            let found = unrolled.opcodes["FFMA"];
            assert!(found >= expected && found <= expected + 40.0 * 6.0, "{at}: {found}");
            if trips == 1000 {
                assert!((found / expected - 1.0).abs() < 0.02, "{at}: {found}");
            }
            assert!(rolled.misfit < 1e-6 && unrolled.misfit < 1e-6, "{at}");
            assert!(unrolled.instructions() < 0.75 * rolled.instructions(), "{at}");
        }
    }
}

#[test]
fn the_passes_of_the_unrolled_loop_are_whole() {
    // The loop of four runs while three more trips are left; a tail does the others.
    for (trips, passes) in [(7, 1.0), (8, 2.0), (11, 2.0), (100, 25.0), (103, 25.0)] {
        let text = read("loops.ptx");
        let module = Module::parse(&read("loops.sm_90.sass")).unwrap();
        let kernel = &module.kernels[0];
        let flow = Flow::new(kernel).unwrap();
        let found = join(kernel, &flow, &statements(&text), &counts(&text, trips, 0)).unwrap();
        assert_eq!(flow.loops.len(), 1);
        let header = flow.loops[0].header;
        assert!((found.blocks[header] - passes).abs() < 1e-6, "{trips}: {:?}", found.blocks);
    }
}

#[test]
fn warps_that_differ_are_shared_out() {
    for architecture in [80, 90, 120] {
        let (rolled, _) = executed("rolled", architecture, 1000, 4);
        // 8004 trips of 8 warps, scaled by 10/2.
        assert!((rolled.opcodes["FFMA"] - 2.0 * 5.0 * 8004.0).abs() < 1e-3);
        let (unrolled, _) = executed("loops", architecture, 1000, 4);
        let ratio = unrolled.opcodes["FFMA"] / rolled.opcodes["FFMA"];
        assert!((ratio - 1.0).abs() < 0.02, "{ratio}");
    }
}

#[test]
fn products_take_their_pipe() {
    let (found, busy) = executed("rolled", 80, 1000, 0);
    // Two clocks each on 16 lanes; other instructions of this pipe are outside of the loop.
    let least = 2.0 * found.opcodes["FFMA"];
    assert!(busy >= least && busy < 1.01 * least, "{busy}");
}

#[test]
fn counts_of_no_warp_are_an_error() {
    let text = read("loops.ptx");
    let module = Module::parse(&read("loops.sm_90.sass")).unwrap();
    let flow = Flow::new(&module.kernels[0]).unwrap();
    let found = join(&module.kernels[0], &flow, &statements(&text), &Counts::default());
    assert!(found.unwrap_err().to_string().contains("no warp"));
}

/// Executions of the blocks of a kernel whose instructions name the lines of this PTX text.
fn blocks(text: &str, code: &str, issued: &[(u32, u64, u64)]) -> Executed {
    let mut sass =
        String::from(".target sm_90\n.section .text.k,\"ax\",@progbits\n.type k,@function\nk:\n");
    for (at, line) in code.lines().map(str::trim).enumerate() {
        match line.split_once('|') {
            Some((number, instruction)) => {
                sass += &format!("//## File \"x\", line {}\n", number.trim());
                sass += &format!("/*{:04x}*/ {} ;\n", 16 * at, instruction.trim());
            }
            // A label, or the beginning of a subroutine.
            None => sass += &format!("{line}\n"),
        }
    }
    let module = Module::parse(&sass).unwrap();
    let flow = Flow::new(&module.kernels[0]).unwrap();
    let mut counts = Counts { grid: 8, blocks: 8, warps: 8, ..Counts::default() };
    for &(line, issued, diverged) in issued {
        let found = LineCounts { issued, lanes: 32 * issued, diverged, ..LineCounts::default() };
        counts.lines.insert(line, found);
    }
    join(&module.kernels[0], &flow, &statements(text), &counts).unwrap()
}

const BRANCH: &str = "\
fma.rn.f32 %r0, %r1, %r2, %r3;
@%p0 bra $L1;
mul.rn.f32 %r0, %r0, %r1;
$L1:
add.rn.f32 %r0, %r0, %r2;
";

const BRANCH_CODE: &str = "\
1 | FFMA R0, R1, R2, R3
2 | BSSY B0, `(.L1)
2 | @P0 BRA `(.L0)
3 | FMUL R0, R0, R1
.L0:
3 | BSYNC B0
.L1:
5 | FADD R0, R0, R2
5 | EXIT";

#[test]
fn warps_that_part_execute_both_sides() {
    // Three of eight warps go both ways, two more go straight on.
    let issued = [(1, 8, 0), (2, 8, 3), (3, 5, 0), (5, 8, 0)];
    let found = blocks(BRANCH, BRANCH_CODE, &issued);
    let expected = [1.0, 0.625, 1.0, 1.0];
    for (x, e) in found.blocks.iter().zip(expected) {
        assert!((x - e).abs() < 1e-6, "{:?}", found.blocks);
    }
    assert!(found.misfit < 1e-6);
}

#[test]
fn a_line_that_was_moved_is_outvoted() {
    // `add` was moved in front of the branch, `mul` is not counted right.
    let text = "fma.rn.f32 a;\nmul.rn.f32 b;\nex2.approx.f32 c;\nshfl.sync.bfly.b32 d;\n\
                add.rn.f32 e;\n";
    let code = "\
        1 | FFMA R0, R1, R2, R3
        5 | FADD R8, R8, R9
        .L0:
        2 | FMUL R4, R0, R1
        3 | MUFU.EX2 R5, R4
        4 | SHFL.BFLY PT, R6, R5, 0x1, 0x1f
        4 | @P0 BRA `(.L0)
        1 | EXIT";
    let found = blocks(text, code, &[(1, 8, 0), (2, 80, 0), (3, 80, 0), (4, 80, 0), (5, 80, 0)]);
    assert!((found.blocks[1] - 10.0).abs() < 1e-6, "{:?}", found.blocks);
    assert!((found.blocks[0] - 1.0).abs() < 1e-6, "{:?}", found.blocks);
    // The line that does not fit: 9 of 41 executions per warp.
    assert!((found.misfit - 9.0 / 41.0).abs() < 1e-6, "{}", found.misfit);
}

#[test]
fn a_slow_path_that_no_line_counts_is_not_taken() {
    let text = "add.rn.f32 a;\nrcp.rn.f32 b;\nmul.rn.f32 c;\n";
    let code = "\
        1 | FADD R0, R1, R2
        2 | @P0 BRA `(.L0)
        2 | CALL.REL.NOINC `(slow)
        2 | BRA `(.L1)
        .L0:
        2 | MUFU.RCP R0, R0
        .L1:
        3 | FMUL R0, R0, R1
        3 | EXIT
        .type slow,@function
        slow:
        2 | DADD R0, R0, R2
        2 | DADD R0, R0, R2
        2 | DADD R0, R0, R2
        2 | RET.REL.NODEC R4 `(k)";
    let found = blocks(text, code, &[(1, 8, 0), (2, 8, 0), (3, 8, 0)]);
    assert_eq!(found.opcodes.get("DADD"), None);
    assert!((found.opcodes["MUFU"] - 8.0).abs() < 1e-6);
    assert!((found.opcodes["FMUL"] - 8.0).abs() < 1e-6);
}
