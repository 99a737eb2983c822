//! Launching kernels.
//!
//! A kernel's parameters are addresses and counters of 64 bits each, or an array of addresses.
//! Their number is known from the PTX, and checked: the driver reads one pointer for each parameter
//! from the argument list, and as many bytes there as the parameter has, whatever the list's
//! length.
//!
//! A kernel that begins by waiting for the preceding ones may be launched before they have ended
//! (*programmatic dependent launch*): its blocks are then in place when the last of theirs end. The
//! text of a kernel says whether it waits ([`Kernel::WAIT`](crate::ptx::Kernel::WAIT)), so no other
//! kernel is launched early.
//!
//! A kernel must opt in once to more than 48 KiB of shared memory a block; [`Device::launch`]
//! does so when needed.

use super::context::Device;
use super::error::{DeviceError, Result};
use super::graph::Capturing;
use super::module::Function;
use cudarc::driver::sys::{
    CUfunction_attribute_enum as Attribute, CUlaunchAttribute, CUlaunchAttributeID,
    CUlaunchAttributeValue, CUlaunchConfig,
};
use std::ffi::c_void;
use std::sync::atomic::Ordering;

/// The version of the driver since which early launches can be captured in a graph: CUDA 12.3.
const EARLY_IN_GRAPHS: u32 = 12_030;

/// Maximum number of blocks along x, y and z.
const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

impl Device {
    /// Enqueues a kernel: blocks of the grid, threads of a block, bytes of dynamic shared memory,
    /// and the arguments. A grid of no blocks does nothing. May be captured.
    ///
    /// Errors: the number of arguments is not that of the kernel's parameters; more threads,
    /// blocks or shared memory than the device supports. Faults of the kernel itself surface
    /// later, at a call that waits.
    ///
    /// # Safety
    ///
    /// With these arguments the kernel accesses allocations of this device only, and none that is
    /// freed before the stream has completed it. (The host's pinned memory is in the address
    /// space of kernels, too.)
    pub unsafe fn launch(
        &self,
        function: &Function,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        arguments: &[u64],
    ) -> Result<()> {
        self.launch_verified(function, grid, block, shared, arguments)
    }

