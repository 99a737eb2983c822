//! Random requests against models that share no code with the emulator's.

use crate::kernel::{Case, SMALL, case};
use proptest::prelude::*;
use std::collections::BTreeSet;
use wengert_emulator::count::{Caches, Traffic};

/// A lane that takes part reads its address here; the others read this.
const ABSENT: u32 = u32::MAX;

/// The registers of a load of `bytes` bytes.
fn load(space: &str, bytes: u32) -> String {
    let (ty, to) = match bytes {
        1 => ("u8", "%w2"),
        2 => ("u16", "%h2"),
        4 => ("b32", "%w2"),
        8 => ("v2.b32", "{%w2, %w3}"),
        _ => ("v4.b32", "{%w2, %w3, %w4, %w5}"),
    };
    format!("@%p1 ld.{space}.{ty} {to}, [%d2];")
}

/// The counts of a load whose lanes' offsets are `offsets`.
fn request(space: &str, bytes: u32, offsets: &[u32]) -> wengert_emulator::count::LineCounts {
    let base = if space == "shared" { "tile" } else { "%x" };
    let code = load(space, bytes);
    let body = format!(
        "    mul.wide.u32 %d1, %t, 4;\n    add.u64 %d1, %y, %d1;\n    \
         ld.relaxed.gpu.global.u32 %w1, [%d1];\n    setp.ne.u32 %p1, %w1, {ABSENT};\n    \
         mov.u64 %d0, {base};\n    cvt.u64.u32 %d2, %w1;\n    add.u64 %d2, %d0, %d2;\n    {code}"
    );
    Case { y: offsets.to_vec(), x: vec![0; 2048], ..case(body) }.run().line(&code)
}

/// 32 lanes' offsets below 8 KiB, multiples of the width, some absent. Some lie close to each
/// other, so that they share sectors, words and banks.
fn offsets(bytes: u32) -> impl Strategy<Value = Vec<u32>> {
    let far = 0..8192 / bytes;
    let near = 0..(256 / bytes).min(64);
    let lane = prop_oneof![
        2 => far.prop_map(Some), 4 => near.prop_map(Some), 1 => Just(None),
    ];
    proptest::collection::vec(lane, 32).prop_map(move |lanes| {
        lanes.into_iter().map(|lane| lane.map_or(ABSENT, |n| n * bytes)).collect()
    })
}

fn requests() -> impl Strategy<Value = (u32, Vec<u32>)> {
    prop_oneof![Just(1u32), Just(2), Just(4), Just(8), Just(16)]
        .prop_flat_map(|bytes| (Just(bytes), offsets(bytes)))
}

/// The lanes in groups that ask for 128 bytes at most, without absent ones.
fn groups(bytes: u32, offsets: &[u32]) -> Vec<Vec<u32>> {
    let lanes = match bytes {
        8 => 16,
        16 => 8,
        _ => 32,
    };
    let present = |group: &[u32]| group.iter().copied().filter(|&o| o != ABSENT).collect();
    offsets.chunks(lanes).map(present).collect()
}

proptest! {
    #[test]
    fn sectors((bytes, offsets) in requests()) {
        let found = request("global", bytes, &offsets);
        let mut expected = 0;
        let mut all = BTreeSet::new();
        for group in groups(bytes, &offsets) {
            let touched = group.iter().flat_map(|&at| at..at + bytes);
            let touched: BTreeSet<u32> = touched.collect();
            expected += touched.iter().map(|byte| byte / 32).collect::<BTreeSet<_>>().len() as u64;
            all.extend(touched);
        }
        let lanes = offsets.iter().filter(|&&o| o != ABSENT).count() as u64;
        prop_assert_eq!(found.lanes, lanes);
        prop_assert_eq!(found.global.sectors, expected);
        prop_assert_eq!(found.global.requests, u64::from(lanes > 0));
        prop_assert_eq!(found.global.bytes, lanes * u64::from(bytes));
        prop_assert!(found.global.sectors * 32 >= all.len() as u64);
    }

    /// The passes are made one by one: each bank gives the first word that it still owes.
    #[test]
    fn wavefronts((bytes, offsets) in requests()) {
        let found = request("shared", bytes, &offsets).shared;
        let (mut expected, mut least) = (0, 0);
        for group in groups(bytes, &offsets) {
            let mut owed: BTreeSet<u32> =
                group.iter().flat_map(|&at| at / 4..(at + bytes).div_ceil(4)).collect();
            least += u64::from(!owed.is_empty());
            while !owed.is_empty() {
                let mut busy = BTreeSet::new();
                owed.retain(|word| !busy.insert(word % 32));
                expected += 1;
            }
        }
        prop_assert_eq!((found.wavefronts, found.least), (expected, least));
        prop_assert!(found.wavefronts >= found.least);
        let words: BTreeSet<u32> = offsets.iter().filter(|&&o| o != ABSENT)
            .flat_map(|&at| at / 4..(at + bytes).div_ceil(4)).collect();
        prop_assert!(found.wavefronts * 32 >= words.len() as u64);
    }

    /// A cache of one set is a list of lines, most recent first.
    #[test]
    fn caches(
        steps in proptest::collection::vec((0u32..40, 0u32..4, 0u32..4), 1..120),
        ways in 1u32..12,
    ) {
        let l2 = 128 * u64::from(ways);
        let caches = Caches { l1: if ways % 2 == 0 { l2 } else { 0 }, l2, ways, ..SMALL };
        let found = traffic(&steps, caches);
        prop_assert_eq!(found, Model::new(caches).run(&steps));
    }
}

