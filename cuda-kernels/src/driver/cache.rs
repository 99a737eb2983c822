//! Cubins that were made before, in a folder of the user's.
//!
//! A cubin depends on the PTX text, on the GPU's architecture and on the driver, which compiled it. These are the key. The file's name is a
//! hash of it, and the file holds the key in full, so that two keys of one hash are told apart: the worst that can happen is to compile
//! again. The same goes for everything else that can go wrong with files: a damaged entry (a checksum is over all of it), a full disk, a
//! folder that cannot be written. A cache that does not work is logged and does nothing.
//!
//! ```text
//! "WGCUBIN1"  crc32 of the rest (4)  length of key (8)  length of cubin (8)  key  cubin
//! ```
//!
//! Files are written under another name and renamed, so readers see whole entries only, and two processes may write the same one. When the
//! folder grows beyond its bound, entries that were not used for longest go first.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The variable that names the folder, or is `off`.
pub const VARIABLE: &str = "WENGERT_CACHE";
/// Bytes that the default folder may hold.
const BOUND: u64 = 512 << 20;
const MAGIC: &[u8; 8] = b"WGCUBIN1";
const HEADER: usize = 8 + 4 + 8 + 8;
/// An unfinished file older than this was left by a process that died.
const STALE: Duration = Duration::from_secs(3600);

/// A folder of cubins, or none.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: Option<PathBuf>,
    bound: u64,
}

/// What a cubin depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key<'a> {
    /// The text.
    pub ptx: &'a str,
    /// Compute capability: 10 · major + minor.
    pub capability: u32,
    /// Version of the driver that compiles: 1000 · major + 10 · minor.
    pub driver: u32,
}

impl Key<'_> {
    fn bytes(&self) -> Vec<u8> {
        format!("sm_{} driver {}\n{}", self.capability, self.driver, self.ptx).into_bytes()
    }

    fn file(&self) -> String {
        // FNV-1a of 64 bits; entries hold the whole key, so a collision is harmless.
        let hash = self.bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{hash:016x}.sm_{}.cubin", self.capability)
    }
}

impl Cache {
    /// No cache.
    pub fn off() -> Cache {
        Cache { folder: None, bound: 0 }
    }

    /// A cache in this folder (made when it is first written to) of at most so many bytes.
    pub fn at(folder: PathBuf, bound: u64) -> Cache {
        Cache { folder: Some(folder), bound }
    }

    /// The user's: the folder that `WENGERT_CACHE` names (`off`: none), else `wengert` in `XDG_CACHE_HOME` or `~/.cache`.
    pub fn user() -> Cache {
        Cache::from_environment(&|variable| std::env::var_os(variable))
    }

    fn from_environment(environment: super::library::Environment) -> Cache {
        let absolute = |v: &str| environment(v).map(PathBuf::from).filter(|p| p.is_absolute());
        let folder = match environment(VARIABLE) {
            Some(word) if word == "off" => return Cache::off(),
            Some(folder) if !folder.is_empty() => Some(PathBuf::from(folder)),
            _ => absolute("XDG_CACHE_HOME")
                .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
                .map(|f| f.join("wengert")),
        };
        Cache { folder: folder.map(|f| f.join("cubin")), bound: BOUND }
    }

    /// The folder, if there is one.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The cubin of a key. A damaged entry is removed.
    pub fn get(&self, key: &Key) -> Option<Vec<u8>> {
        let path = self.folder.as_ref()?.join(key.file());
        match read(&path, &key.bytes(), self.bound) {
            Ok(found) => {
                if found.is_some() {
                    // When it was last used. A folder that cannot be written is no reason not to use it.
                    let _ = File::open(&path).and_then(|f| f.set_modified(SystemTime::now()));
                }
                found
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "an entry of the cubin cache is removed");
                let _ = fs::remove_file(&path);
                None
            }
        }
    }

    /// Keeps a cubin, and removes what has become too much.
    pub fn put(&self, key: &Key, cubin: &[u8]) {
        let Some(folder) = &self.folder else { return };
        if let Err(error) = write(folder, &key.file(), &key.bytes(), cubin, self.bound) {
            tracing::warn!(%error, folder = %folder.display(), "the cubin cache cannot be written");
        }
    }

    /// Removes the cubin of a key.
    pub fn remove(&self, key: &Key) {
        if let Some(folder) = &self.folder {
            let _ = fs::remove_file(folder.join(key.file()));
        }
    }
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("it is damaged: {what}"))
}

