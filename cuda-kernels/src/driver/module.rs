//! Modules: from PTX to functions that can be launched.
//!
//! The driver compiles the text of a plan as one whole program ([`crate::assembly`] has the
//! options, which the ptxas gate shares). It caches compiled code itself (`CUDA_CACHE_PATH`,
//! `CUDA_CACHE_MAXSIZE`, `CUDA_CACHE_DISABLE`), keyed by the text, the options, the GPU and its
//! own version. So there is no cache here.
//!
//! A [`Function`] knows how many parameters its kernel declares, and how many addresses are in
//! those that are arrays. No other check catches a launch with too few arguments.

use super::context::{Device, Freed};
use super::error::{Cause, DeviceError, Result};
use crate::architecture::Architecture;
use crate::assembly::OPTIMISATION;
use crate::ptx::Kernel;
use cudarc::driver::sys::{
    CUfunction, CUfunction_attribute, CUfunction_attribute_enum as Attribute, CUjit_option,
    CUjit_option_enum, CUmodule,
};
use std::collections::BTreeMap;
use std::ffi::{CString, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// Kernels on a device, from one PTX text.
#[derive(Clone)]
pub struct Module {
    loaded: Arc<Loaded>,
}

struct Loaded {
    device: Device,
    handle: CUmodule,
    kernels: BTreeMap<String, Entry>,
}

/// Facts about a kernel, read from its text.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    /// For each parameter its number of arguments: several for an array of addresses.
    parameters: Vec<usize>,
    /// Whether it waits for the preceding kernels itself.
    waits: bool,
}

// SAFETY: a module is a handle of the driver, which is thread-safe.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

/// A kernel of a module.
pub struct Function {
    /// Keeps the module loaded.
    module: Module,
    handle: CUfunction,
    name: String,
    entry: Entry,
    resources: Resources,
    /// Bytes of dynamic shared memory that were requested.
    pub(super) allowed_shared: AtomicU32,
}

// SAFETY: a function is a handle of the driver, which is thread-safe.
unsafe impl Send for Function {}
// SAFETY: as above; the counter is atomic.
unsafe impl Sync for Function {}

/// Resources of a kernel, as the driver compiled it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resources {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of static shared memory of a block.
    pub static_shared: u32,
    /// Bytes of local memory of a thread, mostly spills.
    pub local: u32,
    /// Maximum number of threads of a block.
    pub max_threads: u32,
}

