//! The L1 caches of all multiprocessors, the L2 cache, and the traffic between them and DRAM.

use super::cache::Cache;
use super::coalesce::Sectors;
use super::trace::{Kind, Trace};
use super::{Caches, SECTOR, Traffic};
use std::collections::HashMap;

/// The caches of a device.
pub(super) struct Hierarchy {
    l1: Vec<Cache>,
    l2: Cache,
    /// The sectors of each line that have been accessed. It is looked up and never iterated.
    touched: HashMap<u64, u8>,
    traffic: Traffic,
}

fn bytes(sectors: u8) -> u64 {
    u64::from(sectors.count_ones()) * SECTOR
}

impl Hierarchy {
    /// Empty caches.
    pub(super) fn new(caches: &Caches) -> Hierarchy {
        let l1 = || Cache::new(caches.l1, caches.ways);
        Hierarchy {
            l1: (0..caches.multiprocessors).map(|_| l1()).collect(),
            l2: Cache::new(caches.l2, caches.ways),
            touched: HashMap::new(),
            traffic: Traffic::default(),
        }
    }

    /// Executes the requests of a wave. Blocks take turns, one request each.
    pub(super) fn wave(&mut self, blocks: &[Trace]) {
        let mut live: Vec<usize> = (0..blocks.len()).collect();
        let mut turn = 0;
        while !live.is_empty() {
            live.retain(|&block| {
                let Some((kind, sectors)) = blocks[block].request(turn) else { return false };
                let multiprocessor = block % self.l1.len();
                for sectors in sectors {
                    self.access(multiprocessor, kind, sectors);
                }
                true
            });
            turn += 1;
        }
    }

    fn access(&mut self, multiprocessor: usize, kind: Kind, sectors: Sectors) {
        let Sectors { line, touched, whole } = sectors;
        let traffic = &mut self.traffic;
        let (asked, valid, dirty) = match kind {
            Kind::Load => {
                let hits = self.l1[multiprocessor].access(line, touched, touched, 0).hits;
                traffic.l1_sectors += u64::from(touched.count_ones());
                traffic.l1_hits += u64::from(hits.count_ones());
                let missed = touched & !hits;
                traffic.l2_read += bytes(missed);
                (missed, missed, 0)
            }
            Kind::LoadFromL2 => {
                traffic.l2_read += bytes(touched);
                (touched, touched, 0)
            }
            Kind::Store => {
                traffic.l2_write += bytes(touched);
                (0, whole, touched)
            }
            Kind::Atomic => {
                traffic.l2_atomic += bytes(touched);
                (touched, touched, touched)
            }
        };
        if asked | dirty == 0 {
            return;
        }
        let outcome = self.l2.access(line, asked, valid, dirty);
        let missed = asked & !outcome.hits;
        traffic.dram_read += bytes(missed);
        traffic.dram_write += bytes(outcome.written_back);
        let known = self.touched.entry(line).or_insert(0);
        traffic.compulsory += bytes(missed & !*known);
        *known |= touched;
    }

    /// The traffic, once dirty sectors have been written back.
    pub(super) fn finish(mut self) -> Traffic {
        self.traffic.dirty = self.l2.dirty() * SECTOR;
        self.traffic.dram_write += self.traffic.dirty;
        self.traffic
    }
}
