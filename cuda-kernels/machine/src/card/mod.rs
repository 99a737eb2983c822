//! Cards: the figures of a GPU that the prediction uses, each with its source.
//!
//! A [`Figure`] is a number and its [`Source`]. Most figures are published: by NVIDIA, or as the
//! result of a named microbenchmark. A figure without such a source is an assumption.
//! [`Card::assumptions`] lists these, and a report prints them beside its predictions.
//!
//! The figures come in two parts. An [`Architecture`] has the figures of a compute capability:
//! limits, lanes of each pipe, latencies of instructions. A [`Card`] has the figures of a product:
//! multiprocessors, clocks, memory, tensor cores.
//!
//! No figure is fitted to kernels of this project.
//!
//! # Sources
//!
//! The text of a source uses these short names.
//!
//! - *Guide*: CUDA C++ Programming Guide, "Arithmetic Instructions", table "Throughput of Native
//!   Arithmetic Instructions" (since CUDA 13 in the CUDA C++ Best Practices Guide, same title);
//!   limits are from its "Compute Capabilities", "Technical Specifications".
//! - *Nsight*: Nsight Compute, Profiling Guide, "Pipelines".
//! - *gpu-benches*: D. Ernst, "GPU benchmarks" (te42kyfo/gpu-benches), result files by name.
//! - *A100 paper*, *H100 paper*, *Ada paper*, *GA102 white paper*: NVIDIA's of these architectures.
//! - *Luo 2024*: Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture",
//!   arXiv 2402.13499.
//! - *Luo 2025*: Luo et al., "Dissecting the NVIDIA Hopper Architecture through Microbenchmarking
//!   and Multiple Level Analysis", arXiv 2501.12084.
//! - *Sun 2022*: Sun et al., "Dissecting Tensor Cores via Microbenchmarks: Latency, Throughput and
//!   Numeric Behaviors", arXiv 2206.02874.
//! - *Abdelkhalik 2022*: Abdelkhalik et al., "Demystifying the Nvidia Ampere Architecture through
//!   Microbenchmarking and Instruction-level Analysis", arXiv 2208.11174.
//! - *Jia 2018*: Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via
//!   Microbenchmarking", arXiv 1804.06826.

mod architecture;
mod table;

pub use architecture::{Architecture, Latencies, Limits, Rates};

/// Where a figure comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Stated in this document.
    Published(&'static str),
    /// Follows by arithmetic from published figures, as the text says.
    Derived(&'static str),
    /// No source is known. The text says why this value was chosen.
    Assumed(&'static str),
}

impl Source {
    /// The text.
    pub fn text(&self) -> &'static str {
        match self {
            Source::Published(text) | Source::Derived(text) | Source::Assumed(text) => text,
        }
    }
}

/// A number and its source.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figure {
    /// The number, in the unit of the field that holds it.
    pub value: f64,
    /// Its source.
    pub source: Source,
}

const fn published(value: f64, text: &'static str) -> Figure {
    Figure { value, source: Source::Published(text) }
}

const fn derived(value: f64, text: &'static str) -> Figure {
    Figure { value, source: Source::Derived(text) }
}

const fn assumed(value: f64, text: &'static str) -> Figure {
    Figure { value, source: Source::Assumed(text) }
}

/// Dense products of tensor cores, in multiplications with addition per clock and
/// multiprocessor; 0 where the hardware has no such product.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TensorRates {
    /// f16, sums in f16.
    pub f16: Figure,
    /// f16 and bf16, sums in f32.
    pub f16_f32: Figure,
    /// TF32.
    pub tf32: Figure,
    /// 8-bit floats, sums in f32.
    pub f8: Figure,
    /// 8-bit integers.
    pub i8: Figure,
    /// f64.
    pub f64: Figure,
    /// Share of these rates that warp-wide products (`mma.sync`) reach. Products of warp groups
    /// (`wgmma`) and of tensor memory (`tcgen05`) reach all of it.
    pub synchronous: Figure,
}

/// A GPU.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Card {
    /// Name in options and reports: `h200`.
    pub name: &'static str,
    /// NVIDIA's name.
    pub product: &'static str,
    /// Its compute capability.
    pub architecture: &'static Architecture,
    /// Multiprocessors.
    pub multiprocessors: Figure,
    /// Boost clock, Hz. Predictions use it.
    pub boost: Figure,
    /// Base clock, Hz.
    pub base: Figure,
    /// Peak bandwidth of device memory, bytes/s.
    pub dram_bandwidth: Figure,
    /// Share of the peak that a long copy reaches.
    pub dram_share: Figure,
    /// Bytes of L2.
    pub l2_bytes: Figure,
    /// Bytes per clock between L2 and all multiprocessors.
    pub l2_bandwidth: Figure,
    /// Latency of a load that hits L2, clocks.
    pub l2_latency: Figure,
    /// Latency of a load that misses L2, clocks.
    pub dram_latency: Figure,
    /// Tensor cores.
    pub tensor: TensorRates,
    /// Time from the end of a kernel to the start of the next one in a CUDA graph, s.
    pub graph_gap: Figure,
}

