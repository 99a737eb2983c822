//! Kernels with planted faults: parses the comments before a kernel and launches it as they say.

use std::collections::BTreeMap;

use wengert_emulator::{Access, Argument, Emulator, Fault, Launch, Memory, Module, Options};

/// A kernel, with the arguments, the launch and the faults that the comments before it declare.
#[derive(Clone, Debug, Default)]
pub struct Case {
    /// The name of the kernel.
    pub kernel: String,
    /// Size of the allocation that contains the buffers with an offset.
    arena: Option<usize>,
    /// Kernels that are launched before this one, on the same memory.
    after: Vec<String>,
    arguments: Vec<Given>,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    /// Kinds of a fault of the launch itself, which has no instruction.
    at_launch: Vec<String>,
    /// The lines that a fault may name, from 1, each with the kinds that it may have.
    pub guilty: BTreeMap<u32, Vec<String>>,
}

#[derive(Clone, Debug)]
enum Given {
    Buffer {
        name: String,
        bytes: usize,
        access: Access,
        /// The initial value of every word. `None` leaves the buffer uninitialised.
        word: Option<u32>,
        offset: Option<usize>,
        expects: Option<u32>,
        makes: Option<u32>,
    },
    Bytes(Vec<u8>),
}

/// Device memory, and the addresses of the buffers in it.
struct World {
    memory: Memory,
    places: BTreeMap<String, u64>,
}

fn numbers(text: &str) -> [u32; 3] {
    let mut all = [1; 3];
    text.split(',').zip(&mut all).for_each(|(word, n)| *n = word.parse().expect("a number"));
    all
}

/// The kernels of a file with their comments, in order.
pub fn parse(text: &str) -> Vec<Case> {
    let (mut cases, mut case) = (Vec::<Case>::new(), Case::default());
    for (number, line) in text.lines().enumerate() {
        if let Some((_, kinds)) =
            line.split_once("; // fault: ").or_else(|| line.split_once(";  // fault: "))
        {
            let kinds = kinds.split_whitespace().map(str::to_string).collect();
            cases.last_mut().expect("a kernel before").guilty.insert(number as u32 + 1, kinds);
        } else if let Some(rest) = line.split_once(".entry ").map(|(_, rest)| rest) {
            case.kernel = rest.split('(').next().expect("a name").to_string();
            cases.push(std::mem::take(&mut case));
        } else if let Some(comment) = line.strip_prefix("// ") {
            case.read(comment);
        }
    }
    cases
}

impl Case {
    /// True if the kernel must run without a report.
    pub fn is_clean(&self) -> bool {
        self.guilty.is_empty() && self.at_launch.is_empty()
    }

    fn read(&mut self, comment: &str) {
        let mut words = comment.split_whitespace();
        let mut word = || words.next();
        match word() {
            Some("arena") => self.arena = word().map(|w| w.parse().expect("bytes")),
            Some("after") => self.after.push(word().expect("a kernel").to_string()),
            Some("fault:") => self.at_launch = words.map(str::to_string).collect(),
            Some("buffer") => {
                let name = word().expect("a name").to_string();
                let bytes = word().and_then(|w| w.parse().ok()).expect("bytes");
                let access = match word() {
                    Some("read") => Access::Read,
                    Some("write") => Access::Write,
                    Some("both") => Access::ReadWrite,
                    other => panic!("no access: {other:?}"),
                };
                let mut number = (access != Access::Write).then_some(0);
                let (mut offset, mut expects, mut makes) = (None, None, None);
                while let Some(key) = words.next() {
                    let mut value =
                        || words.next().and_then(|w| w.parse::<u64>().ok()).expect("a number");
                    match key {
                        "unset" => number = None,
                        "=" => number = Some(value() as u32),
                        "at" => offset = Some(value() as usize),
                        "expects" => expects = Some(value() as u32),
                        "makes" => makes = Some(value() as u32),
                        other => panic!("unknown word {other}"),
                    }
                }
                self.arguments.push(Given::Buffer {
                    name,
                    bytes,
                    access,
                    word: number,
                    offset,
                    expects,
                    makes,
                });
            }
            Some("value") => {
                let words: Vec<_> = words.collect();
                let ty = words.get(4).unwrap_or(&words[1]);
                if words[2] == "none" {
                    return;
                }
                let value: u64 = words[2].parse().expect("a number");
                let size = if ty.ends_with("64") { 8 } else { 4 };
                self.arguments.push(Given::Bytes(value.to_le_bytes()[..size].to_vec()));
            }
            Some("launch") => {
                (self.grid, self.block) = ([1; 3], [1; 3]);
                while let Some(key) = words.next() {
                    match key {
                        "extra" => self.arguments.push(Given::Bytes(vec![0; 4])),
                        "grid" => self.grid = numbers(words.next().expect("numbers")),
                        "block" => self.block = numbers(words.next().expect("numbers")),
                        "shared" => {
                            self.shared = words.next().and_then(|w| w.parse().ok()).expect("bytes")
                        }
                        other => panic!("unknown word {other}"),
                    }
                }
            }
            // Other comments describe the kernel.
            _ => {}
        }
    }

