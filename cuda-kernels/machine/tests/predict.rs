//! Predictions against values worked out by hand, and laws that every prediction keeps.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use proptest::prelude::*;
use std::collections::BTreeMap;
use wengert_machine::card::Card;
use wengert_machine::pipe::Pipe;
use wengert_machine::predict::{LoadLatency, Resource, Shape, Work, predict, warp_time};
use wengert_machine::sass::{Flow, Module};

fn card(name: &str) -> &'static Card {
    Card::from_name(name).unwrap()
}

fn close(found: f64, expected: f64, share: f64) {
    assert!((found / expected - 1.0).abs() <= share, "{found:e}, expected {expected:e}");
}

const SMALL: Shape = Shape { blocks: 0, threads: 256, registers: 32, shared: 0 };

#[test]
fn a_copy_of_a_gibibyte_runs_at_the_rate_of_a_copy() {
    let bytes = f64::from(1 << 30);
    for card in Card::all() {
        // Four bytes a lane: a request of 4 sectors to load, and one to store.
        let blocks = (1 << 28) / 256;
        let mut work = Work::empty(&Shape { blocks, ..SMALL }, card).unwrap();
        let warps = blocks as f64 * 8.0;
        work.instructions = 10.0 * warps;
        work.busy = BTreeMap::from([(Pipe::Memory, 8.0 * warps), (Pipe::Alu, 12.0 * warps)]);
        work.l1_sectors = 8.0 * warps;
        work.l2_bytes = 2.0 * bytes;
        work.l2_read = bytes;
        work.dram_bytes = 2.0 * bytes;
        work.dram_read = bytes;
        work.warp_clocks = card.dram_latency.value + 20.0;
        work.bytes_in_flight = 128.0;
        let found = predict(&work, card);
        assert_eq!(found.seconds_of(Resource::Dram), 2.0 * bytes / card.dram_achievable());
        // One load of four bytes a thread leaves Hopper and Blackwell short of bytes in flight.
        let is_short = found.in_flight < found.in_flight_needed;
        if !is_short {
            assert_eq!(found.limiter, Resource::Dram, "{}", card.name);
            close(found.seconds, 2.0 * bytes / card.dram_achievable(), 0.01);
        }
        // Sixteen bytes a thread are enough on every card.
        work.bytes_in_flight = 512.0;
        work.blocks /= 4;
        let found = predict(&work, card);
        assert_eq!(found.limiter, Resource::Dram, "{}", card.name);
        close(found.seconds, 2.0 * bytes / card.dram_achievable(), 0.01);
    }
}

#[test]
fn a_loop_of_multiplications_runs_at_the_peak() {
    for (name, peak) in [("a100", 19.5e12), ("h100", 66.9e12), ("rtx4090", 82.6e12)] {
        let card = card(name);
        // Two full waves.
        let shape = Shape { blocks: 2 * 6 * card.multiprocessors.value as u64, ..SMALL };
        let mut work = Work::empty(&shape, card).unwrap();
        let warps = shape.blocks as f64 * 8.0;
        let products = 100_000.0;
        work.instructions = products * 1.01 * warps;
        let clocks = 128.0 / card.architecture.rates.fma.value;
        work.busy = BTreeMap::from([(Pipe::Fma, products * clocks * warps)]);
        // Four independent chains of four clocks.
        work.warp_clocks = products;
        let found = predict(&work, card);
        // The schedulers issue one instruction a clock, which f32 alone fills where it has 128
        // lanes.
        let expected = if clocks > 1.0 { Resource::Pipe(Pipe::Fma) } else { Resource::Issue };
        assert_eq!(found.limiter, expected, "{name}");
        close(2.0 * 32.0 * products * warps / found.seconds, peak, 0.02);
    }
}

