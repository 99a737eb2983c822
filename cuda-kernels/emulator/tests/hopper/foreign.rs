//! Kernels that other compilers made: Triton's output of `triton/kernels.py`, and CUDA C++ that
//! nvcc compiles here. Their results are compared with plain sums.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::bench::{MODES, Numbers, World, assemble, options, toolkit};
use half::bf16;
use wengert_emulator::{
    Access, Argument, Asynchrony, ElementType, Emulator, Launch, Module, Swizzle, TensorMap,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hopper")
}

/// Small integers, whose sums of products are exact in any order.
fn integers(numbers: &mut Numbers, count: usize) -> Vec<f32> {
    (0..count).map(|_| numbers.below(17) as f32 - 8.0).collect()
}

fn halves(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect()
}

/// a[m,k]·b[k,n].
fn product(a: &[f32], b: &[f32], n: usize, k: usize) -> Vec<u32> {
    let m = a.len() / k;
    let sum = |at: usize| -> f32 { (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum() };
    (0..m * n).map(|at| sum(at).to_bits()).collect()
}

fn triton(name: &str) -> Module {
    let text = fs::read_to_string(folder().join(format!("triton/{name}.ptx"))).unwrap();
    assemble(&text)
}

fn launch(
    world: &mut World,
    module: &Module,
    grid: [u32; 3],
    block: u32,
    shared: u32,
    mode: Asynchrony,
) {
    let launch = Launch {
        kernel: module.kernels()[0].to_owned(),
        grid,
        block: [block, 1, 1],
        dynamic_shared: shared,
        arguments: world.arguments.clone(),
    };
    Emulator::new(options(mode))
        .run(module, &launch, &mut world.memory)
        .unwrap_or_else(|fault| panic!("{}, {mode:?}: {fault}", launch.kernel));
}

/// Triton passes two pointers to scratch memory, which these kernels do not use.
fn scratch(world: &mut World) {
    for _ in 0..2 {
        world.arguments.push(Argument::Bytes(vec![0; 8]));
    }
}

#[test]
fn tritons_product() {
    let module = triton("matmul");
    let (m, n, k) = (112, 96, 320);
    let mut numbers = Numbers(50);
    let (a, b) = (integers(&mut numbers, m * k), integers(&mut numbers, k * n));
    for mode in MODES {
        let mut world = World::default();
        world.buffer("a", 2 * m * k, Some(&halves(&a)), Access::Read);
        world.buffer("b", 2 * k * n, Some(&halves(&b)), Access::Read);
        let c = world.buffer("c", 4 * m * n, None, Access::Write);
        for size in [m, n, k] {
            world.bytes(&(size as u32).to_le_bytes());
        }
        scratch(&mut world);
        launch(&mut world, &module, [2, 2, 1], 128, 49152, mode);
        assert_eq!(world.words(c, m * n), product(&a, &b, n, k), "{mode:?}");
    }
}

#[test]
fn tritons_product_with_tensor_maps() {
    let module = triton("matmul_tma");
    let (m, n, k) = (112, 96, 320);
    let mut numbers = Numbers(51);
    let (a, b) = (integers(&mut numbers, m * k), integers(&mut numbers, k * n));
    for mode in MODES {
        let mut world = World::default();
        for (name, data, rows, columns) in [("a", &a, m, k), ("b", &b, k, n)] {
            let address = world.place(name, 2 * rows * columns, Some(&halves(data)));
            let map = TensorMap::tiled(
                ElementType::BF16,
                address,
                &[columns as u64, rows as u64],
                &[2 * columns as u64],
                &[64, 64],
                &[1, 1],
                Swizzle::Bytes128,
            );
            world.bytes(&map.unwrap().bytes());
            // The shape and the strides follow each map.
            for size in [rows, columns] {
                world.bytes(&(size as u32).to_le_bytes());
            }
            for stride in [columns as u64, 1] {
                world.bytes(&stride.to_le_bytes());
            }
        }
        let c = world.buffer("c", 4 * m * n, None, Access::Write);
        for size in [m, n, k] {
            world.bytes(&(size as u32).to_le_bytes());
        }
        scratch(&mut world);
        launch(&mut world, &module, [2, 2, 1], 128, 49176, mode);
        assert_eq!(world.words(c, m * n), product(&a, &b, n, k), "{mode:?}");
    }
}

#[test]
fn tritons_attention() {
    let module = triton("attention");
    let (t, d) = (128, 64);
    let mut numbers = Numbers(52);
    let mut values = |count: usize| -> Vec<f32> {
        let numbers = (0..count).map(|_| (numbers.below(1 << 16) as f32 / 32768.0) - 1.0);
        numbers.map(|v| bf16::from_f32(v).to_f32()).collect()
    };
    let (q, k, v) = (values(t * d), values(t * d), values(t * d));
    let scale = 0.125 * std::f32::consts::LOG2_E;
    for mode in [Asynchrony::Late, Asynchrony::Seeded(4)] {
        let mut world = World::default();
        for (name, data) in [("q", &q), ("k", &k), ("v", &v)] {
            world.buffer(name, 2 * t * d, Some(&halves(data)), Access::Read);
        }
        let o = world.buffer("o", 4 * t * d, None, Access::Write);
        world.bytes(&(t as u32).to_le_bytes());
        world.bytes(&scale.to_le_bytes());
        scratch(&mut world);
        launch(&mut world, &module, [2, 1, 1], 128, 40960, mode);
        let found: Vec<f32> = world.words(o, t * d).into_iter().map(f32::from_bits).collect();
        for row in 0..t {
            let dot = |key: usize| -> f64 {
                (0..d).map(|i| f64::from(q[row * d + i]) * f64::from(k[key * d + i])).sum()
            };
            let weights: Vec<f64> =
                (0..=row).map(|key| (dot(key) * f64::from(scale)).exp2()).collect();
            let total: f64 = weights.iter().sum();
            for i in 0..d {
                let sum: f64 = (0..=row).map(|key| weights[key] * f64::from(v[key * d + i])).sum();
                // The weights are rounded to bf16, with a relative error of at most 2⁻⁸, and the
                // values are at most 1.
                let off = (f64::from(found[row * d + i]) - sum / total).abs();
                assert!(off < 2f64.powi(-8) + 1e-4, "{row}, {i}: {off}");
            }
        }
    }
}

/// Compiles a file for sm_90a.
fn nvcc(file: &str, mode: &str) -> Module {
    let root = toolkit().root();
    let scratch = env::temp_dir().join(format!("wengert-hopper-{}", std::process::id()));
    let folder_of_test = scratch.join(format!("{file}{mode}"));
    fs::create_dir_all(&folder_of_test).unwrap();
    let output = folder_of_test.join("module.ptx");
    let mut command = Command::new(root.join("bin/nvcc"));
    command.env("TMPDIR", &folder_of_test);
    command.args(["-ptx", "-arch=compute_90a", "-std=c++17", mode]);
    command.arg("-I").arg(root.join("include")).arg("-I").arg(root.join("include/cccl"));
    command.arg("-o").arg(&output).arg(folder().join(format!("{file}.cu")));
    let result = command.output().unwrap_or_else(|e| panic!("nvcc: {e}"));
    let words = String::from_utf8_lossy(&result.stderr).into_owned();
    assert!(result.status.success(), "{file}.cu: {words}");
    let text = fs::read_to_string(&output).unwrap();
    fs::remove_dir_all(&folder_of_test).unwrap();
    Module::parse(&text).unwrap_or_else(|e| panic!("{file}.cu {mode}: {e}"))
}

/// Optimised code only. For a debugger, nvcc moves the operands of inline assembly between a
/// `wgmma.fence` and its product, and calls CUDA's library through pointers.
const COMPILED: [&str; 1] = ["-O3"];

#[test]
fn nvccs_tensor_copies() {
    for how in COMPILED {
        let module = nvcc("tensor", how);
        for (mode, at) in MODES.into_iter().zip([[0i32, 0], [20, 9], [-7, -3], [35, 12]]) {
            let (width, height) = (48i32, 20i32);
            let old: Vec<i32> = (0..width * height).map(|i| i * 3 - 700).collect();
            let bytes: Vec<u8> = old.iter().flat_map(|w| w.to_le_bytes()).collect();
            let mut world = World::default();
            let address = world.place("tensor", bytes.len(), Some(&bytes));
            let map = TensorMap::tiled(
                ElementType::S32,
                address,
                &[width as u64, height as u64],
                &[4 * width as u64],
                &[32, 16],
                &[1, 1],
                Swizzle::None,
            );
            world.bytes(&map.unwrap().bytes());
            for coordinate in at {
                world.bytes(&coordinate.to_le_bytes());
            }
            launch(&mut world, &module, [1; 3], 64, 0, mode);
            let expected: Vec<u32> = (0..width * height)
                .map(|i| {
                    let (x, y) = (i % width - at[0], i / width - at[1]);
                    let inside = (0..32).contains(&x) && (0..16).contains(&y);
                    (old[i as usize] * if inside { 2 } else { 1 }) as u32
                })
                .collect();
            assert_eq!(world.words(address, expected.len()), expected, "{how} {mode:?} {at:?}");
        }
    }
}

#[test]
fn nvccs_cluster() {
    for how in COMPILED {
        let module = nvcc("cluster", how);
        let mut numbers = Numbers(53);
        let values: Vec<u32> = (0..1000).map(|_| numbers.below(64) as u32).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|w| w.to_le_bytes()).collect();
        let mut world = World::default();
        world.buffer("values", bytes.len(), Some(&bytes), Access::Read);
        world.bytes(&1000u32.to_le_bytes());
        let bins = world.buffer("bins", 256, Some(&[0; 256]), Access::ReadWrite);
        launch(&mut world, &module, [8, 1, 1], 64, 0, Asynchrony::Late);
        let mut expected = vec![0u32; 64];
        values.iter().for_each(|&v| expected[v as usize] += 1);
        assert_eq!(world.words(bins, 64), expected, "{how}");
    }
}

