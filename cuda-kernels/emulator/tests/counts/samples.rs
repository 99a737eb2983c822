//! Samples of a grid.

use crate::kernel::{Case, SMALL, case};
use wengert_emulator::count::{Caches, Sample};

/// Every block reads and writes data of its own, once.
const COPY: &str = "
    mad.lo.u32 %w1, %b, %n, %t;
    mul.wide.u32 %d1, %w1, 4;
    add.u64 %d2, %x, %d1;
    add.u64 %d1, %y, %d1;
    ld.global.f32 %w3, [%d2];
    fma.rn.f32 %w3, %w3, %w3, %w3;
    st.global.f32 [%d1], %w3;";

fn copy(sample: Sample) -> Case {
    let caches = Caches { multiprocessors: 4, resident: 2, ..SMALL };
    Case { grid: 64, block: 64, caches, sample, ..case(COPY) }
}

#[test]
fn samples_of_a_homogeneous_grid_scale_to_the_whole() {
    let all = copy(Sample::All).run().counts;
    assert_eq!((all.grid, all.blocks, all.warps), (64, 64, 128));
    assert_eq!(all.scale(), 1.0);
    for (wanted, blocks) in [(1, 8), (16, 16), (25, 32), (64, 64)] {
        let part = copy(Sample::Blocks(wanted)).run().counts;
        assert_eq!((part.grid, part.blocks, part.warps), (64, blocks, 2 * blocks));
        let factor = 64 / blocks;
        assert_eq!(part.scale(), factor as f64);
        assert_eq!(part.lines.keys().collect::<Vec<_>>(), all.lines.keys().collect::<Vec<_>>());
        for (line, counts) in &all.lines {
            let sampled = part.lines[line];
            assert_eq!(sampled.issued * factor, counts.issued, "line {line}");
            assert_eq!(sampled.lanes * factor, counts.lanes, "line {line}");
            assert_eq!(sampled.global.sectors * factor, counts.global.sectors, "line {line}");
        }
        assert_eq!(part.traffic.dram_read * factor, all.traffic.dram_read);
        assert_eq!(part.traffic.l2_write * factor, all.traffic.l2_write);
        assert_eq!(part.traffic.dram_write * factor, all.traffic.dram_write);
    }
}

#[test]
fn a_sample_takes_blocks_at_even_distances() {
    // Blocks of the second half do twice the work.
    let body = "
    setp.lt.u32 %p1, %b, 32;
    @%p1 bra END;
    add.u32 %w1, %t, 1;
END:
    add.u32 %w2, %t, 1;";
    let run = Case { body: body.to_owned(), ..copy(Sample::Blocks(16)) }.run();
    // Waves 0 and 4 of 8: blocks 0 to 7, and 32 to 39.
    assert_eq!(run.issued("add.u32 %w1"), (16, 512));
    assert_eq!(run.issued("add.u32 %w2"), (32, 1024));
}
