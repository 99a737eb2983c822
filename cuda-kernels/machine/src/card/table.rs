//! The table of cards.

use super::architecture::{ARCHITECTURES, Architecture};
use super::{Card, Figure, TensorRates, assumed, derived, published};

const fn architecture(number: u32) -> &'static Architecture {
    let mut index = 0;
    while index < ARCHITECTURES.len() {
        if ARCHITECTURES[index].number == number {
            return &ARCHITECTURES[index];
        }
        index += 1;
    }
    panic!("no such compute capability")
}

const H100: &str = "H100 paper v1.04, table 3";
const A100: &str = "A100 paper, comparison of data center GPUs";
const A6000: &str = "RTX A6000 data sheet";
const ADA: &str = "Ada paper, appendix A, GeForce RTX 4090";
const L4: &str = "L4 data sheet";
const OPENXLA: &str = "OpenXLA, cuda_core_info_table.cc, after NVIDIA's Blackwell brief";

const BLACKWELL: &str = "RTX Blackwell white paper, GeForce RTX 5090, table 3";

const ABSENT: Figure = published(0.0, "no such product in this generation's white paper");

const DOUBLE: Figure = assumed(
    2.0,
    "that of f64 without tensor cores; the Ada paper says they are there for programs",
);

const HOPPER_TENSOR: TensorRates = TensorRates {
    f16: published(2048.0, H100),
    f16_f32: published(2048.0, H100),
    tf32: published(1024.0, H100),
    f8: published(4096.0, H100),
    i8: published(4096.0, H100),
    f64: published(128.0, H100),
    synchronous: published(
        0.629,
        "Luo 2025, section 6.2 and table 7 (H800 PCIe): mma reaches 62.9 % of the peak on average",
    ),
};

const ALL: Figure = assumed(
    1.0,
    "Sun 2022, table 3, has 1004 of 1024 products a clock on the A100; spatters.ca 93 % of the \
     peak by a whole product on the RTX 4090",
);

const H200_L2: Figure =
    derived(4936.0, "gpu-benches, gpu-l2-cache/h200.txt: 9774 GB/s at 18 MB, over 1980 MHz");

const A100_80: Card = Card {
    name: "a100",
    product: "A100 SXM4 80 GB",
    architecture: architecture(80),
    multiprocessors: published(108.0, A100),
    boost: published(1.410e9, A100),
    base: assumed(1.095e9, "the clock at which gpu-benches' A100 begins"),
    dram_bandwidth: published(2.039e12, "A100 80GB data sheet"),
    dram_share: derived(
        0.86,
        "gpu-benches, gpu-stream/a100_80.txt: 1732 to 1759 GB/s of scale and triad",
    ),
    l2_bytes: published(40.0 * 1048576.0, A100),
    l2_bandwidth: derived(
        3855.0,
        "gpu-benches, gpu-l2-cache/a100_80.txt: 5436 GB/s at 18 MB, over 1410 MHz",
    ),
    l2_latency: published(211.0, "gpu-benches, gpu-latency/a100_80.txt, 0.4 to 16 MB"),
    dram_latency: published(571.0, "gpu-benches, gpu-latency/a100_80.txt, above 200 MB"),
    tensor: TensorRates {
        f16: published(1024.0, A100),
        f16_f32: published(1024.0, A100),
        tf32: published(512.0, A100),
        f8: ABSENT,
        i8: published(2048.0, A100),
        f64: published(64.0, A100),
        synchronous: ALL,
    },
    graph_gap: derived(
        1.2e-6,
        "gpu-benches, gpu-small-kernels/a100_80_graph.txt: 64 kB in 1.36 us, less one trip \
         to L2",
    ),
};

