//! Bincode with bounds for untrusted bytes.
//!
//! Records are written in bincode 2's standard configuration: little endian, integers of variable
//! length. A reader claims memory from a budget before it allocates, so a few bytes that state a
//! length of billions are an error. Since no record of [`super::v1`] contains itself, decoding
//! never recurses with the data.

use super::container::damaged;
use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bincode::{Decode, Encode};
use wengert_core::{Result, diagnostic};

/// Memory that the records of one section may claim: 192 MiB. A program of a million equations
/// claims less.
const BUDGET: usize = 192 << 20;

fn config() -> Configuration<LittleEndian, Varint, Limit<BUDGET>> {
    bincode::config::standard().with_limit::<BUDGET>()
}

/// The bytes of a record.
pub fn encode<T: Encode>(section: &str, record: &T) -> Result<Vec<u8>> {
    // The budget is for readers; the writer checks it so that every written file can be read.
    bincode::encode_to_vec(record, config())
        .map_err(|error| diagnostic!("section `{section}` cannot be written: {error}"))
}

/// Decodes a record, which must take all of `bytes`.
pub fn decode<T: Decode<()>>(section: &str, bytes: &[u8]) -> Result<T> {
    let (record, used) = bincode::decode_from_slice(bytes, config())
        .map_err(|error| damaged(format!("section `{section}` cannot be read: {error}")))?;
    if used != bytes.len() {
        return Err(damaged(format!(
            "section `{section}` has {} bytes too many",
            bytes.len() - used
        )));
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_beyond_the_budget_or_the_bytes_are_refused() {
        let record = vec![String::from("a"), String::from("bc")];
        let bytes = encode("s", &record).unwrap();
        assert_eq!(decode::<Vec<String>>("s", &bytes).unwrap(), record);
        assert!(decode::<Vec<String>>("s", &bytes[..bytes.len() - 1]).is_err());
        assert!(
            decode::<Vec<String>>("s", &[&bytes[..], &[0]].concat())
                .unwrap_err()
                .message
                .contains("1 bytes too many")
        );
        // 253 announces a 64-bit length.
        let huge = [&[253][..], &(1u64 << 40).to_le_bytes()].concat();
        assert!(decode::<Vec<u64>>("s", &huge).unwrap_err().message.contains("section `s`"));
        assert!(decode::<String>("s", &huge).is_err());
    }
}