/// One thread makes accesses (line, sector, kind): loads, loads that bypass L1, stores of a whole
/// sector, and atomics.
fn traffic(steps: &[(u32, u32, u32)], caches: Caches) -> Traffic {
    let code = [
        "ld.global.u32 %w4, [%d2];",
        "ld.global.cg.u32 %w4, [%d2];",
        "st.global.v4.b64 [%d2], {%d5, %d5, %d5, %d5};",
        "red.global.add.u32 [%d2], 1;",
    ];
    let mut body = String::new();
    for (line, sector, kind) in steps {
        body += &format!("    add.u64 %d2, %x, {};\n", line * 128 + sector * 32);
        body += &format!("    {}\n", code[*kind as usize]);
    }
    Case { block: 1, caches, ..case(body) }.run().counts.traffic
}

/// The most recent line first, with its valid and its dirty sectors.
type Lines = Vec<(u32, BTreeSet<u32>, BTreeSet<u32>)>;

struct Model {
    caches: Caches,
    l1: Lines,
    l2: Lines,
    seen: BTreeSet<(u32, u32)>,
    traffic: Traffic,
}

/// Makes the line the most recent one. Returns the dirty sectors of the line that leaves.
fn touch(lines: &mut Lines, bytes: u64, line: u32) -> u64 {
    let at = lines.iter().position(|(known, ..)| *known == line);
    let entry = at.map_or((line, BTreeSet::new(), BTreeSet::new()), |at| lines.remove(at));
    lines.insert(0, entry);
    if lines.len() as u64 * 128 > bytes {
        return lines.pop().map_or(0, |(.., dirty)| dirty.len() as u64);
    }
    0
}

impl Model {
    fn new(caches: Caches) -> Model {
        let seen = BTreeSet::new();
        Model { caches, l1: Vec::new(), l2: Vec::new(), seen, traffic: Traffic::default() }
    }

    fn run(mut self, steps: &[(u32, u32, u32)]) -> Traffic {
        for &(line, sector, kind) in steps {
            let mut reads = kind != 2;
            match kind {
                0 => {
                    self.traffic.l1_sectors += 1;
                    if self.caches.l1 > 0 {
                        touch(&mut self.l1, self.caches.l1, line);
                        let new = self.l1[0].1.insert(sector);
                        self.traffic.l1_hits += u64::from(!new);
                        reads = new;
                    }
                    self.traffic.l2_read += 32 * u64::from(reads);
                    if !reads {
                        continue;
                    }
                }
                1 => self.traffic.l2_read += 32,
                2 => self.traffic.l2_write += 32,
                _ => self.traffic.l2_atomic += 32,
            }
            self.traffic.dram_write += 32 * touch(&mut self.l2, self.caches.l2, line);
            let absent = self.l2[0].1.insert(sector);
            if kind >= 2 {
                self.l2[0].2.insert(sector);
            }
            let first = self.seen.insert((line, sector));
            if absent && reads {
                self.traffic.dram_read += 32;
                self.traffic.compulsory += 32 * u64::from(first);
            }
        }
        let dirty: usize = self.l2.iter().map(|(.., dirty)| dirty.len()).sum();
        self.traffic.dirty = 32 * dirty as u64;
        self.traffic.dram_write += self.traffic.dirty;
        self.traffic
    }
}
