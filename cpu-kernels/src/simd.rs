//! The set of vector instructions of the kernels: chosen once, at the first request of the
//! process.

use std::sync::OnceLock;
use wengert_core::Diagnostic;

/// A set of vector instructions. All give the same bits: the choice affects only the speed.
///
/// The exception is a product or convolution of bf16 with a nonzero number smaller than 2⁻¹²⁶:
/// [`Avx512Bf16`](Simd::Avx512Bf16) takes it for 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Simd {
    /// The baseline of the architecture (on x86-64: SSE2).
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
    /// Also AVX-512 F, BW, DQ and VL.
    Avx512,
    /// Also AVX512-BF16.
    Avx512Bf16,
}

static CHOSEN: OnceLock<Simd> = OnceLock::new();

impl Simd {
    /// All sets, in ascending order.
    pub const ALL: [Simd; 4] = [Simd::Portable, Simd::Avx2, Simd::Avx512, Simd::Avx512Bf16];

    /// Name in the environment variable `WENGERT_SIMD`.
    pub const fn name(self) -> &'static str {
        match self {
            Simd::Portable => "portable",
            Simd::Avx2 => "avx2",
            Simd::Avx512 => "avx512",
            Simd::Avx512Bf16 => "avx512-bf16",
        }
    }

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        match self {
            Simd::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512 => {
                Simd::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512Bf16 => {
                Simd::Avx512.is_available() && is_x86_feature_detected!("avx512bf16")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// The sets that this machine has.
    pub fn available() -> impl Iterator<Item = Simd> {
        Simd::ALL.into_iter().filter(|s| s.is_available())
    }

    /// The set named by the environment variable `WENGERT_SIMD`, else the best that the machine
    /// has.
    ///
    /// Error: the variable names no set, or one that the machine lacks.
    pub fn choose() -> Result<Simd, Diagnostic> {
        if let Some(simd) = CHOSEN.get() {
            return Ok(*simd);
        }
        let simd = match std::env::var("WENGERT_SIMD") {
            Ok(name) => Simd::from_name(&name)?,
            Err(_) => Simd::available().last().unwrap_or(Simd::Portable),
        };
        Ok(*CHOSEN.get_or_init(|| simd))
    }

    fn from_name(name: &str) -> Result<Simd, Diagnostic> {
        let simd = Simd::ALL.into_iter().find(|s| s.name() == name).ok_or_else(|| {
            let names = Simd::ALL.map(Simd::name).join(", ");
            Diagnostic::new(format!("WENGERT_SIMD is `{name}`"))
                .help(format!("it may be {names}, or unset"))
        })?;
        if !simd.is_available() {
            return Err(Diagnostic::new(format!(
                "WENGERT_SIMD is `{name}`, which this machine does not have"
            ))
            .help("unset it to use the best that the machine has"));
        }
        Ok(simd)
    }
}

/// Expands `$level!` for each set of vector instructions that code is compiled for: with the name
/// of a module, and the features that its functions enable.
macro_rules! for_each_level {
    ($level:ident) => {
        $level!(portable);
        #[cfg(target_arch = "x86_64")]
        $level!(avx2, "avx2,fma,f16c");
        #[cfg(target_arch = "x86_64")]
        $level!(avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c");
    };
}

/// Calls the function in the module of [`for_each_level`] for a set.
macro_rules! at_level {
    ($simd:expr, $function:ident($($argument:expr),*)) => {
        match $simd {
            #[cfg(target_arch = "x86_64")]
            $crate::simd::Simd::Avx2 => avx2::$function($($argument),*),
            #[cfg(target_arch = "x86_64")]
            $crate::simd::Simd::Avx512 | $crate::simd::Simd::Avx512Bf16 => {
                avx512::$function($($argument),*)
            }
            _ => portable::$function($($argument),*),
        }
    };
}

/// Declares functions whose bodies are compiled for each set of vector instructions: the first
/// argument is the set.
macro_rules! multiversioned {
    ($(
        $(#[$meta:meta])*
        unsafe fn $name:ident$(<$of:ident: $bound:path>)? =
            $body:ident($($argument:ident: $ty:ty),*);
    )*) => {$(
        $(#[$meta])*
        pub(super) unsafe fn $name$(<$of: $bound>)?(
            simd: $crate::simd::Simd,
            $($argument: $ty),*
        ) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn avx2$(<$of: $bound>)?($($argument: $ty),*) {
                // SAFETY: the caller's promise is the same.
                unsafe { $body($($argument),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
            unsafe fn avx512$(<$of: $bound>)?($($argument: $ty),*) {
                // SAFETY: the caller's promise is the same.
                unsafe { $body($($argument),*) }
            }
            // SAFETY: the caller guarantees it.
            unsafe {
                match simd {
                    #[cfg(target_arch = "x86_64")]
                    $crate::simd::Simd::Avx2 => avx2($($argument),*),
                    #[cfg(target_arch = "x86_64")]
                    $crate::simd::Simd::Avx512 | $crate::simd::Simd::Avx512Bf16 => {
                        avx512($($argument),*)
                    }
                    _ => $body($($argument),*),
                }
            }
        }
    )*};
}
pub(crate) use {at_level, for_each_level, multiversioned};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert_eq!(Simd::from_name("portable").expect("always there"), Simd::Portable);
        assert!(
            Simd::from_name("sse9")
                .expect_err("no such set")
                .to_string()
                .contains("portable, avx2, avx512")
        );
    }

    /// Tests run with each level that the machine has. This one reports the others.
    #[test]
    fn tests_run_with_each_level() {
        for level in Simd::ALL.into_iter().filter(|level| !level.is_available()) {
            wengert_testing::skipped(&format!("no {}, and no test runs with it", level.name()));
        }
        assert!(Simd::available().any(|level| level == Simd::Portable));
    }

    #[test]
    fn what_is_chosen_is_available() {
        assert!(Simd::choose().expect("the environment is sane").is_available());
        assert_eq!(Simd::available().next(), Some(Simd::Portable));
    }
}
