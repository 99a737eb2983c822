//! The list of parts in a checkpoint's index.

use super::region::{Division, Grid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wengert_compiler::ranks::Split;
use wengert_core::{DType, Diagnostic, Literal, Result, diagnostic};

/// Beginning of a checkpoint's name, before the digits of its step.
pub const PREFIX: &str = "checkpoint-";
/// End of the names of a checkpoint and of its parts.
pub const SUFFIX: &str = ".safetensors";

/// Most ranks of a checkpoint that is read.
const MOST_RANKS: usize = 1 << 16;

/// The name of the part of a rank, of a checkpoint after a step.
pub fn file_name(step: u64, rank: usize, ranks: usize) -> String {
    format!("{PREFIX}{step:09}.{rank}-of-{ranks}{SUFFIX}")
}

/// The step in the name of a part.
pub fn step_of_part(name: &str) -> Option<u64> {
    let (step, rest) = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.split_once('.')?;
    let (rank, ranks) = rest.split_once("-of-")?;
    let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let found = [step, rank, ranks].iter().all(is_number);
    found.then(|| step.parse().ok()).flatten()
}

/// What an index lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Index {
    /// The step of the checkpoint.
    pub step: u64,
    /// The ranks that wrote it.
    pub grid: Grid,
    /// The divided tensors.
    pub tensors: BTreeMap<String, Divided>,
    /// The parts by rank.
    pub files: BTreeMap<usize, PartFile>,
}

/// A divided tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Divided {
    /// Its dtype.
    pub dtype: DType,
    /// The shape of all of it.
    pub shape: Vec<usize>,
    /// How it is divided.
    pub division: Division,
}

/// The file of a part, as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartFile {
    /// Bytes of the file.
    pub bytes: u64,
    /// The digits of the checksum in its header.
    pub checksum: String,
}

