//! Every sample of every construct.

use super::check;
use wengert_core::DType;
use wengert_testing::samples;

#[test]
fn every_sample_of_every_construct() {
    let mut count = 0;
    for entry in samples::catalogue() {
        for (number, sample) in
            entry.samples.iter().enumerate().filter(|(_, s)| s.op.control().is_some())
        {
            for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
                let operands = sample.literals(dtype, number as u64 + 1);
                let Some(function) = sample.function(&operands) else { continue };
                check(&function, &operands, &format!("{} sample {number} in {dtype}", entry.name));
                count += 1;
            }
        }
    }
    assert!(count >= 60, "{count} samples");
}
