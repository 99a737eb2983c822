//! Resources of kernels, from the output of `ptxas -v`.

/// Resources of a kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Resources {
    /// The kernel's name.
    pub kernel: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of static shared memory of a block.
    pub shared: u32,
    /// Bytes of local memory of a thread: arrays and spilled registers.
    pub stack: u32,
    /// Bytes of stores and of loads of spilled registers, in the kernel and the functions that it
    /// calls.
    pub spills: (u32, u32),
}

/// An output that says too little.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct OutputError(String);

/// Parses the kernels of an output, in its order.
///
/// ```text
/// ptxas info    : Compiling entry function 'k' for 'sm_80'
/// ptxas info    : Function properties for k
///     800 bytes stack frame, 832 bytes spill stores, 1080 bytes spill loads
/// ptxas info    : Used 32 registers, used 1 barriers, 800 bytes cumulative stack size, …
/// ptxas info    : Function properties for f
///     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
/// ```
///
/// The line `Used` ends with `1200 bytes smem, 360 bytes cmem[0]`. The functions after a kernel are
/// its callees; their spills count as the kernel's.
///
/// Errors: a line lacks its numbers.
pub fn resources(output: &str) -> Result<Vec<Resources>, OutputError> {
    let mut found: Vec<Resources> = Vec::new();
    for line in output.lines() {
        if let Some(name) = between(line, "Compiling entry function '", "'") {
            found.push(Resources { kernel: name.to_string(), ..Resources::default() });
            continue;
        }
        let Some(last) = found.last_mut() else { continue };
        if line.contains("bytes stack frame") {
            last.stack = last.stack.max(before(line, " bytes stack frame")?);
            last.spills.0 += before(line, " bytes spill stores")?;
            last.spills.1 += before(line, " bytes spill loads")?;
        } else if line.contains(": Used ") {
            last.registers = before(line, " registers")?;
            if line.contains(" bytes smem") {
                last.shared = before(line, " bytes smem")?;
            }
            if line.contains(" bytes cumulative stack size") {
                last.stack = last.stack.max(before(line, " bytes cumulative stack size")?);
            }
        }
    }
    match found.iter().find(|r| r.registers == 0) {
        Some(r) => {
            Err(OutputError(format!("ptxas does not say how many registers `{}` uses", r.kernel)))
        }
        None => Ok(found),
    }
}

fn between<'a>(line: &'a str, start: &str, end: &str) -> Option<&'a str> {
    line.split_once(start)?.1.split_once(end).map(|(name, _)| name)
}

/// The number before `words` in a line.
fn before(line: &str, words: &str) -> Result<u32, OutputError> {
    let number = line.split_once(words).and_then(|(start, _)| start.rsplit([' ', '\t']).next());
    number.and_then(|n| n.parse().ok()).ok_or_else(|| {
        OutputError(format!("no number before `{}` in `{}`", words.trim(), line.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k2' for 'sm_80'
ptxas info    : Function properties for k2
    160 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers, 168 bytes cumulative stack size, \
    360 bytes cmem[0]
ptxas info    : Compile time = 9.879 ms
ptxas info    : Function properties for f
    0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Compiling entry function 'k' for 'sm_80'
ptxas info    : Function properties for k
    800 bytes stack frame, 832 bytes spill stores, 1080 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 1200 bytes smem, 360 bytes cmem[0]
";

    #[test]
    fn numbers_are_read_and_calls_are_counted() {
        let found = resources(OUTPUT).unwrap();
        let k2 =
            Resources { kernel: "k2".into(), registers: 40, shared: 0, stack: 168, spills: (4, 8) };
        let k = Resources {
            kernel: "k".into(),
            registers: 32,
            shared: 1200,
            stack: 800,
            spills: (832, 1080),
        };
        assert_eq!(found, [k2, k]);
    }

    #[test]
    fn an_output_that_says_too_little_is_an_error() {
        let cut: String = OUTPUT.lines().take(4).collect::<Vec<_>>().join("\n");
        assert!(resources(&cut).unwrap_err().to_string().contains("k2"));
        assert!(resources(&OUTPUT.replace("40 registers", "many registers")).is_err());
    }
}
