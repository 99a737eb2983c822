//! An algorithm of cuBLASLt: 64 opaque bytes, and a readable line.

use super::api::Lt;
use cudarc::cublaslt::sys::*;
use std::ffi::c_void;
use std::fmt::Write;

/// An algorithm, chosen for a problem.
#[derive(Clone, PartialEq, Debug)]
pub struct Algorithm {
    pub(super) opaque: cublasLtMatmulAlgo_t,
    /// Bytes of workspace that it needs.
    pub workspace: u64,
    /// Its configuration: the library's numbers for its kernel, tile, stages, split and so on.
    pub text: String,
}

/// `cublasLtMatmulHeuristicResult_t`, with its status as a number: a newer library may have
/// statuses that the bindings lack.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct HeuristicResult {
    pub(super) algorithm: cublasLtMatmulAlgo_t,
    pub(super) workspace: usize,
    pub(super) state: u32,
    pub(super) waves: f32,
    pub(super) reserved: [i32; 4],
}

const _: () = assert!(size_of::<HeuristicResult>() == size_of::<cublasLtMatmulHeuristicResult_t>());
const _: () =
    assert!(align_of::<HeuristicResult>() == align_of::<cublasLtMatmulHeuristicResult_t>());

impl HeuristicResult {
    /// No result.
    pub(super) const NONE: HeuristicResult = HeuristicResult {
        algorithm: cublasLtMatmulAlgo_t { data: [0; 8] },
        workspace: 0,
        state: u32::MAX,
        waves: 0.0,
        reserved: [0; 4],
    };
}

impl Algorithm {
    pub(super) fn new(lt: &Lt, opaque: cublasLtMatmulAlgo_t, workspace: u64) -> Algorithm {
        use cublasLtMatmulAlgoConfigAttributes_t as C;
        let mut text = format!("cuBLASLt {} algorithm", lt.version_text());
        for (name, attribute, bytes) in [
            ("", C::CUBLASLT_ALGO_CONFIG_ID, 4),
            (" tile", C::CUBLASLT_ALGO_CONFIG_TILE_ID, 4),
            (" stages", C::CUBLASLT_ALGO_CONFIG_STAGES_ID, 4),
            (" split", C::CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4),
            (" reduction", C::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4),
            (" swizzle", C::CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4),
            (" custom", C::CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4),
            (" inner", C::CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2),
            (" cluster", C::CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2),
        ] {
            let (mut value, mut written) = (0u32, 0usize);
            // SAFETY: the value has room for `bytes`, and is little-endian, so that its lower
            // half is a number too.
            let code = unsafe {
                let value = std::ptr::from_mut(&mut value).cast::<c_void>();
                lt.api.cublasLtMatmulAlgoConfigGetAttribute(
                    &opaque,
                    attribute,
                    value,
                    bytes,
                    &mut written,
                )
            };
            // An attribute that a version lacks is left out.
            if code.code == 0 {
                let _ = write!(text, "{name} {value}");
            }
        }
        let _ = write!(text, " workspace {workspace}");
        Algorithm { opaque, workspace, text }
    }

    /// The 64 bytes as hexadecimal digits.
    pub fn to_hex(&self) -> String {
        self.opaque.data.iter().flat_map(|n| n.to_le_bytes()).fold(
            String::new(),
            |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            },
        )
    }

    /// 64 bytes from hexadecimal digits.
    pub(super) fn from_hex(text: &str) -> Option<cublasLtMatmulAlgo_t> {
        if text.len() != 128 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let mut data = [0u64; 8];
        for (n, number) in data.iter_mut().enumerate() {
            let digits = &text[16 * n..16 * (n + 1)];
            *number = u64::from_str_radix(digits, 16).ok()?.swap_bytes();
        }
        Some(cublasLtMatmulAlgo_t { data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_are_the_bytes() {
        let opaque =
            cublasLtMatmulAlgo_t { data: [0x0102_0304_0506_0708, 0, 1, 2, 3, 4, 5, u64::MAX] };
        let algorithm = Algorithm { opaque, workspace: 0, text: String::new() };
        let hex = algorithm.to_hex();
        assert!(hex.starts_with("0807060504030201") && hex.ends_with("ffffffffffffffff"));
        assert_eq!(Algorithm::from_hex(&hex), Some(opaque));
        assert_eq!(Algorithm::from_hex(&hex[1..]), None);
        assert_eq!(Algorithm::from_hex(&hex.replace('f', "g")), None);
        assert_eq!(Algorithm::from_hex(&hex.replace("ff", "+f")), None);
    }
}
