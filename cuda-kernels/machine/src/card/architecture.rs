//! Figures of compute capabilities: limits, lanes of pipes, latencies.

use super::{Figure, assumed, derived, published};

/// Limits of a multiprocessor that decide how many blocks are resident.
///
/// Source: CUDA C++ Programming Guide, "Compute Capabilities", "Technical Specifications".
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// Bytes of shared memory of a block that opts in.
    pub shared_per_block: u32,
    /// Bytes of shared memory of a multiprocessor.
    pub shared: u32,
    /// Threads of a multiprocessor.
    pub threads: u32,
    /// Blocks of a multiprocessor.
    pub blocks: u32,
    /// 32-bit registers of a multiprocessor.
    pub registers: u32,
    /// Threads of a block.
    pub threads_per_block: u32,
}

/// Lanes per clock and multiprocessor of each pipe. A warp instruction of a pipe with n lanes
/// takes 32/n clocks of the multiprocessor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rates {
    /// Warp instructions that the four schedulers issue per clock.
    pub issue: Figure,
    /// f32 addition, multiplication, and both fused.
    pub fma: Figure,
    /// Integer multiplication. Where f32 has 128 lanes, these are the heavy half of them.
    pub multiply: Figure,
    /// Integer addition, logic, shifts, comparisons, selections, moves.
    pub alu: Figure,
    /// Pairs of f16.
    pub half: Figure,
    /// f64.
    pub double: Figure,
    /// Transcendental functions, most conversions, counts of bits.
    pub special: Figure,
    /// Conversions from and to 64-bit types.
    pub convert_64: Figure,
    /// Addresses of memory instructions, shuffles.
    pub memory: Figure,
    /// Warp instructions of the uniform datapath per clock, in lanes (32 for one a clock).
    pub uniform: Figure,
    /// Branches, barriers, loads of constants, special registers.
    pub control: Figure,
    /// Starts of asynchronous bulk copies.
    pub bulk: Figure,
    /// Bytes per clock of shared memory, and of hits in L1.
    pub shared_bytes: Figure,
    /// Bytes per clock from L2 to one multiprocessor.
    pub l2_port: Figure,
}

/// Clocks from the issue of an instruction to the issue of one that uses its result.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Latencies {
    /// Arithmetic of f32, f16 and integers.
    pub arithmetic: Figure,
    /// f64.
    pub double: Figure,
    /// Transcendental functions and conversions.
    pub special: Figure,
    /// A product of a warp on tensor cores.
    pub tensor: Figure,
    /// Loads of shared memory.
    pub shared: Figure,
    /// Shuffles.
    pub shuffle: Figure,
    /// Loads that hit L1.
    pub l1: Figure,
    /// Loads of constants through a register, reads of special registers.
    pub constant: Figure,
    /// Barriers of a block, without waiting for other warps.
    pub barrier: Figure,
    /// A taken branch.
    pub branch: Figure,
}

/// A compute capability.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Architecture {
    /// Major · 10 + minor: 90 for `sm_90`.
    pub number: u32,
    /// Limits.
    pub limits: Limits,
    /// Bytes of the memory of a multiprocessor that L1 and shared memory divide. Source: CUDA C++
    /// Programming Guide, "Compute Capabilities", section "Shared Memory" of each.
    pub l1_and_shared: u32,
    /// Lanes of pipes.
    pub rates: Rates,
    /// Latencies.
    pub latencies: Latencies,
}

const GUIDE: &str = "Guide, throughput table, column of this compute capability";

const fn limits(block: u32, shared: u32, threads: u32, blocks: u32) -> Limits {
    Limits {
        shared_per_block: block << 10,
        shared: shared << 10,
        threads,
        blocks,
        registers: 65_536,
        threads_per_block: 1024,
    }
}

