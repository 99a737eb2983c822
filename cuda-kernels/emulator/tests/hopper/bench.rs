//! Assembles and runs a text, with buffers and tensor maps.

use std::sync::OnceLock;

use wengert_ci::toolkit::Toolkit;
use wengert_emulator::{
    Access, Argument, Asynchrony, Emulator, Fault, Launch, Memory, Module, Options,
};

/// The modes in which every clean kernel runs.
pub const MODES: [Asynchrony; 4] =
    [Asynchrony::Late, Asynchrony::Seeded(1), Asynchrony::Seeded(2), Asynchrony::Seeded(3)];

pub fn toolkit() -> &'static Toolkit {
    static TOOLKIT: OnceLock<Toolkit> = OnceLock::new();
    TOOLKIT.get_or_init(|| Toolkit::find().unwrap_or_else(|e| panic!("{e}")))
}

/// A text that ptxas has assembled, parsed.
pub fn assemble(text: &str) -> Module {
    toolkit().check_ptx(text, "sm_90a").unwrap_or_else(|e| panic!("{e}\n{text}"));
    Module::parse(text).unwrap_or_else(|e| panic!("{e}"))
}

/// Memory of a device, and the arguments of a launch.
#[derive(Default)]
pub struct World {
    pub memory: Memory,
    pub arguments: Vec<Argument>,
}

impl World {
    /// A buffer with these bytes; `None` stands for bytes that are not written. It is an argument.
    pub fn buffer(&mut self, name: &str, bytes: usize, data: Option<&[u8]>, access: Access) -> u64 {
        let address = self.place(name, bytes, data);
        self.arguments.push(Argument::Buffer {
            address,
            bytes: bytes as u64,
            name: name.to_owned(),
            access,
            expects: None,
            makes: None,
        });
        address
    }

    /// A buffer that is no argument.
    pub fn place(&mut self, name: &str, bytes: usize, data: Option<&[u8]>) -> u64 {
        let address = self.memory.allocate(name, bytes as u64).unwrap();
        if let Some(data) = data {
            self.memory.write(address, data).unwrap();
        }
        address
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.arguments.push(Argument::Bytes(bytes.to_vec()));
    }

    /// Launches the kernel of a module.
    pub fn launch(
        &mut self,
        module: &Module,
        grid: u32,
        block: u32,
        options: Options,
    ) -> Result<(), Box<Fault>> {
        let launch = Launch {
            kernel: module.kernels()[0].to_owned(),
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            dynamic_shared: 0,
            arguments: self.arguments.clone(),
        };
        Emulator::new(options).run(module, &launch, &mut self.memory).map(|_| ())
    }

    pub fn words(&self, address: u64, count: usize) -> Vec<u32> {
        let bytes = self.memory.read(address, 4 * count).unwrap();
        bytes.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect()
    }
}

pub fn options(asynchrony: Asynchrony) -> Options {
    Options { asynchrony, max_instructions: 20_000_000, ..Options::default() }
}

/// Pseudorandom numbers, the same in every run: Steele's SplitMix64.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }
}