    /// [`launch`](Self::launch) for this crate's executor, which keeps the safety condition: a
    /// kernel was emitted from a verified plan, accesses its arguments' bytes only, and these lie
    /// in memory of the executable or in variables whose addresses were checked to be in an
    /// allocation.
    pub(crate) fn launch_verified(
        &self,
        function: &Function,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        arguments: &[u64],
    ) -> Result<()> {
        let name = function.name();
        let refused = |why: String| {
            let help =
                "this is a fault of the plan's kernels: please report it with the kernel's name";
            Err(DeviceError::refused(format!("launching `{name}`"), why, help))
        };
        if arguments.len() != function.arguments() {
            return refused(format!(
                "it takes {} arguments, {} are given",
                function.arguments(),
                arguments.len()
            ));
        }
        let threads = block.iter().try_fold(1u32, |n, b| n.checked_mul(*b)).unwrap_or(u32::MAX);
        if threads == 0 || threads > function.max_threads() {
            return refused(format!(
                "blocks of {block:?} threads, and 1 to {} fit",
                function.max_threads()
            ));
        }
        if grid.iter().zip(MAX_GRID).any(|(g, max)| *g > max) {
            return refused(format!("a grid of {grid:?} blocks, and {MAX_GRID:?} fit"));
        }
        if grid.contains(&0) {
            return Ok(());
        }
        let context = &*self.context;
        context.submitting("launching a kernel")?;
        context.enter()?;
        self.allow_shared(function, shared)?;
        // The addresses of an array are neighbours here as well.
        let pointer = |first: usize| arguments[first..].as_ptr().cast_mut().cast::<c_void>();
        let mut pointers: Vec<*mut c_void> = function.parameters().map(pointer).collect();
        // A capture decides for every kernel, also for those that do not wait.
        let allowed = context.capturing().as_mut().is_none_or(Capturing::is_next_early);
        let early = function.waits() && allowed && context.driver.version >= EARLY_IN_GRAPHS;
        let mut attributes = [CUlaunchAttribute {
            id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        }];
        let config = CUlaunchConfig {
            gridDimX: grid[0],
            gridDimY: grid[1],
            gridDimZ: grid[2],
            blockDimX: block[0],
            blockDimY: block[1],
            blockDimZ: block[2],
            sharedMemBytes: shared,
            hStream: context.stream,
            attrs: attributes.as_mut_ptr(),
            numAttrs: early.into(),
        };
        // SAFETY: the function lives, since its module is borrowed through it; there is a pointer
        // to the arguments of each of its parameters, 8 bytes each, as many as the text says. The
        // driver copies them and the attributes before it returns. The caller guarantees the
        // kernel's accesses. A kernel that is launched early waits for the preceding ones before it
        // accesses memory.
        let code = unsafe {
            context.driver.api.cuLaunchKernelEx(
                &config,
                function.handle(),
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        context.check(code, || {
            format!("launching `{name}` (grid {grid:?}, block {block:?}, {shared} bytes shared)")
        })?;
        if let Some(capturing) = &mut *context.capturing() {
            capturing.keep(function.module());
        }
        Ok(())
    }

    /// Opts in to dynamic shared memory beyond the default.
    fn allow_shared(&self, function: &Function, shared: u32) -> Result<()> {
        if shared <= function.allowed_shared.load(Ordering::Relaxed) {
            return Ok(());
        }
        let most = self.found().shared_per_block.saturating_sub(function.static_shared());
        if shared > most {
            let why = format!(
                "it needs {shared} bytes of dynamic shared memory, and a block may have {most}"
            );
            let help = "the plan was made for another GPU: compile it for this one";
            return Err(DeviceError::refused(
                format!("launching `{}`", function.name()),
                why,
                help,
            ));
        }
        let context = &*self.context;
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function lives; the value is within the device's bound.
        let code = unsafe {
            context.driver.api.cuFuncSetAttribute(function.handle(), attribute, shared as i32)
        };
        context.check(code, || {
            format!("asking for {shared} bytes of shared memory for `{}`", function.name())
        })?;
        function.allowed_shared.fetch_max(shared, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, bytes_at};
    use super::super::module::tests::PTX;
    use crate::architecture::Architecture;

    fn sm80() -> Architecture {
        Architecture::from_name("sm_80").unwrap()
    }

    #[test]
    fn a_kernel_gets_its_arguments() {
        let fake = Fake::new();
        let device = fake.device();
        let module = device.load_module(PTX, sm80()).unwrap();
        let scale = module.function("scale").unwrap();
        let memory = device.allocate(16, "the state").unwrap();
        device.write(memory.address(), &[1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        fake.kernel("scale", |grid, block, _, arguments| {
            assert_eq!(arguments.len(), 3);
            for n in 0..(grid[0] * block[0]) as usize {
                bytes_at(arguments[1], 16)[8 + n] =
                    bytes_at(arguments[0], 16)[n] * arguments[2] as u8;
            }
        });
        let at = memory.address().0;
        device.launch_verified(&scale, [2, 1, 1], [4, 1, 1], 0, &[at, at, 3]).unwrap();
        assert!(fake.launches().is_empty(), "launches do not wait");
        let mut back = [0; 16];
        device.read(memory.address(), &mut back).unwrap();
        assert_eq!(back[8..], [3, 6, 9, 12, 15, 18, 21, 24]);
        assert_eq!(fake.launches(), ["scale [2, 1, 1] [4, 1, 1] 0"]);
    }

    /// A kernel is launched early only if its own text waits.
    #[test]
    fn a_kernel_that_waits_is_launched_early() {
        let fake = Fake::new();
        let device = fake.device();
        let waiting = PTX.replacen("{", "{\n\tgriddepcontrol.wait;", 1);
        for (text, early) in [(PTX, 0), (waiting.as_str(), 1)] {
            let module = device.load_module(text, sm80()).unwrap();
            let scale = module.function("scale").unwrap();
            device.launch_verified(&scale, [1; 3], [4, 1, 1], 0, &[0; 3]).unwrap();
            assert_eq!(fake.early(), early);
        }
    }

    #[test]
    fn the_text_that_was_loaded_is_what_runs() {
        let fake = Fake::new();
        let device = fake.device();
        let module = device.load_module(PTX, sm80()).unwrap();
        let memory = device.allocate(16, "the state").unwrap();
        fake.executor(|text, launched| {
            assert_eq!((text, launched.name.as_str()), (PTX, "scale"));
            let (address, bytes) = Fake::allocations()[0];
            bytes_at(address, bytes).fill(launched.arguments[2] as u8);
        });
        device
            .launch_verified(&module.function("scale").unwrap(), [1; 3], [32, 1, 1], 0, &[0, 0, 5])
            .unwrap();
        let mut back = [0; 16];
        device.read(memory.address(), &mut back).unwrap();
        assert_eq!(back, [5; 16]);
    }

    #[test]
    fn what_does_not_fit_is_refused_before_the_driver_sees_it() {
        let fake = Fake::new();
        let device = fake.device();
        let module = device.load_module(PTX, sm80()).unwrap();
        let scale = module.function("scale").unwrap();
        for (grid, block, shared, arguments, says) in [
            ([1, 1, 1], [32, 1, 1], 0, 2, "takes 3 arguments, 2 are given"),
            ([1, 1, 1], [32, 33, 1], 0, 3, "1 to 1024 fit"),
            ([1, 1, 1], [0, 1, 1], 0, 3, "1 to 1024 fit"),
            ([1, 1, 1], [u32::MAX, 3, 1], 0, 3, "1 to 1024 fit"),
            ([1, 65_536, 1], [32, 1, 1], 0, 3, "a grid of"),
            ([1, 1, 1], [32, 1, 1], 227 << 10, 3, "a block may have 231424"),
        ] {
            let error = device
                .launch_verified(&scale, grid, block, shared, &[0; 3][..arguments])
                .unwrap_err();
            assert!(
                error.to_string().contains(says) && error.to_string().contains("`scale`"),
                "{error}"
            );
        }
        device.launch_verified(&scale, [0, 1, 1], [32, 1, 1], 0, &[0; 3]).unwrap();
        assert_eq!(fake.count("cuLaunchKernelEx"), 0);
    }

    #[test]
    fn more_shared_memory_is_asked_for_once() {
        let fake = Fake::new();
        let device = fake.device();
        let module = device.load_module(PTX, sm80()).unwrap();
        let scale = module.function("scale").unwrap();
        for shared in [0, 40 << 10, 100 << 10, 60 << 10, 100 << 10] {
            device.launch_verified(&scale, [1, 1, 1], [32, 1, 1], shared, &[0; 3]).unwrap();
        }
        assert_eq!(fake.count("cuFuncSetAttribute"), 1);
        assert_eq!(fake.count("cuLaunchKernelEx"), 5);
    }
}