/// The figures that differ between compute capabilities: lanes of f32, integers, pairs of f16,
/// f64, conversions of 64-bit types.
const fn rates(fma: f64, alu: f64, half: Figure, double: f64, convert_64: f64) -> Rates {
    Rates {
        issue: published(4.0, "A100 paper, H100 paper, Ada paper: four schedulers, one each"),
        fma: published(fma, GUIDE),
        multiply: published(64.0, GUIDE),
        alu: published(alu, GUIDE),
        half,
        double: published(double, GUIDE),
        special: published(16.0, GUIDE),
        convert_64: published(convert_64, GUIDE),
        memory: published(32.0, "Guide, throughput table: warp shuffle, which shares the pipe"),
        uniform: assumed(64.0, "one uniform instruction of each partition every two clocks"),
        control: assumed(64.0, "one branch of each partition every two clocks"),
        bulk: assumed(8.0, "one bulk copy started every four clocks"),
        shared_bytes: published(128.0, "Guide, shared memory: 32 banks of 4 bytes per clock"),
        l2_port: assumed(64.0, "commonly stated width; gpu-benches reach 36 to 41 on all at once"),
    }
}

const fn latencies(double: Figure, tensor: Figure, shared: Figure, l1: Figure) -> Latencies {
    Latencies {
        arithmetic: published(
            4.0,
            "Jia 2018 and Abdelkhalik 2022, latencies of single instructions",
        ),
        double,
        special: assumed(
            20.0,
            "Abdelkhalik 2022 has 17 to 23 for single instructions of this pipe",
        ),
        tensor,
        shared,
        shuffle: assumed(24.0, "that of shared memory, whose crossbar it uses"),
        l1,
        constant: assumed(20.0, "a special register is read in about 20 clocks"),
        barrier: assumed(20.0, "a barrier of one warp"),
        branch: assumed(8.0, "refill of the instruction buffer after a taken branch"),
    }
}

const L1_AMPERE: Figure =
    published(36.0, "gpu-benches, gpu-latency/a100_80.txt, sets below 118 kB");
const L1_ADA: Figure = published(36.0, "gpu-benches, gpu-latency/l40.txt, sets below 74 kB");
const L1_HOPPER: Figure =
    published(34.0, "gpu-benches, gpu-latency/h100_pcie.txt, sets below 216 kB");
const SHARED: Figure = assumed(29.0, "Luo 2024 finds shared memory about 5 clocks before L1");
const TENSOR_A100: Figure =
    published(24.7, "Sun 2022, table 3: A100, m16n8k16 of f16 to f32, completion of one");
const TENSOR: Figure = assumed(
    33.0,
    "as Luo 2024's table of mma latencies was remembered; it could not be read again",
);