/// The cubin in a file; `None` if the file is another key's.
fn read(path: &Path, key: &[u8], bound: u64) -> io::Result<Option<Vec<u8>>> {
    if fs::metadata(path)?.len() > bound {
        return Err(damaged("larger than the whole cache"));
    }
    let bytes = fs::read(path)?;
    let header = bytes.get(..HEADER).ok_or_else(|| damaged("too short"))?;
    let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    if header[..8] != *MAGIC {
        return Err(damaged("not an entry"));
    }
    let sum = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
    if crc32fast::hash(&bytes[12..]) != sum {
        return Err(damaged("its checksum is wrong"));
    }
    let (key_length, length) = (number(12), number(20));
    if key_length.checked_add(length) != Some((bytes.len() - HEADER) as u64) {
        return Err(damaged("its lengths are wrong"));
    }
    let (found, cubin) = bytes[HEADER..].split_at(key_length as usize);
    Ok((found == key).then(|| cubin.to_vec()))
}

fn write(folder: &Path, name: &str, key: &[u8], cubin: &[u8], bound: u64) -> io::Result<()> {
    let size = (HEADER + key.len() + cubin.len()) as u64;
    if size > bound {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    let mut rest = Vec::with_capacity(size as usize);
    rest.extend((key.len() as u64).to_le_bytes());
    rest.extend((cubin.len() as u64).to_le_bytes());
    rest.extend(key);
    rest.extend(cubin);
    let mut file = tempfile::Builder::new().prefix(".unfinished").tempfile_in(folder)?;
    file.write_all(MAGIC)?;
    file.write_all(&crc32fast::hash(&rest).to_le_bytes())?;
    file.write_all(&rest)?;
    file.persist(folder.join(name)).map_err(|e| e.error)?;
    shrink(folder, bound, name)
}

/// Removes entries that were not used for longest until the folder is within its bound; never `keep`.
fn shrink(folder: &Path, bound: u64, keep: &str) -> io::Result<()> {
    let now = SystemTime::now();
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        let (name, used) = (entry.file_name(), metadata.modified().unwrap_or(now));
        let name = name.to_string_lossy();
        if name.starts_with(".unfinished") {
            if now.duration_since(used).is_ok_and(|age| age > STALE) {
                let _ = fs::remove_file(entry.path());
            }
        } else if name.ends_with(".cubin") {
            entries.push((used, entry.path(), metadata.len(), name == keep));
        }
    }
    entries.sort();
    let mut total: u64 = entries.iter().map(|(_, _, bytes, _)| bytes).sum();
    for (_, path, bytes, kept) in entries {
        if total <= bound {
            break;
        }
        if !kept && fs::remove_file(&path).is_ok() {
            total -= bytes;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn key(ptx: &str) -> Key<'_> {
        Key { ptx, capability: 90, driver: 13_000 }
    }

    fn cache(bound: u64) -> (tempfile::TempDir, Cache) {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path().join("deep/cubin"), bound);
        (root, cache)
    }

    fn files(cache: &Cache) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(cache.folder().unwrap())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_put_is_got_under_its_key_alone() {
        let (_root, cache) = cache(1 << 20);
        assert_eq!(cache.get(&key("a")), None);
        cache.put(&key("a"), b"cubin of a");
        assert_eq!(cache.get(&key("a")).as_deref(), Some(&b"cubin of a"[..]));
        for other in [key("b"), Key { capability: 80, ..key("a") }, Key { driver: 12_080, ..key("a") }] {
            assert_eq!(cache.get(&other), None);
        }
        cache.put(&key("a"), b"another");
        assert_eq!(cache.get(&key("a")).as_deref(), Some(&b"another"[..]));
        assert_eq!(files(&cache).len(), 1);
        cache.remove(&key("a"));
        assert_eq!(cache.get(&key("a")), None);
        Cache::off().put(&key("a"), b"x");
        assert_eq!(Cache::off().get(&key("a")), None);
    }

    #[test]
    fn two_keys_of_one_hash_are_told_apart() {
        let (_root, cache) = cache(1 << 20);
        cache.put(&key("a"), b"cubin of a");
        let folder = cache.folder().unwrap();
        fs::copy(folder.join(key("a").file()), folder.join(key("b").file())).unwrap();
        assert_eq!(cache.get(&key("b")), None);
        assert!(cache.get(&key("a")).is_some());
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let (_root, cache) = cache(1 << 20);
        cache.put(&key("a"), b"cubin");
        let path = cache.folder().unwrap().join(key("a").file());
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            fs::write(&path, &bad).unwrap();
            assert_eq!(cache.get(&key("a")), None, "byte {at}");
            assert!(!path.exists(), "byte {at}");
        }
        for length in 0..good.len() {
            fs::write(&path, &good[..length]).unwrap();
            assert_eq!(cache.get(&key("a")), None, "length {length}");
        }
        // Lengths that overflow, with a right checksum.
        let mut rest = u64::MAX.to_le_bytes().to_vec();
        rest.extend(8u64.to_le_bytes());
        let bad = [&MAGIC[..], &crc32fast::hash(&rest).to_le_bytes(), &rest].concat();
        fs::write(&path, bad).unwrap();
        assert_eq!(cache.get(&key("a")), None);
    }

    #[test]
    fn the_folder_stays_within_its_bound_and_the_oldest_goes_first() {
        let (_root, cache) = cache(1000);
        let old = SystemTime::now() - Duration::from_secs(3600 * 24);
        for (age, name) in ["a", "b", "c"].iter().enumerate() {
            cache.put(&key(name), &[7; 200]);
            let path = cache.folder().unwrap().join(key(name).file());
            File::open(path).unwrap().set_modified(old + Duration::from_secs(age as u64)).unwrap();
        }
        let left = cache.folder().unwrap().join(".unfinished1");
        fs::write(&left, "x").unwrap();
        File::open(&left).unwrap().set_modified(old).unwrap();
        // Used now, so the next oldest goes.
        assert!(cache.get(&key("a")).is_some());
        cache.put(&key("d"), &[7; 200]);
        assert!(files(&cache).len() == 4 && !left.exists(), "{:?}", files(&cache));
        cache.put(&key("e"), &[7; 200]);
        assert!(cache.get(&key("b")).is_none());
        for name in ["a", "d", "e"] {
            assert!(cache.get(&key(name)).is_some(), "{name}");
        }
        cache.put(&key("too large"), &[7; 1001]);
        assert!(cache.get(&key("too large")).is_none());
        assert!(cache.get(&key("e")).is_some());
    }

    #[test]
    fn a_folder_that_cannot_be_made_does_nothing() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("file"), "x").unwrap();
        let cache = Cache::at(root.path().join("file/cubin"), 1 << 20);
        cache.put(&key("a"), b"x");
        assert_eq!(cache.get(&key("a")), None);
    }

    #[test]
    fn the_environment_names_the_folder() {
        let folder = |variables: &[(&str, &str)]| {
            let variables: Vec<_> =
                variables.iter().map(|(k, v)| (k.to_string(), OsString::from(v))).collect();
            let get = |name: &str| variables.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone());
            Cache::from_environment(&get).folder.map(|f| f.to_str().unwrap().to_string())
        };
        assert_eq!(folder(&[("HOME", "/h")]).unwrap(), "/h/.cache/wengert/cubin");
        assert_eq!(folder(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]).unwrap(), "/x/wengert/cubin");
        assert_eq!(folder(&[("HOME", "/h"), ("WENGERT_CACHE", "/w")]).unwrap(), "/w/cubin");
        assert_eq!(folder(&[("HOME", "/h"), ("WENGERT_CACHE", "off")]), None);
        assert_eq!(folder(&[("XDG_CACHE_HOME", "relative")]), None);
    }
}
