//! Runs an instruction on given values, and kernels on given bytes.

use wengert_emulator::{Access, Argument, Emulator, Fault, Launch, Memory, Module, Options};

/// The head of every text.
pub const HEADER: &str = ".version 8.6\n.target sm_90\n.address_size 64\n";

/// The register that contains the result of an instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Result {
    /// `%h9`
    Half,
    /// `%w9`
    Word,
    /// `%x9`
    Long,
    /// `%p9`
    Predicate,
}

/// One or several instructions with their cases. They read `%h0…`, `%w0…` and `%x0…`, which contain
/// the low bits of the case's values, and they write a result.
pub struct Row {
    /// PTX.
    pub code: &'static str,
    /// The register of the result.
    pub result: Result,
    /// The values of each case, and its result.
    pub cases: Vec<(Vec<u64>, u64)>,
}

/// The kernel that runs a row's cases, one in each thread.
fn kernel(index: usize, row: &Row) -> String {
    let store = match row.result {
        Result::Half => "cvt.u64.u16 %x9, %h9;",
        Result::Word => "cvt.u64.u32 %x9, %w9;",
        Result::Long => "",
        Result::Predicate => "selp.b64 %x9, 1, 0, %p9;",
    };
    let mut loads = String::new();
    for i in 0..4 {
        loads += &format!(
            "    ld.global.u64 %x{i}, [%xa+{}];\n    \
             cvt.u32.u64 %w{i}, %x{i};\n    \
             cvt.u16.u64 %h{i}, %x{i};\n",
            i * 8
        );
    }
    format!(
        ".visible .entry k{index}(.param .u64 cases_{index})\n{{\n    \
         .reg .b16 %h<10>;\n    .reg .b32 %w<10>, %wt;\n    \
         .reg .b64 %x<10>, %xa;\n    .reg .pred %p<10>;\n    \
         ld.param.u64 %xa, [cases_{index}];\n    mov.u32 %wt, %tid.x;\n    \
         mad.wide.u32 %xa, %wt, 40, %xa;\n\
         {loads}    {}\n    {store}\n    st.global.u64 [%xa+32], %x9;\n    ret;\n}}\n",
        row.code
    )
}

/// Checks every case of every row: each in its own lane, and once more alone in a warp.
pub fn check(rows: &[Row]) {
    let mut text = HEADER.to_owned();
    for (index, row) in rows.iter().enumerate() {
        text += &kernel(index, row);
    }
    let module = parse(&text);
    let mut wrong = String::new();
    for (index, row) in rows.iter().enumerate() {
        for cases in [&row.cases[..], &row.cases[..1]] {
            let mut memory = Memory::new();
            let mut bytes = Vec::new();
            for (values, _) in cases {
                for at in 0..4 {
                    bytes.extend_from_slice(&values.get(at).copied().unwrap_or(0).to_le_bytes());
                }
                bytes.extend_from_slice(&[0; 8]);
            }
            let address = memory.allocate("cases", bytes.len() as u64).unwrap();
            memory.write(address, &bytes).unwrap();
            let launch = Launch {
                kernel: format!("k{index}"),
                grid: [1; 3],
                block: [cases.len() as u32, 1, 1],
                dynamic_shared: 0,
                arguments: vec![Argument::Bytes(address.to_le_bytes().to_vec())],
            };
            Emulator::new(Options::default())
                .run(&module, &launch, &mut memory)
                .unwrap_or_else(|fault| panic!("{}: {fault}", row.code));
            for (at, (values, expected)) in cases.iter().enumerate() {
                let bytes = memory.read(address + at as u64 * 40 + 32, 8).unwrap();
                let found = u64::from_le_bytes(bytes.try_into().unwrap());
                if found != *expected {
                    wrong +=
                        &format!("{}  with {values:x?}: {found:#x}, not {expected:#x}\n", row.code);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Parses a text. If `PTX_DUMP` names a folder, also writes the text there, so that ptxas can check
/// it.
pub fn parse(text: &str) -> Module {
    if let Ok(folder) = std::env::var("PTX_DUMP") {
        let hash = text.bytes().fold(0u64, |h, b| h.wrapping_mul(31).wrapping_add(b.into()));
        std::fs::write(format!("{folder}/{hash:016x}.ptx"), text).unwrap();
    }
    Module::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Wraps a kernel's body. `%x` is the pointer to the output buffer, `%t` the thread.
pub fn program(body: &str) -> String {
    format!(
        "{HEADER}.extern .shared .align 16 .b8 dynamic[];\n\
         .visible .entry k(.param .u64 .ptr out)\n{{\n    \
         .reg .b16 %h<40>;\n    .reg .b32 %w<80>, %t;\n    \
         .reg .b64 %d<40>, %x;\n    .reg .pred %p<20>;\n    \
         .shared .align 16 .b8 tile[4096];\n    .local .align 16 .b8 own[64];\n    \
         ld.param.u64 %x, [out];\n    cvta.to.global.u64 %x, %x;\n    \
         mov.u32 %t, %tid.x;\n{body}\n}}\n"
    )
}

/// Stores `%w0` of each thread in the output.
pub const STORE: &str = "
    mov.u32 %w70, %ntid.x;
    mov.u32 %w71, %ctaid.x;
    mad.lo.u32 %w70, %w70, %w71, %t;
    mul.wide.u32 %d30, %w70, 4;
    add.u64 %d30, %x, %d30;
    st.global.u32 [%d30], %w0;
    ret;";

/// Runs a body on an output buffer of that many words. Their initial value is their index plus 100.
pub fn try_run(
    body: &str,
    grid: u32,
    block: u32,
    words: u32,
) -> std::result::Result<Vec<u32>, Box<Fault>> {
    let module = parse(&program(body));
    let mut memory = Memory::new();
    let address = memory.allocate("out", u64::from(words) * 4).unwrap();
    let bytes: Vec<u8> = (100..100 + words).flat_map(u32::to_le_bytes).collect();
    memory.write(address, &bytes).unwrap();
    let launch = Launch {
        kernel: "k".to_owned(),
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        dynamic_shared: 256,
        arguments: vec![Argument::Buffer {
            address,
            bytes: u64::from(words) * 4,
            name: "out".to_owned(),
            access: Access::ReadWrite,
            expects: None,
            makes: None,
        }],
    };
    let options = Options { max_instructions: 10_000_000, ..Options::default() };
    Emulator::new(options).run(&module, &launch, &mut memory)?;
    let bytes = memory.read(address, words as usize * 4).unwrap();
    Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect())
}

/// [`try_run`] for a body without a fault.
pub fn run(body: &str, grid: u32, block: u32, words: u32) -> Vec<u32> {
    try_run(body, grid, block, words).unwrap_or_else(|fault| panic!("{fault}"))
}

/// A row of a table: `row!(Word, "add.s32 %w9, %w0, %w1;", [1, 2] => 3, …)`.
#[macro_export]
macro_rules! row {
    ($result:ident, $code:expr, $([$($value:expr),*] => $expected:expr),+ $(,)?) => {
        $crate::table::Row {
            code: $code,
            result: $crate::table::Result::$result,
            cases: vec![$((vec![$($value as i128 as u64),*], $expected as i128 as u64)),+],
        }
    };
}