impl Module {
    /// The kernel of that name.
    ///
    /// Errors: there is no such kernel.
    pub fn function(&self, name: &str) -> Result<Function> {
        let loaded = &*self.loaded;
        let doing = || format!("looking for kernel `{name}`");
        let Some(entry) = loaded.kernels.get(name) else {
            let why = format!(
                "the module has {}",
                loaded.kernels.keys().cloned().collect::<Vec<_>>().join(", ")
            );
            return Err(DeviceError::refused(doing(), why, "please report it"));
        };
        let c_name = CString::new(name).expect("a name found in PTX holds no zero");
        let context = &*loaded.device.context;
        context.not_capturing(&doing())?;
        context.enter()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is valid for a write, the module is loaded, the name ends with a
        // zero.
        let code = unsafe {
            context.driver.api.cuModuleGetFunction(&mut handle, loaded.handle, c_name.as_ptr())
        };
        context.check(code, doing)?;
        // The query also loads the function, which the driver would otherwise do at the first
        // launch.
        let ask = |attribute: CUfunction_attribute| -> Result<u32> {
            let mut value = 0;
            // SAFETY: the pointer is valid for a write, the function was just found.
            let code =
                unsafe { context.driver.api.cuFuncGetAttribute(&mut value, attribute, handle) };
            context.check(code, || format!("asking what kernel `{name}` takes"))?;
            Ok(value.max(0) as u32)
        };
        let resources = Resources {
            registers: ask(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            static_shared: ask(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            local: ask(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            max_threads: ask(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        };
        let allowed_shared =
            ask(Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)?.into();
        let (name, entry) = (name.to_string(), entry.clone());
        Ok(Function { module: self.clone(), handle, name, entry, resources, allowed_shared })
    }

    /// Names of the kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.loaded.kernels.keys().map(String::as_str)
    }

    /// True if both are the same module.
    pub(super) fn is(&self, other: &Module) -> bool {
        Arc::ptr_eq(&self.loaded, &other.loaded)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // No function is left, since each holds the module. Work in the stream may still use the
        // kernels.
        self.device.context.free(Freed::Module(self.handle));
    }
}

impl Function {
    /// Its name in PTX.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of its arguments: one for each parameter, or for each address of an array.
    pub fn arguments(&self) -> usize {
        self.entry.parameters.iter().sum()
    }

    /// For each parameter the number of its first argument.
    pub(super) fn parameters(&self) -> impl Iterator<Item = usize> {
        self.entry.parameters.iter().scan(0, |next, count| {
            *next += count;
            Some(*next - count)
        })
    }

    /// Whether it waits for the preceding kernels itself, so that it may be launched before they
    /// have ended.
    pub(super) fn waits(&self) -> bool {
        self.entry.waits
    }

    /// Its resources.
    pub fn resources(&self) -> Resources {
        self.resources
    }

    /// Maximum number of threads of a block.
    pub fn max_threads(&self) -> u32 {
        self.resources.max_threads
    }

    /// Bytes of static shared memory.
    pub fn static_shared(&self) -> u32 {
        self.resources.static_shared
    }

    pub(super) fn module(&self) -> &Module {
        &self.module
    }

    pub(super) fn handle(&self) -> CUfunction {
        self.handle
    }
}

impl Device {
    /// Compiles and loads kernels.
    ///
    /// Errors: the PTX is for a later architecture; the driver's compiler refuses it (its log is
    /// in the error); a parameter is neither a number of at most 64 bits nor an array of addresses.
    pub fn load_module(&self, ptx: &str, architecture: Architecture) -> Result<Module> {
        let context = &*self.context;
        let doing = || format!("loading kernels for {}", architecture.name());
        context.not_capturing(&doing())?;
        let (major, minor) = self.found().capability;
        if architecture.number > 10 * major + minor {
            let why = format!("{} is sm_{major}{minor}", self.name());
            return Err(DeviceError::refused(doing(), why, "compile the plan for this GPU"));
        }
        let wrong = |why: String| DeviceError::refused(doing(), why, "please report it");
        let kernels = kernels(ptx).map_err(wrong)?;
        let text = CString::new(ptx).map_err(|_| wrong("the text holds a zero byte".into()))?;
        context.enter()?;
        let (mut options, mut handle) = (JitOptions::new(), std::ptr::null_mut());
        // SAFETY: the image is PTX that ends with a zero; the options, and the buffer that they
        // name, live through the call, after which the driver uses neither.
        let code = unsafe {
            context.driver.api.cuModuleLoadDataEx(
                &mut handle,
                text.as_ptr().cast::<c_void>(),
                options.count(),
                options.names.as_mut_ptr(),
                options.values.as_mut_ptr(),
            )
        };
        context.check(code, doing).map_err(|error| options.explain(error))?;
        Ok(Module { loaded: Arc::new(Loaded { device: self.clone(), handle, kernels }) })
    }
}

/// Options of a compilation: [`OPTIMISATION`], and a buffer for the compiler's errors.
struct JitOptions {
    error: Vec<u8>,
    names: [CUjit_option; 3],
    values: [*mut c_void; 3],
}

impl JitOptions {
    /// Bytes of the buffer.
    const LOG: usize = 16 << 10;

    fn new() -> JitOptions {
        use CUjit_option_enum as Option;
        let mut error = vec![0; Self::LOG];
        // The API passes numbers as pointers.
        let number = std::ptr::without_provenance_mut::<c_void>;
        let names = [
            Option::CU_JIT_ERROR_LOG_BUFFER,
            Option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            Option::CU_JIT_OPTIMIZATION_LEVEL,
        ];
        let values = [error.as_mut_ptr().cast(), number(Self::LOG), number(OPTIMISATION.into())];
        JitOptions { error, names, values }
    }

    fn count(&self) -> c_uint {
        self.names.len() as c_uint
    }

    /// Adds the compiler's log, which ends at the first zero, to an error.
    fn explain(&self, mut error: DeviceError) -> DeviceError {
        let end = self.error.iter().position(|b| *b == 0).unwrap_or(self.error.len());
        let log = String::from_utf8_lossy(&self.error[..end]);
        if let Cause::Call { text, .. } = &mut error.cause
            && !log.trim().is_empty()
        {
            *text = format!("{text}\n{}", log.trim());
        }
        error
    }
}

/// The kernels of a PTX text.
fn kernels(ptx: &str) -> Result<BTreeMap<String, Entry>, String> {
    let lines: Vec<_> = ptx.lines().map(|l| l.split("//").next().unwrap_or("")).collect();
    let text = lines.join("\n");
    let mut found = BTreeMap::new();
    for part in text.split(".entry").skip(1) {
        let end = part.find(['(', '{', ';']).ok_or("an `.entry` without a body")?;
        let name = part[..end].trim();
        if name.is_empty()
            || name.contains(|c: char| !(c.is_ascii_alphanumeric() || "_$%".contains(c)))
        {
            // `.entry name .maxntid …` has no parameters; any other form is not understood.
            return Err(format!("an `.entry` named `{name}`"));
        }
        let list = match part[end..].strip_prefix('(') {
            Some(rest) => rest.split(')').next().unwrap_or(""),
            None => "",
        };
        let parameters: Vec<_> = list.split(',').map(str::trim).filter(|p| !p.is_empty()).collect();
        const TYPES: [&str; 16] = [
            "b8", "b16", "b32", "b64", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16",
            "bf16", "f32", "f64",
        ];
        let mut counts = Vec::with_capacity(parameters.len());
        for parameter in &parameters {
            if let Some(count) = addresses(parameter) {
                counts.push(count);
                continue;
            }
            let scalar = parameter.starts_with(".param")
                && !parameter.contains('[')
                && parameter
                    .split_whitespace()
                    .any(|w| TYPES.iter().any(|t| w.strip_prefix('.') == Some(t)));
            if !scalar {
                return Err(format!(
                    "kernel `{name}` has a parameter that is no number: `{parameter}`"
                ));
            }
            counts.push(1);
        }
        let waits = part.contains(Kernel::WAIT);
        found.insert(name.to_string(), Entry { parameters: counts, waits });
    }
    Ok(found)
}

/// The number of addresses of a parameter that is an array of them
/// ([`Bundle`](crate::ptx::Bundle)).
fn addresses(parameter: &str) -> Option<usize> {
    let array = parameter.strip_prefix(".param .align 8 .b8 ")?;
    let (_, bytes) = array.strip_suffix(']')?.split_once('[')?;
    let bytes: usize = bytes.parse().ok()?;
    (bytes > 0 && bytes.is_multiple_of(8)).then_some(bytes / 8)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::fake::Fake;
    use super::*;

    /// Two kernels, for the fake driver, which does not run them.
    pub(in crate::driver) const PTX: &str = "\
.version 8.0
.target sm_80
.address_size 64
// .entry not_me(
.visible .entry scale(
    .param .u64 from, // the first
    .param .u64 .ptr .global .align 16 to,
    .param .u32 factor
)
.reqntid 128
{
    ret;
}
.visible .entry nothing()
{
    ret;
}
";

    fn sm(number: u32) -> Architecture {
        Architecture::from_name(&format!("sm_{number}")).unwrap()
    }

    #[test]
    fn kernels_and_their_parameters_are_read_from_the_text() {
        let found = kernels(PTX).unwrap();
        let entry = |parameters: &[usize]| Entry { parameters: parameters.into(), waits: false };
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [("nothing".into(), entry(&[])), ("scale".into(), entry(&[1; 3]))]
        );
        let found = kernels(".entry f(.param .u64 n, .param .align 8 .b8 x[16]) {}").unwrap();
        assert_eq!(found["f"], entry(&[1, 2]));
        for (bad, says) in [
            (".entry f(.param .align 8 .b8 x[12])", "`.param .align 8 .b8 x[12]`"),
            (".entry f(.param .align 4 .b8 x[16])", "`.param .align 4 .b8 x[16]`"),
            (".entry f(.u64 x)", "`.u64 x`"),
            (".entry f", "without a body"),
            (".entry ()", "named ``"),
        ] {
            assert!(kernels(bad).unwrap_err().contains(says), "{bad}");
        }
    }

    #[test]
    fn kernels_of_the_emitter_are_read() {
        use crate::call::compile;
        use wengert_core::DType;
        use wengert_core::call::{Addends, Call, Gemm, Matrix};
        let dense = |columns| Matrix { batch: 0, row: columns, column: 1 };
        let call = Call::Gemm(Gemm {
            batch: 1,
            m: 70,
            n: 50,
            k: 300,
            lhs: dense(300),
            rhs: dense(50),
            operand: DType::F32,
            rhs_operand: None,
            scales: None,
            accumulate: DType::F32,
            result: DType::F32,
            addends: Addends { bias: true, ..Addends::default() },
            pitch: None,
        });
        let stages = compile(&call, sm(90), None).unwrap().stages;
        assert!(!stages.is_empty());
        let functions = stages.iter().flat_map(|s| s.functions.clone()).collect();
        let mut module = crate::ptx::Module::new(functions, Vec::new());
        for (n, stage) in stages.iter().enumerate() {
            module.kernels.push(Kernel { name: format!("stage_{n}"), ..stage.kernel.clone() });
        }
        let found = kernels(&module.to_string()).unwrap();
        assert_eq!(found.len(), stages.len());
        for (n, stage) in stages.iter().enumerate() {
            assert_eq!(found[&format!("stage_{n}")].parameters.len(), stage.arguments.len());
        }
    }

    #[test]
    fn a_module_is_loaded_and_unloaded_after_its_last_function() {
        let fake = Fake::new();
        let device = fake.device();
        let module = device.load_module(PTX, sm(80)).unwrap();
        let scale = module.function("scale").unwrap();
        assert_eq!(scale.arguments(), 3);
        let expected =
            Resources { registers: 32, static_shared: 1024, local: 0, max_threads: 1024 };
        assert_eq!(scale.resources(), expected);
        assert_eq!(module.kernels().collect::<Vec<_>>(), ["nothing", "scale"]);
        assert!(module.function("none").err().unwrap().to_string().contains("nothing, scale"));
        drop((module, device));
        assert_eq!(fake.count("cuModuleUnload"), 0);
        drop(scale);
        fake.nothing_left();
    }

    #[test]
    fn the_compilers_words_are_in_the_error() {
        let fake = Fake::new();
        let device = fake.device();
        let error = device.load_module("oops", sm(80)).err().unwrap();
        let text = error.to_string();
        let says = "loading kernels for sm_80: cuModuleLoadDataEx failed with \
                    CUDA_ERROR_INVALID_PTX (218)";
        assert!(text.contains(says), "{text}");
        assert!(text.contains("Missing .version directive"), "{text}");
        for call in ["cuModuleLoadDataEx", "cuModuleGetFunction"] {
            fake.fail(call, 999);
            let loaded = device.load_module(PTX, sm(80)).and_then(|m| m.function("scale"));
            assert_eq!(loaded.err().unwrap().code(), Some(999), "{call}");
        }
        drop(device);
        fake.nothing_left();
    }

    #[test]
    fn a_plan_for_a_later_gpu_is_refused() {
        let fake = Fake::new();
        let error = fake.device().load_module(PTX, sm(100)).err().unwrap().to_string();
        assert!(error.contains("loading kernels for sm_100: cuda:0 is sm_90"), "{error}");
    }

    /// The gate's table of registers and occupancy holds for a GPU only if the driver compiles
    /// with the options of the gate's assembler. Both are checked at the interface: the options
    /// that the driver received, and the command line that the gate runs.
    #[test]
    fn the_driver_compiles_with_the_options_of_the_gate() {
        let fake = Fake::new();
        let device = fake.device();
        let module = device.load_module(PTX, sm(90)).unwrap();
        let words: Vec<String> = fake
            .jit_options()
            .into_iter()
            .map(|(option, value)| {
                use CUjit_option_enum as O;
                match option {
                    O::CU_JIT_OPTIMIZATION_LEVEL => format!("-O{value}"),
                    other => {
                        panic!("{other:?} is not known to this test: which option of ptxas is it?")
                    }
                }
            })
            .collect();
        // The driver compiles for the context's GPU.
        let (major, minor) = device.found().capability;
        let expected = [vec![format!("-arch=sm_{major}{minor}")], words].concat();
        assert_eq!(wengert_ci::gate::arguments(PTX, "sm_90"), expected);
        // The driver gets PTX, so it compiles whole programs. Its linker would compile relocatable
        // code, as `-rdc=true` (`-c`) does.
        assert!(
            !expected
                .iter()
                .any(|word| ["-c", "--compile-only"].contains(&word.as_str())
                    || word.contains("rdc"))
        );
        drop((module, device));
        fake.nothing_left();
    }
}
