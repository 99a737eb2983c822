//! Finds the driver and its version, the GPUs and cuBLASLt, before any of them is used.
//!
//! [`probe`] never fails and never panics: a missing library is part of its answer, with the
//! names that were tried and how to install it. [`driver`] is the only entry to the driver: no
//! device opens without it.

use super::api::{Driver, Unusable};
use super::error::{DeviceError, Result, size_text};
use super::library::{self, Tried};
use cudarc::driver::sys::{CUdevice, CUdevice_attribute as Attribute};
use std::any::Any;
use std::ffi::CStr;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use wengert_core::Diagnostic;

/// Help for a driver that finds no GPU.
pub(super) const NO_GPU: &str = "no GPU is visible: check `nvidia-smi`, CUDA_VISIBLE_DEVICES, and \
                                 that a container was given its GPUs (`docker run --gpus all`); \
                                 `--device cpu` and `--device emulator` need none";

/// CUDA version that the driver must at least implement: 1000 · major + 10 · minor.
pub const MINIMUM_DRIVER: u32 = 12_000;

/// Result of a probe.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The driver.
    pub driver: Result<DriverFound, Missing>,
    /// cuBLASLt. Not looked for without a driver, which decides which versions run.
    pub cublas_lt: Result<LibraryFound, Missing>,
}

/// The driver and its devices.
#[derive(Clone, Debug)]
pub struct DriverFound {
    /// The library.
    pub library: LibraryFound,
    /// The devices, or why they cannot be listed.
    pub devices: Result<Vec<DeviceFound>>,
}

/// A library that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LibraryFound {
    /// Name or path under which it was opened.
    pub path: String,
    /// Its version as text.
    pub version: String,
}

/// A GPU.
#[derive(Clone, PartialEq, Debug)]
pub struct DeviceFound {
    /// Its number: `cuda:N`.
    pub ordinal: u32,
    /// NVIDIA's name for it.
    pub name: String,
    /// Major and minor compute capability.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of free memory now, or why that is not known.
    pub free: Result<u64>,
    /// Maximum shared memory of a block that opts in, in bytes.
    pub shared_per_block: u32,
}

/// A library that is missing or unusable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    /// Its name: "the NVIDIA driver", "cuBLASLt".
    pub library: &'static str,
    /// Why it cannot be used.
    pub why: String,
    /// The names that were tried, with the loader's answers.
    pub tried: Vec<Tried>,
    /// How to install or repair it.
    pub help: String,
}

impl Missing {
    /// True if no file of that name exists, so that nothing of it is installed.
    pub fn is_absent(&self) -> bool {
        !self.tried.is_empty() && !self.tried.iter().any(Tried::is_there)
    }
}

impl From<Missing> for DeviceError {
    fn from(missing: Missing) -> DeviceError {
        // A reason is given only for files that exist.
        let word = |t: &Tried| {
            if t.is_there() { format!("{} ({})", t.name, t.why) } else { t.name.clone() }
        };
        let tried: Vec<_> = missing.tried.iter().map(word).collect();
        let tried = if tried.is_empty() {
            String::new()
        } else {
            format!(" (looked for {})", tried.join(", "))
        };
        let why = format!("{}{tried}", missing.why);
        DeviceError::refused(format!("looking for {}", missing.library), why, missing.help)
    }
}

impl From<Missing> for Diagnostic {
    fn from(missing: Missing) -> Diagnostic {
        DeviceError::from(missing).into()
    }
}