    /// Launches the kernels of `after`, which must run without a report. Then launches this one.
    pub fn run(&self, module: &Module, all: &[Case]) -> Result<(), Box<Fault>> {
        let mut world = World { memory: Memory::new(), places: BTreeMap::new() };
        for name in &self.after {
            let before = all.iter().find(|c| &c.kernel == name).expect("the file has it");
            before
                .launch(module, &mut world)
                .unwrap_or_else(|e| panic!("{name} before {}: {e}", self.kernel));
        }
        self.launch(module, &mut world)
    }

    fn launch(&self, module: &Module, world: &mut World) -> Result<(), Box<Fault>> {
        let arguments = self.arguments.iter().map(|given| match given {
            Given::Bytes(bytes) => Argument::Bytes(bytes.clone()),
            Given::Buffer { name, bytes, access, word, offset, expects, makes } => {
                Argument::Buffer {
                    address: self.place(world, name, *bytes, *offset, *word),
                    bytes: *bytes as u64,
                    name: name.clone(),
                    access: *access,
                    expects: *expects,
                    makes: *makes,
                }
            }
        });
        let launch = Launch {
            kernel: self.kernel.clone(),
            grid: self.grid,
            block: self.block,
            dynamic_shared: self.shared,
            arguments: arguments.collect(),
        };
        let options = Options { max_instructions: 1_000_000, ..Options::default() };
        Emulator::new(options).run(module, &launch, &mut world.memory).map(|_| ())
    }

    /// The address of a buffer. A new buffer is allocated and filled.
    fn place(
        &self,
        world: &mut World,
        name: &str,
        bytes: usize,
        offset: Option<usize>,
        word: Option<u32>,
    ) -> u64 {
        if let Some(place) = world.places.get(name) {
            return *place;
        }
        let place = match (offset, self.arena) {
            (Some(offset), Some(size)) => {
                let World { memory, places } = world;
                let start = places.entry("the arena".into()).or_insert_with(|| {
                    memory.allocate("the arena", size as u64).expect("a small arena")
                });
                *start + offset as u64
            }
            _ => world.memory.allocate(name, bytes as u64).expect("a small buffer"),
        };
        if let Some(word) = word {
            let filled: Vec<u8> = word.to_le_bytes().into_iter().cycle().take(bytes).collect();
            world.memory.write(place, &filled).expect("a place just allocated");
        }
        world.places.insert(name.into(), place);
        place
    }

    /// Returns an error unless the outcome is the planted fault.
    pub fn judge(&self, outcome: Result<(), Box<Fault>>) -> Result<(), String> {
        let fault = match outcome {
            Ok(()) if self.is_clean() => return Ok(()),
            Ok(()) => return Err("nothing was found".into()),
            Err(fault) => fault,
        };
        let kind = format!("{:?}", fault.kind);
        // The space of an access follows from its instruction, so it is not compared.
        let kind = kind.split('(').next().expect("text");
        if fault.kernel != self.kernel {
            return Err(format!("it names the kernel {}: {fault}", fault.kernel));
        }
        let kinds = match self.guilty.get(&fault.line) {
            Some(kinds) => kinds,
            None if self.guilty.is_empty() => &self.at_launch,
            None => return Err(format!("it names line {}: {fault}", fault.line)),
        };
        match kinds.iter().any(|k| k == kind) {
            true => Ok(()),
            false => Err(format!("{kind}, not {}: {fault}", kinds.join(" or "))),
        }
    }
}