/// The record in JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    step: u64,
    tensor: usize,
    data: usize,
    variables: Vec<VariableRecord>,
    files: Vec<FileRecord>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VariableRecord {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    /// As [`Split`] prints.
    #[serde(skip_serializing_if = "Option::is_none")]
    tensor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<usize>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRecord {
    rank: usize,
    name: String,
    bytes: u64,
    crc32: String,
}

impl Index {
    /// The JSON text as a tensor.
    pub fn to_literal(&self) -> Literal {
        let variables = self.tensors.iter().map(|(name, tensor)| VariableRecord {
            name: name.clone(),
            dtype: tensor.dtype.name().into(),
            shape: tensor.shape.clone(),
            tensor: tensor.division.tensor.map(|split| split.to_string()),
            data: tensor.division.data,
        });
        let files = self.files.iter().map(|(rank, file)| FileRecord {
            rank: *rank,
            name: self.file_name(*rank),
            bytes: file.bytes,
            crc32: file.checksum.clone(),
        });
        let record = Record {
            step: self.step,
            tensor: self.grid.tensor,
            data: self.grid.data,
            variables: variables.collect(),
            files: files.collect(),
        };
        let text = serde_json::to_vec(&record).expect("a record of texts and numbers is JSON");
        Literal::from_vec(&[text.len()], text).expect("the shape is the length of the text")
    }

    /// The name of a rank's part.
    pub fn file_name(&self, rank: usize) -> String {
        file_name(self.step, rank, self.grid.ranks())
    }

    /// Reads the JSON text of an index.
    ///
    /// Errors: it is no list of parts; a tensor does not fall into the parts that it names; a part
    /// is missing in the list, or listed twice, or has another name.
    pub fn parse(text: &[u8]) -> Result<Index> {
        let wrong = |what: String| {
            diagnostic!("its list of parts is wrong: {what}")
                .help("the file is damaged, or was not written as a checkpoint")
        };
        let record: Record =
            serde_json::from_slice(text).map_err(|error| wrong(error.to_string()))?;
        let grid = Grid { tensor: record.tensor, data: record.data };
        let ranks = grid.tensor.checked_mul(grid.data);
        if ranks.is_none_or(|ranks| ranks == 0 || ranks > MOST_RANKS) {
            return Err(wrong(format!("{} × {} ranks", grid.tensor, grid.data)));
        }
        let mut tensors = BTreeMap::new();
        for variable in record.variables {
            let name = variable.name.clone();
            if name.starts_with('/') {
                return Err(wrong(format!("`{name}` is no variable")));
            }
            let tensor =
                Divided::parse(variable, grid).map_err(|what| wrong(format!("`{name}` {what}")))?;
            if tensors.insert(name.clone(), tensor).is_some() {
                return Err(wrong(format!("`{name}` is listed twice")));
            }
        }
        let mut index = Index { step: record.step, grid, tensors, files: BTreeMap::new() };
        let writers = index.writers();
        for FileRecord { rank, name, bytes, crc32 } in record.files {
            if writers.binary_search(&rank).is_err() || name != index.file_name(rank) {
                return Err(wrong(format!("`{name}` is no part of rank {rank}")));
            }
            let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
            if crc32.len() != 8 || !crc32.bytes().all(is_digit) {
                return Err(wrong(format!("`{crc32}` is no checksum")));
            }
            if index.files.insert(rank, PartFile { bytes, checksum: crc32 }).is_some() {
                return Err(wrong(format!("`{name}` is listed twice")));
            }
        }
        if let Some(rank) = writers.iter().find(|rank| !index.files.contains_key(rank)) {
            return Err(wrong(format!("it lacks `{}`", index.file_name(*rank))));
        }
        Ok(index)
    }

    /// The ranks that have written a part.
    pub fn writers(&self) -> Vec<usize> {
        // Most tensors are divided alike.
        let mut kinds: Vec<Division> = vec![];
        for Divided { division, .. } in self.tensors.values() {
            let same = |kind: &Division| {
                (kind.tensor.is_some(), kind.data.is_some())
                    == (division.tensor.is_some(), division.data.is_some())
            };
            if !kinds.iter().any(same) {
                kinds.push(*division);
            }
        }
        let writes = |rank: &usize| kinds.iter().any(|kind| kind.is_first(self.grid, *rank));
        (0..self.grid.ranks()).filter(writes).collect()
    }
}

impl Divided {
    fn parse(record: VariableRecord, grid: Grid) -> Result<Divided, String> {
        let message = |error: Diagnostic| format!("is wrong: {}", error.message);
        let dtype: DType = record.dtype.parse().map_err(message)?;
        let tensor =
            record.tensor.map(|text| text.parse::<Split>()).transpose().map_err(message)?;
        let division = Division { tensor, data: record.data };
        if division.is_whole() {
            return Err("is not divided".into());
        }
        let bytes = record.shape.iter().try_fold(dtype.size(), |all, n| all.checked_mul(*n));
        if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
            return Err(format!("of shape {:?} is too large", record.shape));
        }
        if division.part(&record.shape, grid).is_none() {
            let (shape, Grid { tensor, data }) = (&record.shape, grid);
            return Err(format!(
                "of shape {shape:?} has no such parts for {tensor} × {data} ranks"
            ));
        }
        Ok(Divided { dtype, shape: record.shape, division })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Index {
        let part = |bytes| PartFile { bytes, checksum: "0f1e2d3c".into() };
        let divided = |tensor: Option<&str>, data, shape: &[usize]| Divided {
            dtype: DType::F32,
            shape: shape.to_vec(),
            division: Division { tensor: tensor.map(|text| text.parse().unwrap()), data },
        };
        Index {
            step: 200,
            grid: Grid { tensor: 2, data: 2 },
            tensors: BTreeMap::from([
                ("a.weight".into(), divided(Some("1/3"), Some(0), &[4, 12])),
                ("b".into(), divided(Some("0"), None, &[4])),
                ("c".into(), divided(None, Some(0), &[4])),
            ]),
            files: (0..4).map(|rank| (rank, part(100 + rank as u64))).collect(),
        }
    }

    fn text(index: &Index) -> String {
        String::from_utf8(index.to_literal().to_bytes().to_vec()).unwrap()
    }

    #[test]
    fn an_index_is_json_and_reads_back() {
        let index = index();
        let text = text(&index);
        assert!(
            text.starts_with(
                r#"{"step":200,"tensor":2,"data":2,"variables":[{"name":"a.weight","dtype":"f32","#
            ),
            "{text}"
        );
        assert!(text.contains(r#""shape":[4,12],"tensor":"1/3","data":0}"#), "{text}");
        assert!(
            text.contains(r#"{"rank":3,"name":"checkpoint-000000200.3-of-4.safetensors","bytes":"#),
            "{text}"
        );
        assert_eq!(Index::parse(text.as_bytes()).unwrap(), index);
        assert_eq!(step_of_part(&index.file_name(3)), Some(200));
        let others = ["checkpoint-000000200.safetensors", "checkpoint-1.-of-4.safetensors"];
        assert!(others.iter().all(|name| step_of_part(name).is_none()));
    }

    #[test]
    fn ranks_without_parts_of_their_own_write_none() {
        let mut index = index();
        index.tensors.remove("a.weight");
        index.tensors.remove("c");
        assert_eq!(index.writers(), [0, 1]);
        index.files.retain(|rank, _| *rank < 2);
        assert_eq!(Index::parse(text(&index).as_bytes()).unwrap(), index);
    }

    #[test]
    fn wrong_lists_are_errors() {
        let good = text(&index());
        let says = |from: &str, to: &str, says: &str| {
            assert!(good.contains(from), "{from} in {good}");
            let error = Index::parse(good.replacen(from, to, 1).as_bytes()).unwrap_err().message;
            assert!(error.contains(says), "{error}, not {says}");
        };
        says(r#""step":200"#, r#""step":-1"#, "list of parts is wrong");
        says(r#""step":200"#, r#""steps":200"#, "unknown field");
        says(r#""tensor":2"#, r#""tensor":0"#, "0 × 2 ranks");
        says(r#""tensor":2"#, r#""tensor":9223372036854775807"#, "ranks");
        says(r#""tensor":2"#, r#""tensor":65536"#, "65536 × 2 ranks");
        says("a.weight", "b", "`b` is listed twice");
        says("a.weight", "/part", "`/part` is no variable");
        says("f32", "f31", "unknown dtype");
        says("[4,12]", "[4,13]", "no such parts");
        says("[4,12]", "[12]", "no such parts");
        says("[4,12]", "[4,12,4611686018427387904]", "too large");
        says(r#""1/3""#, r#""7""#, "no such parts");
        says(r#""1/3""#, r#""1/0""#, "no division");
        says(r#""1/3","data":0"#, r#""1/3","data":2"#, "no such parts");
        says(r#""tensor":"0""#, r#""data":null"#, "`b` is not divided");
        says(r#""rank":3"#, r#""rank":4"#, "no part of rank 4");
        says("000000200.3-of-4", "000000200.2-of-4", "no part of rank 3");
        says("checkpoint-000000200.0", "../checkpoint-000000200.0", "no part of rank 0");
        says("0f1e2d3c", "0f1e2d3g", "no checksum");
        let file = &good[good.find(r#"{"rank":0"#).unwrap()..];
        let file = &file[..=file.find('}').unwrap()];
        says(file, &format!("{file},{file}"), "is listed twice");
        says(&format!("{file},"), "", "lacks `checkpoint-000000200.0-of-4.safetensors`");
    }
}