/// `12.8` for 12080.
pub fn version_text(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// The driver, opened once in a process.
///
/// Errors: it is missing, too old, or lacks a function.
pub fn driver() -> Result<Arc<Driver>, Missing> {
    static DRIVER: OnceLock<Result<Arc<Driver>, Missing>> = OnceLock::new();
    DRIVER.get_or_init(|| guarded(open_driver).unwrap_or_else(|why| Err(broken(why)))).clone()
}

fn open_driver() -> Result<Arc<Driver>, Missing> {
    let (mut tried, mut unusable) = (Vec::new(), None);
    for name in library::DRIVER_NAMES {
        // SAFETY: these are the names of NVIDIA's driver, whose initialisers are meant to run.
        let opened = match unsafe { library::open(&[name.into()]) } {
            // SAFETY: a library of that name is the driver.
            Ok((library, path)) => unsafe { Driver::new(library, path) },
            Err(failed) => {
                tried.extend(failed);
                continue;
            }
        };
        match opened
            .map_err(|why| no_driver(name, why))
            .and_then(|d| new_enough(d.version).map(|()| d))
        {
            Ok(driver) => return Ok(Arc::new(driver)),
            Err(missing) => unusable = unusable.or(Some(missing)),
        }
    }
    Err(unusable.unwrap_or(Missing {
        library: DRIVER,
        why: "it is not installed, or the dynamic loader does not find it".into(),
        tried,
        help: format!("{INSTALL}; `--device cpu` and `--device emulator` need none"),
    }))
}

/// The message for a library that was opened and cannot be used.
fn no_driver(name: &str, why: Unusable) -> Missing {
    let (why, help) = match why {
        Unusable::Lacks(names) => (format!("{name} lacks {names}"), NEWER_DRIVER.into()),
        Unusable::Stub => (
            format!(
                "{name} is the CUDA toolkit's stub, which programs are linked with, and no driver"
            ),
            format!(
                "{INSTALL}. If it is installed, put its folder in front of the stub's \
                 in LD_LIBRARY_PATH"
            ),
        ),
        Unusable::Version(code) => (
            format!("{name} does not tell its version (cuDriverGetVersion gave {code})"),
            "restart the machine after a driver update; if that does not help, \
             reinstall the NVIDIA driver"
                .into(),
        ),
    };
    Missing { library: DRIVER, why, tried: Vec::new(), help }
}

/// Whether programs can run on `cuda:0`, as far as that is known without a context on it. False
/// if no part of a driver is installed.
///
/// Errors: a driver is installed in part, but it cannot be used, or finds no GPU; cuBLASLt is
/// missing.
pub fn first_gpu() -> Result<bool> {
    let driver = match driver() {
        Ok(driver) => driver,
        Err(missing) if missing.is_absent() => return Ok(false),
        Err(missing) => return Err(missing.into()),
    };
    guarded(|| usable(&driver)).unwrap_or_else(|why| {
        Err(DeviceError::refused("looking for a GPU", why, "please report it"))
    })
}

fn usable(driver: &Driver) -> Result<bool> {
    handle(driver, 0)?;
    driver.cublas_lt()?;
    Ok(true)
}

const DRIVER: &str = "the NVIDIA driver";
const INSTALL: &str = "install the NVIDIA driver (`nvidia-smi` shows one that works); \
                       in a container, pass the GPUs in (`docker run --gpus all`)";
const NEWER_DRIVER: &str = "install an NVIDIA driver of version 525 or later (CUDA 12.0)";

fn new_enough(version: u32) -> Result<(), Missing> {
    if version >= MINIMUM_DRIVER {
        return Ok(());
    }
    let (has, needs) = (version_text(version), version_text(MINIMUM_DRIVER));
    let why = format!("it implements CUDA {has}, and {needs} is needed");
    Err(Missing { library: DRIVER, why, tried: Vec::new(), help: NEWER_DRIVER.into() })
}

fn broken(why: String) -> Missing {
    let help = "reinstall the NVIDIA driver; if that does not help, please report it".into();
    Missing { library: DRIVER, why: format!("opening it failed: {why}"), tried: Vec::new(), help }
}

/// Runs `f`; a panic in a library becomes text. This is a last resort: code of this crate does
/// not panic here.
pub(super) fn guarded<T>(f: impl FnOnce() -> T) -> std::result::Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload: Box<dyn Any + Send>| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|t| t.to_string()));
        text.unwrap_or_else(|| "a panic without words".into())
    })
}

