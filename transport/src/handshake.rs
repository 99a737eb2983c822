//! The comparison of hashes at the start of a run.
//!
//! Ranks that run different programs, plans or data would give wrong results without an error. So
//! each rank computes hashes of what has to be the same, and [`Communicator::agree`] compares
//! them.

use crate::communicator::Communicator;
use crate::error::{Error, Kind, Result, ranks_text};

/// Bytes of a hash.
pub const HASH_BYTES: usize = 32;

/// A hash of 256 bits with its name.
pub type NamedHash<'a> = (&'a str, [u8; HASH_BYTES]);

impl Communicator {
    /// Compares hashes with those of all other ranks. All ranks call it with the same names in
    /// the same order.
    ///
    /// Error: [`Kind::Hashes`] names the first hash that differs, and the ranks that have each
    /// value. All ranks get it.
    pub fn agree(&self, hashes: &[NamedHash<'_>]) -> Result<()> {
        let own = encode(hashes);
        let lens = self.all_gather((own.len() as u64).to_le_bytes().to_vec())?;
        let lens: Vec<usize> = lens
            .chunks_exact(8)
            .map(|len| u64::from_le_bytes(len.try_into().expect("eight bytes")) as usize)
            .collect();
        let all = self.all_gather_counts(own, lens.clone())?;
        let mut rest = all.as_slice();
        let mut of_ranks = Vec::new();
        for (rank, len) in lens.iter().enumerate() {
            let (bytes, after) = rest.split_at(*len);
            rest = after;
            let decoded = decode(bytes).ok_or_else(|| self.unreadable(rank))?;
            of_ranks.push(decoded);
        }
        let count = of_ranks.iter().map(Vec::len).max().unwrap_or(0);
        for at in 0..count {
            let names: Vec<Option<String>> =
                of_ranks.iter().map(|list| Some(list.get(at)?.0.clone())).collect();
            let name = |name: &Option<String>| match name {
                Some(name) => format!("`{name}`"),
                None => "nothing".into(),
            };
            if let Some(groups) = self.differences(&names, name) {
                let (text, ranks) = groups;
                let message = format!("ranks compare different hashes: {text}");
                let help = "all ranks give the same names in the same order; do they run the \
                            same version?";
                return Err(self.refuse(Kind::Hashes, message, help, &ranks));
            }
            let values: Vec<[u8; HASH_BYTES]> = of_ranks.iter().map(|list| list[at].1).collect();
            if let Some((text, ranks)) = self.differences(&values, |value| hex(&value[..8]) + "…")
            {
                let what = &of_ranks[0][at].0;
                let message = format!("the ranks differ in `{what}`: {text}");
                let help = "start all ranks with the same executable, program and data";
                return Err(self.refuse(Kind::Hashes, message, help, &ranks));
            }
        }
        Ok(())
    }

    /// If the values of the ranks differ: each value with its ranks, and the ranks that differ
    /// from the value that most have, or from rank 0's.
    fn differences<T: PartialEq>(
        &self,
        values: &[T],
        text: impl Fn(&T) -> String,
    ) -> Option<(String, Vec<usize>)> {
        let mut groups: Vec<(&T, Vec<usize>)> = Vec::new();
        for (rank, value) in values.iter().enumerate() {
            let rank = self.world_rank(rank);
            match groups.iter_mut().find(|(other, _)| *other == value) {
                Some((_, ranks)) => ranks.push(rank),
                None => groups.push((value, vec![rank])),
            }
        }
        if groups.len() < 2 {
            return None;
        }
        let texts: Vec<String> = groups
            .iter()
            .map(|(value, ranks)| format!("{} on {}", text(value), ranks_text(ranks)))
            .collect();
        // The first of the largest groups.
        let largest = groups.iter().rev().max_by_key(|(_, ranks)| ranks.len())?;
        let usual = largest.1.clone();
        let unusual = groups.iter().flat_map(|(_, ranks)| ranks.clone());
        Some((texts.join(", "), unusual.filter(|rank| !usual.contains(rank)).collect()))
    }

    fn unreadable(&self, rank: usize) -> Error {
        let rank = self.world_rank(rank);
        let message = format!("rank {rank} sent hashes in another format");
        self.refuse(Kind::Hashes, message, "start all ranks with the same executable", &[rank])
    }
}

fn encode(hashes: &[NamedHash<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, hash) in hashes {
        bytes.extend_from_slice(&(name.len() as u32).to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(hash);
    }
    bytes
}

fn decode(mut bytes: &[u8]) -> Option<Vec<(String, [u8; HASH_BYTES])>> {
    let mut list = Vec::new();
    while !bytes.is_empty() {
        let (len, rest) = bytes.split_at_checked(4)?;
        let len = u32::from_le_bytes(len.try_into().ok()?);
        let (name, rest) = rest.split_at_checked(len as usize)?;
        let (hash, rest) = rest.split_at_checked(HASH_BYTES)?;
        list.push((String::from_utf8(name.to_vec()).ok()?, hash.try_into().ok()?));
        bytes = rest;
    }
    Some(list)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn hashes_pass_through_bytes(
            list in prop::collection::vec((".{0,9}", any::<[u8; 32]>()), 0..5),
            cut in any::<prop::sample::Index>(),
        ) {
            let hashes: Vec<NamedHash<'_>> = list.iter().map(|(n, h)| (n.as_str(), *h)).collect();
            let bytes = encode(&hashes);
            prop_assert_eq!(decode(&bytes), Some(list.clone()));
            // A part is refused, or is a shorter list.
            let part = decode(&bytes[..cut.index(bytes.len() + 1)]);
            prop_assert!(part.is_none_or(|part| list.starts_with(&part)));
        }
    }
}