/// A loop whose load depends on the one before it.
const CHASE: &str = "\
.target sm_90
.section .text.chase,\"ax\",@progbits
.type chase,@function
chase:
/*0000*/ LDC.64 R2, c[0x0][0x210] ;
.L_0:
/*0010*/ LDG.E.64 R2, desc[UR4][R2.64] ;
/*0020*/ IADD3 R4, R4, -0x1, RZ ;
/*0030*/ ISETP.NE.AND P0, PT, R4, RZ, PT ;
/*0040*/ @P0 BRA `(.L_0) ;
/*0050*/ STG.E.64 desc[UR4][R6.64], R2 ;
/*0060*/ EXIT ;
";

#[test]
fn dependent_loads_take_a_latency_each() {
    let card = card("h100");
    let module = Module::parse(CHASE).unwrap();
    let kernel = &module.kernels[0];
    let flow = Flow::new(kernel).unwrap();
    let steps = 1000.0;
    let latency = LoadLatency(card.dram_latency.value);
    let time = warp_time(kernel, &flow, &[1.0, steps, 1.0], latency, card).unwrap();
    // A load is issued when the one before it arrives. The branch is hidden.
    close(time.blocks[1], card.dram_latency.value, 0.001);
    close(time.clocks, steps * card.dram_latency.value, 0.002);
    assert_eq!(time.bytes_in_flight, 256.0);
    let shape = Shape { blocks: 1, threads: 32, ..SMALL };
    let mut work = Work::empty(&shape, card).unwrap();
    work.instructions = 4.0 * steps;
    work.l2_bytes = 32.0 * 32.0 * steps;
    work.dram_bytes = work.l2_bytes;
    work.warp_clocks = time.clocks;
    let found = predict(&work, card);
    assert_eq!(found.limiter, Resource::Latency);
    let expected = steps * card.dram_latency.value / card.boost.value;
    close(found.seconds, expected + card.graph_gap.value, 0.01);
}

#[test]
fn the_last_wave_costs_a_whole_one() {
    let card = card("a100");
    let time = |blocks: u64| {
        let mut work = Work::empty(&Shape { blocks, ..SMALL }, card).unwrap();
        work.instructions = 1e5 * blocks as f64;
        work.busy = BTreeMap::from([(Pipe::Alu, 2e5 * blocks as f64)]);
        predict(&work, card).seconds - card.graph_gap.value
    };
    // 2·10⁵ clocks of a partition's share over four partitions.
    close(time(108), 2e5 / 4.0 / card.boost.value, 1e-9);
    close(time(109), 2.0 * time(108), 1e-9);
    close(time(216), 2.0 * time(108), 1e-9);
    // A block of one warp keeps one partition busy.
    let mut work = Work::empty(&Shape { blocks: 1, threads: 32, ..SMALL }, card).unwrap();
    work.busy = BTreeMap::from([(Pipe::Alu, 2e5)]);
    close(predict(&work, card).seconds_of(Resource::Pipe(Pipe::Alu)), 2e5 / card.boost.value, 1e-9);
}

#[test]
fn little_kernels_take_the_gap() {
    let card = card("h200");
    let work = Work::empty(&Shape { blocks: 1, ..SMALL }, card).unwrap();
    let found = predict(&work, card);
    assert_eq!((found.limiter, found.seconds), (Resource::Launch, card.graph_gap.value));
}

#[test]
fn independent_loads_are_in_flight_together() {
    let card = card("h100");
    let body = |loads: usize| {
        let mut text = String::from(
            ".target sm_90\n.section .text.k,\"ax\",@progbits\n.type k,@function\nk:\n",
        );
        for load in 0..loads {
            let (to, offset) = (8 + 4 * load, 16 * load);
            text += &format!("/*{load:04x}*/ LDG.E.128 R{to}, desc[UR4][R2.64+{offset:#x}] ;\n");
        }
        text += "/*1000*/ FADD R0, R8, R9 ;\n/*1010*/ EXIT ;\n";
        text
    };
    for loads in [1, 4] {
        let module = Module::parse(&body(loads)).unwrap();
        let flow = Flow::new(&module.kernels[0]).unwrap();
        let time = warp_time(&module.kernels[0], &flow, &[1.0], LoadLatency(600.0), card).unwrap();
        assert_eq!(time.bytes_in_flight, 512.0 * loads as f64);
        // The addition waits for the first load only.
        assert_eq!(time.clocks, 602.0);
    }
}

#[test]
fn copies_to_shared_memory_are_waited_for_by_group() {
    let card = card("a100");
    let text = |left: u32| {
        format!(
            ".target sm_80\n.section .text.k,\"ax\",@progbits\n.type k,@function\nk:\n\
             /*0000*/ LDGSTS.E.128 [R0], [R2.64] ;\n/*0010*/ LDGDEPBAR ;\n\
             /*0020*/ LDGSTS.E.128 [R0+0x10], [R2.64+0x10] ;\n/*0030*/ LDGDEPBAR ;\n\
             /*0040*/ DEPBAR.LE SB0, {left:#x} ;\n/*0050*/ EXIT ;\n"
        )
    };
    let clocks = |left: u32| {
        let module = Module::parse(&text(left)).unwrap();
        let flow = Flow::new(&module.kernels[0]).unwrap();
        let latency = LoadLatency(500.0);
        warp_time(&module.kernels[0], &flow, &[1.0], latency, card).unwrap().clocks
    };
    // The first copy is issued at clock 0, the second at 2.
    assert_eq!((clocks(2), clocks(1), clocks(0)), (6.0, 502.0, 504.0));
}

fn any_work() -> impl Strategy<Value = (usize, Work)> {
    let numbers = (
        0..Card::all().len(),
        1_u64..1_000_000,
        1_u32..=1024,
        16_u32..=64,
        proptest::array::uniform8(0.0..1e9_f64),
    );
    numbers.prop_map(|(card, blocks, threads, registers, n)| {
        let shape = Shape { blocks, threads, registers, shared: 0 };
        let mut work = Work::empty(&shape, &Card::all()[card]).unwrap();
        work.instructions = n[0];
        work.busy = BTreeMap::from([(Pipe::Fma, n[1]), (Pipe::Tensor, n[2])]);
        work.wavefronts = n[3];
        work.l1_sectors = n[4];
        work.l2_bytes = n[5];
        work.l2_read = n[5] / 2.0;
        work.dram_bytes = n[6].min(n[5]);
        work.dram_read = work.dram_bytes / 2.0;
        work.warp_clocks = n[7] / 1e3;
        work.bytes_in_flight = 512.0;
        (card, work)
    })
}

proptest! {
    #[test]
    fn no_resource_is_undercut((card, work) in any_work()) {
        let found = predict(&work, &Card::all()[card]);
        for (resource, seconds) in &found.resources {
            prop_assert!(found.seconds >= *seconds, "{resource:?}: {seconds}");
            prop_assert!(seconds.is_finite() && *seconds >= 0.0);
        }
        prop_assert_eq!(found.seconds_of(found.limiter), found.resources[0].1);
    }

    #[test]
    fn more_work_never_takes_less_time(
        (card, work) in any_work(),
        what in 0..8_usize,
        more in 0.0..1e9_f64,
    ) {
        let card = &Card::all()[card];
        let mut larger = work.clone();
        match what {
            0 => larger.instructions += more,
            1 => *larger.busy.get_mut(&Pipe::Tensor).unwrap() += more,
            2 => larger.wavefronts += more,
            3 => larger.l1_sectors += more,
            4 => larger.l2_bytes += more,
            5 => larger.dram_bytes += more,
            6 => larger.warp_clocks += more,
            _ => {
                // Reads that reach DRAM pass L2.
                larger.dram_read += more;
                larger.dram_bytes += more;
                larger.l2_read += more;
                larger.l2_bytes += more;
            }
        }
        prop_assert!(predict(&larger, card).seconds >= predict(&work, card).seconds);
    }
}