/// Runs the probe. It takes a fraction of a second for each GPU, since free memory can only be
/// queried from a context on the GPU.
pub fn probe() -> Probe {
    let driver = driver();
    let cublas_lt = match &driver {
        Ok(driver) => driver
            .cublas_lt()
            .map(|lt| LibraryFound { path: lt.path.clone(), version: lt.version_text() }),
        Err(_) => Err(Missing {
            library: "cuBLASLt",
            why: "without the driver it is of no use, and was not looked for".into(),
            tried: Vec::new(),
            help: "see to the driver first".into(),
        }),
    };
    let driver = driver.map(|driver| DriverFound {
        library: LibraryFound {
            path: driver.path.clone(),
            version: format!("CUDA {}", version_text(driver.version)),
        },
        devices: guarded(|| devices(&driver)).unwrap_or_else(|why| {
            Err(DeviceError::refused("listing the GPUs", why, "please report it"))
        }),
    });
    Probe { driver, cublas_lt }
}

/// The devices of a driver.
pub(super) fn devices(driver: &Driver) -> Result<Vec<DeviceFound>> {
    (0..device_count(driver)?).map(|ordinal| device(driver, ordinal)).collect()
}

/// Starts the driver and counts devices.
pub(super) fn device_count(driver: &Driver) -> Result<u32> {
    // SAFETY: the flags must be 0; may be called often.
    driver.check(unsafe { driver.api.cuInit(0) }, || "starting the NVIDIA driver".into())?;
    let mut count = 0;
    // SAFETY: the pointer is valid for a write.
    let counted = unsafe { driver.api.cuDeviceGetCount(&mut count) };
    driver.check(counted, || "counting the GPUs".into())?;
    Ok(u32::try_from(count).unwrap_or(0))
}

/// The handle of a device.
pub(super) fn handle(driver: &Driver, ordinal: u32) -> Result<CUdevice> {
    let count = device_count(driver)?;
    if ordinal >= count {
        let why = match count {
            0 => "there is no GPU".into(),
            1 => "there is one GPU, `cuda:0`".into(),
            n => format!("there are {n} GPUs, `cuda:0` to `cuda:{}`", n - 1),
        };
        let help = match count {
            0 => NO_GPU,
            _ => "`nvidia-smi -L` lists the devices; CUDA_VISIBLE_DEVICES hides and renumbers them",
        };
        return Err(DeviceError::refused(format!("opening `cuda:{ordinal}`"), why, help));
    }
    let mut device = 0;
    // SAFETY: the pointer is valid for a write, the ordinal is below the count.
    let code = unsafe { driver.api.cuDeviceGet(&mut device, ordinal as i32) };
    driver.check(code, || format!("opening `cuda:{ordinal}`"))?;
    Ok(device)
}

/// The properties of a device.
pub(super) fn device(driver: &Driver, ordinal: u32) -> Result<DeviceFound> {
    let device = handle(driver, ordinal)?;
    let doing = || format!("asking `cuda:{ordinal}` about itself");
    let mut name = [0 as std::ffi::c_char; 256];
    // SAFETY: the buffer is as long as it says, and the result ends with a zero within it.
    driver.check(unsafe { driver.api.cuDeviceGetName(name.as_mut_ptr(), 255, device) }, doing)?;
    // SAFETY: the array was zeroed, and its last byte is never written.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    let attribute = |attribute: Attribute| -> Result<u32> {
        let mut value = 0;
        // SAFETY: the pointer is valid for a write, the device exists.
        let code = unsafe { driver.api.cuDeviceGetAttribute(&mut value, attribute, device) };
        driver.check(code, doing)?;
        Ok(value.max(0) as u32)
    };
    let mut memory = 0;
    // SAFETY: the pointer is valid for a write, the device exists.
    driver.check(unsafe { driver.api.cuDeviceTotalMem_v2(&mut memory, device) }, doing)?;
    Ok(DeviceFound {
        ordinal,
        name,
        capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        memory: memory as u64,
        free: free_memory(driver, device, ordinal),
        shared_per_block: attribute(
            Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        )?,
    })
}