/// Every card.
pub(super) static CARDS: [Card; 9] = [
    A100_80,
    Card {
        name: "a100-40gb",
        product: "A100 SXM4 40 GB",
        dram_bandwidth: published(1.555e12, A100),
        dram_share: derived(
            0.88,
            "gpu-benches, gpu-stream/a100_40.txt: 1360 to 1381 GB/s of scale and triad",
        ),
        dram_latency: published(573.0, "gpu-benches, gpu-latency/a100_40.txt, above 200 MB"),
        ..A100_80
    },
    Card {
        name: "a6000",
        product: "RTX A6000 48 GB",
        architecture: architecture(86),
        multiprocessors: published(84.0, A6000),
        boost: derived(1.800e9, "RTX A6000 data sheet: 38.7 TFLOP/s of f32 by 10752 lanes"),
        base: assumed(1.410e9, "data bases of graphics cards; NVIDIA publishes none"),
        dram_bandwidth: published(768e9, A6000),
        dram_share: derived(
            0.938,
            "that of the A40, also GDDR6: gpu-benches, gpu-stream/a40.txt, scale 653 of 696 GB/s",
        ),
        l2_bytes: published(6.0 * 1048576.0, "GA102 white paper, table 2"),
        l2_bandwidth: derived(
            1320.0,
            "that of the A40, the same die: gpu-benches, gpu-cache/a40.txt has 2300 GB/s at \
             306 kB a multiprocessor and 1740 MHz",
        ),
        l2_latency: assumed(211.0, "that of the A100, of the same generation"),
        dram_latency: assumed(571.0, "that of the A100, whose memory is HBM2e"),
        tensor: TensorRates {
            f16: published(512.0, "GA102 white paper, appendix A: 128 of each tensor core"),
            f16_f32: derived(512.0, "RTX A6000 data sheet: 309.7 TFLOP/s, sparse"),
            tf32: derived(256.0, "half the rate of f16, as the GA102 white paper says"),
            f8: ABSENT,
            i8: derived(1024.0, "twice the rate of f16, as the GA102 white paper says"),
            f64: DOUBLE,
            synchronous: ALL,
        },
        graph_gap: derived(
            0.95e-6,
            "that of the A40: gpu-benches, gpu-small-kernels/a40_graph.txt, 64 kB in 1.09 us, \
             less one trip to L2",
        ),
    },
    Card {
        name: "h100",
        product: "H100 SXM5 80 GB",
        architecture: architecture(90),
        multiprocessors: published(132.0, H100),
        boost: published(1.980e9, "H100 paper v1.04: 1980 MHz, 1830 MHz for tensor kernels"),
        base: assumed(1.590e9, "data bases of graphics cards; NVIDIA publishes none"),
        dram_bandwidth: published(3.35e12, "H100 data sheet"),
        dram_share: published(
            0.90,
            "QuACK, Getting Memory-bound Kernels to Speed-of-Light: 3.01 TB/s of 3.35",
        ),
        l2_bytes: published(50.0 * 1048576.0, H100),
        l2_bandwidth: derived(
            4936.0,
            "that of the H200, which has the same die and clock; see there",
        ),
        l2_latency: published(265.0, "gpu-benches, gpu-latency/h100_pcie.txt, 0.4 to 20 MB"),
        dram_latency: published(656.0, "gpu-benches, gpu-latency/h100_pcie.txt, above 300 MB"),
        tensor: HOPPER_TENSOR,
        graph_gap: derived(1.2e-6, "that of the H200; see there"),
    },
    Card {
        name: "h200",
        product: "H200 SXM 141 GB",
        architecture: architecture(90),
        multiprocessors: published(132.0, H100),
        boost: published(1.980e9, "H100 paper v1.04: 1980 MHz, 1830 MHz for tensor kernels"),
        base: assumed(1.590e9, "that of the H100"),
        dram_bandwidth: published(4.8e12, "H200 data sheet"),
        dram_share: assumed(
            0.90,
            "4.3 TB/s are reported for a copy; gpu-benches, gpu-l2-cache/h200.txt has 3.89 TB/s \
             of loads of 8 bytes",
        ),
        l2_bytes: published(50.0 * 1048576.0, H100),
        l2_bandwidth: H200_L2,
        l2_latency: derived(265.0, "that of the H100 PCIe, which has the same die; see H100"),
        dram_latency: derived(656.0, "that of the H100 PCIe, whose memory is HBM2e; see H100"),
        tensor: HOPPER_TENSOR,
        graph_gap: derived(
            1.2e-6,
            "gpu-benches, gpu-small-kernels/h200_graph.txt: 64 kB in 1.31 us, less one trip to L2",
        ),
    },
    Card {
        name: "l4",
        product: "L4 24 GB",
        architecture: architecture(89),
        multiprocessors: published(58.0, L4),
        boost: published(2.040e9, L4),
        base: assumed(0.795e9, "data bases of graphics cards; NVIDIA publishes none"),
        dram_bandwidth: published(300e9, L4),
        dram_share: assumed(
            0.89,
            "that of the L40, also GDDR6: gpu-benches, gpu-stream/l40.txt, scale 770 of 864 GB/s",
        ),
        l2_bytes: published(48.0 * 1048576.0, "Ada paper, AD104"),
        l2_bandwidth: derived(
            1044.0,
            "half of the L40's 2089, by the size of L2: gpu-benches, gpu-l2-cache/l40.txt has \
             5200 GB/s at 2490 MHz",
        ),
        l2_latency: derived(276.0, "that of the L40: gpu-benches, gpu-latency/l40.txt"),
        dram_latency: derived(631.0, "that of the L40: gpu-benches, gpu-latency/l40.txt"),
        tensor: TensorRates {
            f16: published(512.0, L4),
            f16_f32: published(512.0, L4),
            tf32: published(256.0, L4),
            f8: published(1024.0, L4),
            i8: published(1024.0, L4),
            f64: DOUBLE,
            synchronous: ALL,
        },
        graph_gap: derived(0.9e-6, "that of the L40; see RTX 4090"),
    },
    Card {
        name: "rtx4090",
        product: "GeForce RTX 4090",
        architecture: architecture(89),
        multiprocessors: published(128.0, ADA),
        boost: published(2.520e9, ADA),
        base: published(2.235e9, "product page of the GeForce RTX 4090"),
        dram_bandwidth: published(1.008e12, ADA),
        dram_share: published(
            0.914,
            "nvbench (README, global_memory_bandwidth): 921 GB/s of loads of 16 bytes",
        ),
        l2_bytes: published(72.0 * 1048576.0, ADA),
        l2_bandwidth: derived(
            1567.0,
            "three quarters of the L40's 2089, by the size of L2: gpu-benches, \
             gpu-l2-cache/l40.txt has 5200 GB/s at 2490 MHz",
        ),
        l2_latency: derived(276.0, "that of the L40: gpu-benches, gpu-latency/l40.txt"),
        dram_latency: derived(631.0, "that of the L40: gpu-benches, gpu-latency/l40.txt"),
        tensor: TensorRates {
            f16: published(512.0, ADA),
            f16_f32: published(256.0, ADA),
            tf32: published(128.0, ADA),
            f8: published(512.0, ADA),
            i8: published(1024.0, ADA),
            f64: DOUBLE,
            synchronous: ALL,
        },
        graph_gap: derived(
            0.9e-6,
            "gpu-benches, gpu-small-kernels/l40_graph.txt: 64 kB in 0.98 us, less one trip to L2",
        ),
    },
    Card {
        name: "rtx5090",
        product: "GeForce RTX 5090",
        architecture: architecture(120),
        multiprocessors: published(170.0, BLACKWELL),
        boost: published(2.407e9, BLACKWELL),
        base: assumed(2.010e9, "data bases of graphics cards"),
        dram_bandwidth: published(1.792e12, BLACKWELL),
        dram_share: assumed(0.88, "a copy on an RTX 5060 Ti, also GDDR7: 395 of 448 GB/s"),
        l2_bytes: published(96.0 * 1048576.0, BLACKWELL),
        l2_bandwidth: assumed(2501.0, "that of the L40 by the number of multiprocessors"),
        l2_latency: assumed(276.0, "that of the L40; see RTX 4090"),
        dram_latency: assumed(631.0, "that of the L40; see RTX 4090"),
        tensor: TensorRates {
            f16: published(512.0, BLACKWELL),
            f16_f32: published(256.0, BLACKWELL),
            tf32: published(128.0, BLACKWELL),
            f8: published(512.0, BLACKWELL),
            i8: published(1024.0, BLACKWELL),
            f64: DOUBLE,
            synchronous: assumed(1.0, "that of the RTX 4090, whose instructions these are"),
        },
        graph_gap: assumed(0.9e-6, "that of the L40; see RTX 4090"),
    },
    Card {
        name: "b200",
        product: "B200 SXM 180 GB",
        architecture: architecture(100),
        multiprocessors: published(148.0, "pytorch/ao pull request 4002: device query"),
        boost: published(1.965e9, "data bases of graphics cards, as quoted by OpenXLA"),
        base: assumed(1.665e9, "NVIDIA publishes none"),
        dram_bandwidth: derived(
            7.672e12,
            "pytorch/ao pull request 4002: 7680 bits at 3996 MHz, two transfers a clock",
        ),
        dram_share: assumed(0.90, "that of the H200"),
        l2_bytes: published(126.5 * 1048576.0, "pytorch/ao pull request 4002: device query"),
        l2_bandwidth: assumed(5534.0, "that of the H200 by the number of multiprocessors"),
        l2_latency: derived(295.0, "Chips and Cheese, B200: about 150 ns within a partition"),
        dram_latency: assumed(800.0, "that of the H100 and the trip between two dies"),
        tensor: TensorRates {
            f16: published(4096.0, OPENXLA),
            f16_f32: published(4096.0, OPENXLA),
            tf32: published(2048.0, OPENXLA),
            f8: published(8192.0, OPENXLA),
            i8: published(8192.0, OPENXLA),
            f64: published(64.0, OPENXLA),
            synchronous: assumed(0.25, "the rate of the A100, whose instructions these are"),
        },
        graph_gap: assumed(1.2e-6, "that of the H200"),
    },
];
