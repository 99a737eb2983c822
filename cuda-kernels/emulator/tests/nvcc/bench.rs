//! Compiles a file of the corpus, launches its kernels on the emulator, and generates inputs.

use std::path::Path;

use bytemuck::Pod;
use wengert_ci::toolkit::Toolkit;
use wengert_emulator::{Access, Argument, Emulator, Launch, Memory, Module, Options};

/// The options for nvcc: as in production, and for a debugger, which keeps every variable in local
/// memory.
const MODES: [&str; 2] = ["-O3", "-G"];

/// A compiled file and the memory of a device.
pub struct Bench {
    module: Module,
    memory: Memory,
    what: String,
}

/// A buffer in the memory of a [`Bench`].
#[derive(Clone, Copy)]
pub struct Buffer {
    address: u64,
    bytes: usize,
    name: &'static str,
}

/// Runs a test for `FILE.cu` in every mode of compilation.
pub fn each(file: &str, test: impl Fn(&mut Bench)) {
    let toolkit = Toolkit::find().unwrap_or_else(|e| panic!("{e}"));
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvcc").join(format!("{file}.cu"));
    for mode in MODES {
        let text = toolkit.compile_to_ptx(&source, &[mode]).unwrap_or_else(|e| panic!("{e}"));
        let module = Module::parse(&text).unwrap_or_else(|e| panic!("{file}.cu {mode}: {e}"));
        test(&mut Bench { module, memory: Memory::new(), what: format!("{file}.cu {mode}") });
    }
}

impl Bench {
    /// A buffer with the given values.
    pub fn input<T: Pod>(&mut self, name: &'static str, values: &[T]) -> Buffer {
        let buffer = self.output::<T>(name, values.len());
        self.memory
            .write(buffer.address, bytemuck::cast_slice(values))
            .expect("a buffer just allocated");
        buffer
    }

    /// A buffer of that many values, all uninitialised. Reading one is a fault.
    pub fn output<T: Pod>(&mut self, name: &'static str, count: usize) -> Buffer {
        let bytes = count * size_of::<T>();
        let address = self.memory.allocate(name, bytes as u64).expect("a small buffer");
        Buffer { address, bytes, name }
    }

    /// Launches a kernel. A fault fails the test.
    pub fn launch(
        &mut self,
        kernel: &str,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        arguments: &[Argument],
    ) {
        let launch = Launch {
            kernel: kernel.into(),
            grid,
            block,
            dynamic_shared: shared,
            arguments: arguments.to_vec(),
        };
        let options = Options::default();
        if let Err(fault) = Emulator::new(options).run(&self.module, &launch, &mut self.memory) {
            panic!("{}, kernel {kernel}: {fault}", self.what);
        }
    }

    /// The address of a buffer, for pointers inside of structures.
    pub fn address(&self, buffer: Buffer) -> u64 {
        buffer.address
    }

    /// The values of a buffer.
    pub fn get<T: Pod>(&self, buffer: Buffer) -> Vec<T> {
        let bytes =
            self.memory.read(buffer.address, buffer.bytes).expect("a buffer of this memory");
        bytemuck::pod_collect_to_vec(&bytes)
    }

    /// Compares a buffer with its expected values bit for bit. Two NaNs are equal.
    pub fn expect<T: Pod + PartialEq + std::fmt::Debug>(&self, buffer: Buffer, expected: &[T]) {
        let found: Vec<T> = self.get(buffer);
        assert_eq!(found.len(), expected.len(), "{}: {}", self.what, buffer.name);
        for (i, (a, b)) in found.iter().zip(expected).enumerate() {
            let same = bytemuck::bytes_of(a) == bytemuck::bytes_of(b);
            // Only a NaN differs from itself.
            #[allow(clippy::eq_op)]
            let both_nan = a != a && b != b;
            assert!(same || both_nan, "{}: {}[{i}] is {a:?}, not {b:?}", self.what, buffer.name);
        }
    }

    /// Compares a buffer of f32 with exact values, within the given number of units in the last
    /// place.
    pub fn expect_near(&self, buffer: Buffer, expected: &[f64], ulps: f64) {
        for (i, (a, &b)) in self.get::<f32>(buffer).into_iter().zip(expected).enumerate() {
            self.near(&format!("{}[{i}]", buffer.name), a, b, ulps);
        }
    }

    /// Compares an f32 with the exact value, within the given number of units in the last place.
    pub fn near(&self, what: &str, found: f32, exact: f64, ulps: f64) {
        let rounded = exact as f32;
        if rounded.is_nan() || rounded.is_infinite() {
            let same = found.is_nan() && rounded.is_nan() || found == rounded;
            assert!(same, "{}: {what} is {found:?}, not {rounded:?}", self.what);
            return;
        }
        // The distance to the next f32 away from zero. For a subnormal it is that of the least
        // normal number.
        let unit =
            f64::from(f32::from_bits(rounded.abs().to_bits() + 1)) - f64::from(rounded.abs());
        let off = (f64::from(found) - exact).abs() / unit;
        assert!(off <= ulps, "{}: {what} is {found:e}, not {exact:e}: {off} units off", self.what);
    }
}

impl Buffer {
    fn argument(self, access: Access) -> Argument {
        Argument::Buffer {
            address: self.address,
            bytes: self.bytes as u64,
            name: self.name.into(),
            access,
            expects: None,
            makes: None,
        }
    }

    /// The argument of a kernel that only reads the buffer.
    pub fn read(self) -> Argument {
        self.argument(Access::Read)
    }

    /// The argument of a kernel that writes the buffer, and reads only bytes that it has written.
    pub fn write(self) -> Argument {
        self.argument(Access::Write)
    }

    /// The argument of a kernel that reads and writes the buffer.
    pub fn both(self) -> Argument {
        self.argument(Access::ReadWrite)
    }
}

/// The argument of a plain value.
pub fn value<T: Pod>(v: T) -> Argument {
    Argument::Bytes(bytemuck::bytes_of(&v).to_vec())
}

/// Pseudorandom numbers, the same in every run: Steele's SplitMix64.
pub struct Numbers(pub u64);

impl Numbers {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// An integer in `low..high`.
    pub fn within(&mut self, low: i64, high: i64) -> i64 {
        low + (self.bits() % (high - low) as u64) as i64
    }

    /// `count` integers in `low..high`.
    pub fn ints(&mut self, count: usize, low: i64, high: i64) -> Vec<i32> {
        (0..count).map(|_| self.within(low, high) as i32).collect()
    }

    /// A number in `low..high`.
    pub fn float(&mut self, low: f64, high: f64) -> f64 {
        low + (self.bits() >> 11) as f64 / (1u64 << 53) as f64 * (high - low)
    }

    /// `count` numbers in `low..high`, rounded to f32.
    pub fn floats(&mut self, count: usize, low: f64, high: f64) -> Vec<f32> {
        (0..count).map(|_| self.float(low, high) as f32).collect()
    }

    /// `count` numbers in `low..high`.
    pub fn doubles(&mut self, count: usize, low: f64, high: f64) -> Vec<f64> {
        (0..count).map(|_| self.float(low, high)).collect()
    }
}

/// A grid or block of one dimension.
pub const fn line(n: u32) -> [u32; 3] {
    [n, 1, 1]
}