/// Free memory, queried through a context that lives for the query only.
fn free_memory(driver: &Driver, device: CUdevice, ordinal: u32) -> Result<u64> {
    let doing = || format!("asking `cuda:{ordinal}` for its free memory");
    let mut context = std::ptr::null_mut();
    // SAFETY: the pointer is valid for a write; the retain is matched by the release below.
    driver.check(unsafe { driver.api.cuDevicePrimaryCtxRetain(&mut context, device) }, doing)?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: the context was just retained; both pointers are valid for writes. The thread is
    // left without a context, as every entry of this crate sets its own.
    let code = unsafe {
        let set = driver.api.cuCtxSetCurrent(context);
        let code =
            if set.code == 0 { driver.api.cuMemGetInfo_v2(&mut free, &mut total) } else { set };
        let _ = driver.api.cuCtxSetCurrent(std::ptr::null_mut());
        let _ = driver.api.cuDevicePrimaryCtxRelease_v2(device);
        code
    };
    driver.check(code, doing)?;
    Ok(free as u64)
}

impl fmt::Display for Probe {
    /// One line for each item, as `graphrun devices` shows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.driver {
            Ok(found) => {
                writeln!(f, "driver: {} ({})", found.library.version, found.library.path)?;
                match &found.devices {
                    Ok(devices) if devices.is_empty() => writeln!(f, "no GPU")?,
                    Ok(devices) => devices.iter().try_for_each(|d| writeln!(f, "{d}"))?,
                    Err(error) => writeln!(f, "no GPU: {error}")?,
                }
            }
            Err(missing) => writeln!(f, "no driver: {}", Diagnostic::from(missing.clone()))?,
        }
        match &self.cublas_lt {
            Ok(found) => write!(f, "cuBLASLt: {} ({})", found.version, found.path),
            Err(missing) => write!(f, "no cuBLASLt: {}", Diagnostic::from(missing.clone())),
        }
    }
}

impl fmt::Display for DeviceFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.capability;
        write!(f, "cuda:{}: {}, sm_{major}{minor}, ", self.ordinal, self.name)?;
        write!(f, "{} multiprocessors, {} memory", self.multiprocessors, size_text(self.memory))?;
        match &self.free {
            Ok(free) => write!(f, ", {} free", size_text(*free)),
            Err(error) => write!(f, ", free memory unknown ({error})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::*;

    #[test]
    fn devices_say_what_they_are() {
        let fake = Fake::new();
        let devices = devices(&fake.driver()).unwrap();
        let text = devices[0].to_string();
        assert_eq!(
            text,
            "cuda:0: Fake GPU, sm_90, 132 multiprocessors, 64.0 MiB memory, 64.0 MiB free"
        );
        assert_eq!(devices.len(), 2);
        fake.nothing_left();
    }

    #[test]
    fn free_memory_may_be_unknown_and_the_rest_is_told() {
        let fake = Fake::new();
        fake.fail("cuDevicePrimaryCtxRetain", 46);
        let devices = devices(&fake.driver()).unwrap();
        assert!(devices[0].free.is_err() && devices[1].free.is_ok());
        assert!(devices[0].to_string().contains("free memory unknown"), "{}", devices[0]);
        fake.nothing_left();
    }

    #[test]
    fn each_thing_missing_says_how_to_mend_it() {
        let fake = Fake::new();
        fake.fail("cuInit", 100);
        let error = devices(&fake.driver()).unwrap_err().to_string();
        assert!(
            error.contains(
                "starting the NVIDIA driver: cuInit failed with CUDA_ERROR_NO_DEVICE (100)"
            ),
            "{error}"
        );
        assert!(error.contains("CUDA_VISIBLE_DEVICES"), "{error}");
        let error = handle(&fake.driver(), 7).unwrap_err().to_string();
        assert!(error.contains("`cuda:0` to `cuda:1`"), "{error}");
        let old = Diagnostic::from(new_enough(11_040).unwrap_err()).to_string();
        assert!(
            old.contains("it implements CUDA 11.4, and 12.0 is needed") && old.contains("525"),
            "{old}"
        );
        new_enough(13_000).unwrap();
    }

    #[test]
    fn a_panic_below_is_an_error() {
        let caught = guarded(|| -> u32 { panic!("Missing symbol {}", "cuInit") });
        assert_eq!(caught, Err("Missing symbol cuInit".to_string()));
    }
}