impl Card {
    /// Every card.
    pub fn all() -> &'static [Card] {
        &table::CARDS
    }

    /// The card with this name.
    pub fn from_name(name: &str) -> Option<&'static Card> {
        Card::all().iter().find(|c| c.name == name)
    }

    /// Bytes/s that a long copy reads and writes together.
    pub fn dram_achievable(&self) -> f64 {
        self.dram_bandwidth.value * self.dram_share.value
    }

    /// Every figure with its name, those of the architecture included.
    pub fn figures(&self) -> Vec<(String, Figure)> {
        let tensor = &self.tensor;
        let own = [
            ("multiprocessors", self.multiprocessors),
            ("boost clock, Hz", self.boost),
            ("base clock, Hz", self.base),
            ("DRAM bandwidth, bytes/s", self.dram_bandwidth),
            ("DRAM share of a copy", self.dram_share),
            ("L2, bytes", self.l2_bytes),
            ("L2 bandwidth, bytes/clock", self.l2_bandwidth),
            ("L2 latency, clocks", self.l2_latency),
            ("DRAM latency, clocks", self.dram_latency),
            ("tensor f16, products/clock/multiprocessor", tensor.f16),
            ("tensor f16 to f32, products/clock/multiprocessor", tensor.f16_f32),
            ("tensor tf32, products/clock/multiprocessor", tensor.tf32),
            ("tensor f8, products/clock/multiprocessor", tensor.f8),
            ("tensor i8, products/clock/multiprocessor", tensor.i8),
            ("tensor f64, products/clock/multiprocessor", tensor.f64),
            ("share of warp-wide products", tensor.synchronous),
            ("gap between graph nodes, s", self.graph_gap),
        ];
        let own = own.into_iter().map(|(name, figure)| (name.to_owned(), figure));
        own.chain(self.architecture.figures()).collect()
    }

    /// The figures without a source.
    pub fn assumptions(&self) -> Vec<(String, Figure)> {
        let is_assumed = |(_, f): &(String, Figure)| matches!(f.source, Source::Assumed(_));
        self.figures().into_iter().filter(is_assumed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_found_by_name_and_their_peaks_are_those_of_the_data_sheets() {
        for card in Card::all() {
            assert_eq!(Card::from_name(card.name), Some(card));
        }
        assert_eq!(Card::from_name("h300"), None);
        // Peak rates of the data sheets, FLOP/s: f32 without tensor cores, f16 with.
        let peaks = [
            ("a100", 19.5e12, 312e12),
            ("a100-40gb", 19.5e12, 312e12),
            ("a6000", 38.7e12, 154.8e12),
            ("h100", 66.9e12, 989.4e12),
            ("l4", 30.3e12, 121e12),
            ("rtx4090", 82.6e12, 165.2e12),
        ];
        for (name, vector, tensor) in peaks {
            let card = Card::from_name(name).unwrap();
            let clocks = 2.0 * card.multiprocessors.value * card.boost.value;
            let found = clocks * card.architecture.rates.fma.value;
            assert!((found / vector - 1.0).abs() < 0.01, "{name}: {found:e}");
            let found = clocks * card.tensor.f16_f32.value;
            // The H100 paper states tensor peaks at 1830 MHz, the boost clock of tensor kernels.
            let found = if name == "h100" { found * 1830.0 / 1980.0 } else { found };
            assert!((found / tensor - 1.0).abs() < 0.04, "{name}: {found:e}");
        }
    }

    #[test]
    fn every_figure_is_positive_or_stated_to_be_absent_and_has_a_source() {
        for card in Card::all() {
            for (name, figure) in card.figures() {
                let may_be_absent = name.contains("f8") || name.contains("f64");
                assert!(figure.value > 0.0 || may_be_absent, "{}: {name}", card.name);
                assert!(figure.source.text().len() > 8, "{}: {name}", card.name);
            }
            assert!(card.dram_share.value < 1.0);
        }
        let assumed = Card::from_name("b200").unwrap().assumptions();
        assert!(assumed.iter().any(|(name, _)| name == "L2 bandwidth, bytes/clock"));
        let h200 = Card::from_name("h200").unwrap().assumptions();
        assert!(h200.iter().all(|(name, _)| name != "L2 bandwidth, bytes/clock"));
    }
}