/// Every compute capability, oldest first.
pub(super) static ARCHITECTURES: [Architecture; 6] = [
    Architecture {
        number: 80,
        limits: limits(163, 164, 2048, 32),
        l1_and_shared: 192 << 10,
        rates: rates(64.0, 64.0, published(128.0, "Guide: 256 results, two a lane"), 32.0, 16.0),
        latencies: latencies(
            published(8.0, "gpu-benches, cuda-incore, V100; Abdelkhalik 2022 agrees within 2"),
            TENSOR_A100,
            SHARED,
            L1_AMPERE,
        ),
    },
    Architecture {
        number: 86,
        limits: limits(99, 100, 1536, 16),
        l1_and_shared: 128 << 10,
        rates: rates(
            128.0,
            64.0,
            published(64.0, "GA102 white paper: f16 at the rate of f32; the Guide has 256 results"),
            2.0,
            2.0,
        ),
        latencies: latencies(
            assumed(40.0, "two lanes of a multiprocessor: 16 clocks for a warp, and the way back"),
            TENSOR,
            SHARED,
            L1_AMPERE,
        ),
    },
    Architecture {
        number: 89,
        limits: limits(99, 100, 1536, 24),
        l1_and_shared: 128 << 10,
        rates: rates(128.0, 64.0, published(64.0, "Guide: 128 results, two a lane"), 2.0, 2.0),
        latencies: latencies(
            assumed(40.0, "two lanes of a multiprocessor: 16 clocks for a warp, and the way back"),
            TENSOR,
            SHARED,
            L1_ADA,
        ),
    },
    Architecture {
        number: 90,
        limits: limits(227, 228, 2048, 32),
        l1_and_shared: 256 << 10,
        rates: rates(128.0, 64.0, published(128.0, "Guide: 256 results, two a lane"), 64.0, 16.0),
        latencies: latencies(
            assumed(8.0, "that of compute capability 8.0"),
            TENSOR,
            SHARED,
            L1_HOPPER,
        ),
    },
    Architecture {
        number: 100,
        limits: limits(227, 228, 2048, 32),
        l1_and_shared: 256 << 10,
        rates: rates(
            128.0,
            64.0,
            derived(64.0, "Guide of CUDA 13: 64 of two results, as OpenXLA's table of cores says"),
            64.0,
            16.0,
        ),
        latencies: latencies(
            assumed(8.0, "that of compute capability 8.0"),
            assumed(33.0, "that of compute capability 9.0"),
            SHARED,
            assumed(39.0, "Chips and Cheese, B200: 19.6 ns by OpenCL at 1965 MHz"),
        ),
    },
    Architecture {
        number: 120,
        limits: limits(99, 100, 1536, 24),
        l1_and_shared: 128 << 10,
        rates: rates(128.0, 128.0, published(64.0, "Guide of CUDA 13, f16x2"), 2.0, 2.0),
        latencies: latencies(
            assumed(40.0, "two lanes of a multiprocessor: 16 clocks for a warp, and the way back"),
            assumed(33.0, "that of compute capability 9.0"),
            SHARED,
            assumed(36.0, "that of compute capability 8.9"),
        ),
    },
];

impl Architecture {
    /// Every compute capability, oldest first.
    pub fn all() -> &'static [Architecture] {
        &ARCHITECTURES
    }

    /// The compute capability with this number: 90 for `sm_90`.
    pub fn from_number(number: u32) -> Option<&'static Architecture> {
        ARCHITECTURES.iter().find(|a| a.number == number)
    }

    /// Every figure with its name.
    pub fn figures(&self) -> Vec<(String, Figure)> {
        let (rates, latencies) = (&self.rates, &self.latencies);
        let figures = [
            ("issue, instructions/clock", rates.issue),
            ("f32, lanes/clock", rates.fma),
            ("integer products, lanes/clock", rates.multiply),
            ("integers and logic, lanes/clock", rates.alu),
            ("pairs of f16, lanes/clock", rates.half),
            ("f64, lanes/clock", rates.double),
            ("special functions, lanes/clock", rates.special),
            ("conversions of 64 bits, lanes/clock", rates.convert_64),
            ("memory instructions, lanes/clock", rates.memory),
            ("uniform datapath, lanes/clock", rates.uniform),
            ("control, lanes/clock", rates.control),
            ("bulk copies, lanes/clock", rates.bulk),
            ("shared memory, bytes/clock", rates.shared_bytes),
            ("L2 to a multiprocessor, bytes/clock", rates.l2_port),
            ("latency of arithmetic, clocks", latencies.arithmetic),
            ("latency of f64, clocks", latencies.double),
            ("latency of special functions, clocks", latencies.special),
            ("latency of tensor products, clocks", latencies.tensor),
            ("latency of shared memory, clocks", latencies.shared),
            ("latency of shuffles, clocks", latencies.shuffle),
            ("latency of L1, clocks", latencies.l1),
            ("latency of constants, clocks", latencies.constant),
            ("latency of barriers, clocks", latencies.barrier),
            ("latency of branches, clocks", latencies.branch),
        ];
        figures.into_iter().map(|(name, figure)| (name.to_owned(), figure)).collect()
    }
}