#[test]
fn nvccs_product() {
    for how in COMPILED {
        let module = nvcc("product", how);
        let (m, n, k) = (64, 32, 80);
        let mut numbers = Numbers(54);
        let (a, columns) = (integers(&mut numbers, m * k), integers(&mut numbers, n * k));
        let image = |values: &[f32], rows: usize| {
            let mut image = vec![0u8; 2 * rows * k];
            for (at, pair) in halves(values).chunks(2).enumerate() {
                let (r, i) = (at / k, at % k);
                let place = i / 16 * rows * 32
                    + r % 8 * 16
                    + r / 8 * 128
                    + i % 16 / 8 * rows * 16
                    + i % 8 * 2;
                image[place..place + 2].copy_from_slice(pair);
            }
            image
        };
        for mode in MODES {
            let mut world = World::default();
            let (x, y) = (image(&a, m), image(&columns, n));
            world.buffer("a", x.len(), Some(&x), Access::Read);
            world.buffer("b", y.len(), Some(&y), Access::Read);
            let c = world.buffer("c", 4 * m * n, None, Access::Write);
            world.bytes(&(k as u32).to_le_bytes());
            launch(&mut world, &module, [1; 3], 128, 0, mode);
            let b: Vec<f32> = (0..k * n).map(|i| columns[i % n * k + i / n]).collect();
            assert_eq!(world.words(c, m * n), product(&a, &b, n, k), "{how} {mode:?}");
        }
    }
}
