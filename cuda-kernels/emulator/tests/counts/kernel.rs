//! Runs a kernel and counts.

use wengert_emulator::count::{Caches, Counting, Counts, LineCounts, Sample};
use wengert_emulator::{
    Access, Argument, Emulator, Fault, Launch, Memory, Module, Options, Sanitize,
};

/// One multiprocessor with one block at a time, 4 KiB of L1 and 64 KiB of L2, 16 lines a set.
pub const SMALL: Caches =
    Caches { l1: 4 << 10, l2: 64 << 10, ways: 16, multiprocessors: 1, resident: 1 };

/// A launch of a kernel with the body `body`.
#[derive(Clone)]
pub struct Case {
    /// `%x` and `%y` are pointers to the buffers, `%t` is the thread, `%b` the block, `%n` the
    /// threads of a block. `tile` is shared memory of 8 KiB, `own` 256 bytes of local memory.
    pub body: String,
    /// In front of the kernel.
    pub head: &'static str,
    pub grid: u32,
    pub block: u32,
    /// Words of `x` and their values.
    pub x: Vec<u32>,
    /// Words of `y`, as many as bytes of shared memory at most.
    pub y: Vec<u32>,
    pub caches: Caches,
    pub sample: Sample,
    /// CPU threads.
    pub threads: usize,
}

/// Counts and the text whose lines they name.
pub struct Run {
    pub counts: Counts,
    text: String,
}

/// A launch of one warp.
pub fn case(body: impl Into<String>) -> Case {
    Case {
        body: body.into(),
        head: "",
        grid: 1,
        block: 32,
        x: vec![0; 4096],
        y: vec![0; 4096],
        caches: SMALL,
        sample: Sample::All,
        threads: 1,
    }
}

impl Case {
    fn text(&self) -> String {
        format!(
            ".version 8.6\n.target sm_90\n.address_size 64\n{}\n\
             .visible .entry k(.param .u64 .ptr x, .param .u64 .ptr y)\n{{\n    \
             .reg .b16 %h<4>;\n    .reg .b32 %w<20>, %t, %b, %n;\n    \
             .reg .b64 %d<20>, %x, %y;\n    .reg .pred %p<8>;\n    \
             .shared .align 16 .b8 tile[8192];\n    .local .align 16 .b8 own[256];\n    \
             ld.param.u64 %x, [x];\n    ld.param.u64 %y, [y];\n    \
             mov.u32 %t, %tid.x;\n    mov.u32 %b, %ctaid.x;\n    mov.u32 %n, %ntid.x;\n\
             {}\n    ret;\n}}\n",
            self.head, self.body
        )
    }

    /// The result of the launch.
    pub fn try_run(&self) -> Result<Run, Box<Fault>> {
        let text = self.text();
        let module = Module::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let mut memory = Memory::new();
        let mut arguments = Vec::new();
        for (name, words) in [("x", &self.x), ("y", &self.y)] {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let address = memory.allocate(name, bytes.len() as u64).unwrap();
            memory.write(address, &bytes).unwrap();
            arguments.push(Argument::Buffer {
                address,
                bytes: bytes.len() as u64,
                name: name.to_owned(),
                access: Access::ReadWrite,
                expects: None,
                makes: None,
            });
        }
        let launch = Launch {
            kernel: "k".to_owned(),
            grid: [self.grid, 1, 1],
            block: [self.block, 1, 1],
            dynamic_shared: 0,
            arguments,
        };
        let options = Options {
            threads: self.threads,
            sanitize: Sanitize::NONE,
            count: Some(Counting { caches: self.caches, sample: self.sample }),
            ..Options::default()
        };
        let statistics = Emulator::new(options).run(&module, &launch, &mut memory)?;
        let counts = statistics.counts.expect("counts were asked for");
        assert_eq!(counts.blocks, statistics.blocks);
        Ok(Run { counts, text })
    }

    /// The counts of the launch.
    pub fn run(&self) -> Run {
        self.try_run().unwrap_or_else(|fault| panic!("{fault}"))
    }
}

impl Run {
    /// The number of the only line that contains `part`.
    pub fn number(&self, part: &str) -> u32 {
        let mut found = self.text.lines().enumerate().filter(|(_, line)| line.contains(part));
        let (at, _) = found.next().unwrap_or_else(|| panic!("`{part}` is not there"));
        assert!(found.next().is_none(), "`{part}` is there twice");
        at as u32 + 1
    }

    /// The counts of the only line that contains `part`.
    pub fn line(&self, part: &str) -> LineCounts {
        self.counts.lines.get(&self.number(part)).copied().unwrap_or_default()
    }

    /// Issues and lanes of the only line that contains `part`.
    pub fn issued(&self, part: &str) -> (u64, u64) {
        let line = self.line(part);
        (line.issued, line.lanes)
    }
}
