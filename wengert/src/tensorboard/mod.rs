//! Event files, which TensorBoard reads: scalars, histograms, texts, images and graphs.
//!
//! **Format.** A file is a list of records. A record is a length (u64), the checksum of the length,
//! an encoded [`proto::Event`], and its checksum; numbers are little-endian. A checksum is a
//! CRC-32C, rotated to the right by 15 bits, plus a constant (`record_writer.h` of TensorFlow: so
//! the checksum of data that hold a checksum is not degenerate). The first event has the version of
//! the format.
//!
//! **Runs that resume.** A run opens a file of its own each time, and begins with its first step.
//! Readers drop what earlier files say of that step and later ones.
//!
//! ```
//! use wengert::tensorboard::EventFile;
//! # let folder = tempfile::tempdir().unwrap();
//! # let folder = folder.path();
//! let mut events = EventFile::create(folder, 1)?;
//! events.scalar(1, "loss", 2.302)?;
//! events.flush()?;
//! # Ok::<(), wengert::Diagnostic>(())
//! ```

mod graph;
mod histogram;
mod image;
mod proto;

use crate::atomic::cannot;
use prost::Message;
use proto::{Content, Event, GraphDef, Metadata, Plugin, SessionLog, Summary, Tensor, Value, What};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use wengert_core::graph::Function;
use wengert_core::{Literal, Result};

/// An event file being written.
#[derive(Debug)]
pub struct EventFile {
    path: PathBuf,
    file: BufWriter<File>,
}

/// The version of the format, the content of the first record.
const VERSION: &str = "brain.Event:2";

impl EventFile {
    /// A new file in a folder, for the steps from `first` on. Its name has the time, since readers
    /// order the files of a folder by name.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(folder: &Path, first: u64) -> Result<EventFile> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (seconds, mut number) = (now.as_secs(), now.subsec_nanos());
        let (path, file) = loop {
            let name = format!("events.out.tfevents.{seconds:010}.{number:09}.wengert");
            let path = folder.join(name);
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => break (path, file),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(cannot("create", &path, &error)),
            }
        };
        let mut events = EventFile { path, file: BufWriter::new(file) };
        events.write(0, What::FileVersion(VERSION.into()))?;
        events.write(first, What::SessionLog(SessionLog { status: SessionLog::START }))?;
        Ok(events)
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a number, which is rounded to f32. Slashes in the tag make groups.
    ///
    /// # Errors
    /// The file cannot be written; so with all other methods.
    pub fn scalar(&mut self, step: u64, tag: &str, value: f64) -> Result<()> {
        self.scalars(step, [(tag.to_owned(), value)])
    }

    /// Adds several [numbers](Self::scalar) as one record.
    ///
    /// # Errors
    /// As for [`scalar`](Self::scalar).
    pub fn scalars(
        &mut self,
        step: u64,
        values: impl IntoIterator<Item = (String, f64)>,
    ) -> Result<()> {
        let value = |(tag, value): (String, f64)| Value {
            tag,
            metadata: None,
            content: Some(Content::Scalar(value as f32)),
        };
        self.summary(step, values.into_iter().map(value).collect())
    }

    /// Adds the distribution of the finite elements of a tensor of any dtype and shape; nothing if
    /// there are none.
    ///
    /// # Errors
    /// As for [`scalar`](Self::scalar).
    pub fn histogram(&mut self, step: u64, tag: &str, values: &Literal) -> Result<()> {
        match histogram::of(values) {
            Some(histogram) => self.one(step, tag, None, Content::Histogram(histogram)),
            None => Ok(()),
        }
    }

    /// Adds a text in Markdown.
    ///
    /// # Errors
    /// As for [`scalar`](Self::scalar).
    pub fn text(&mut self, step: u64, tag: &str, markdown: &str) -> Result<()> {
        let text = Tensor {
            dtype: Tensor::STRING,
            shape: Some(proto::Shape::default()),
            string_val: vec![markdown.as_bytes().to_vec()],
        };
        self.one(step, tag, Some("text"), Content::Tensor(text))
    }

    /// Adds an image: a u8 tensor of shape `[height, width]` or `[height, width, channels]`, with 1
    /// (grey), 3 (RGB) or 4 (RGBA) channels.
    ///
    /// # Errors
    /// The tensor is no image; or as for [`scalar`](Self::scalar).
    pub fn image(&mut self, step: u64, tag: &str, pixels: &Literal) -> Result<()> {
        self.one(step, tag, None, Content::Image(image::of(pixels)?))
    }

    /// Adds a function as the graph of the run. Equations are grouped by file and line.
    ///
    /// # Errors
    /// As for [`scalar`](Self::scalar).
    pub fn graph(&mut self, function: &Function) -> Result<()> {
        let graph: GraphDef = graph::of(function);
        self.write(0, What::GraphDef(graph.encode_to_vec()))
    }

    /// Hands what was added to the operating system.
    ///
    /// # Errors
    /// As for [`scalar`](Self::scalar).
    pub fn flush(&mut self) -> Result<()> {
        self.file.flush().map_err(|error| cannot("write", &self.path, &error))
    }

    fn one(&mut self, step: u64, tag: &str, plugin: Option<&str>, content: Content) -> Result<()> {
        let metadata = plugin.map(|name| Metadata { plugin: Some(Plugin { name: name.into() }) });
        self.summary(step, vec![Value { tag: tag.into(), metadata, content: Some(content) }])
    }

    fn summary(&mut self, step: u64, value: Vec<Value>) -> Result<()> {
        self.write(step, What::Summary(Summary { value }))
    }

    fn write(&mut self, step: u64, what: What) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // No run has 2^63 steps.
        let event = Event { wall_time: now.as_secs_f64(), step: step as i64, what: Some(what) };
        let record = record(&event.encode_to_vec());
        self.file.write_all(&record).map_err(|error| cannot("write", &self.path, &error))
    }
}

/// A record of a file.
fn record(event: &[u8]) -> Vec<u8> {
    let length = (event.len() as u64).to_le_bytes();
    let parts =
        [&length[..], &checksum(&length).to_le_bytes(), event, &checksum(event).to_le_bytes()];
    parts.concat()
}

/// The checksum of a part of a record.
fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::graph::parse_program;

    /// The events of a file, whose checksums are right.
    fn events(path: &Path) -> Vec<Event> {
        let bytes = std::fs::read(path).unwrap();
        let (mut rest, mut events) = (&bytes[..], vec![]);
        while !rest.is_empty() {
            let number = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            assert_eq!(number(8), checksum(&rest[..8]));
            let event = &rest[12..12 + length];
            assert_eq!(number(12 + length), checksum(event));
            events.push(Event::decode(event).unwrap());
            rest = &rest[16 + length..];
        }
        events
    }

    /// The check value of CRC-32C, of RFC 3720, and its masked form.
    #[test]
    fn checksums_are_those_of_the_format() {
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        // ((x >> 15 | x << 17) + 0xa282ead8) of that, computed by hand.
        assert_eq!(checksum(b"123456789"), 0xc78a_b0e5);
    }

    #[test]
    fn what_is_added_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = EventFile::create(folder.path(), 7).unwrap();
        file.scalars(7, [("loss".into(), 0.5), ("metrics/right".into(), 3.0)]).unwrap();
        let all = Literal::from_vec(&[4], vec![1.0f32, -2.0, f32::NAN, 0.0]).unwrap();
        file.histogram(8, "parameters/w", &all).unwrap();
        file.histogram(8, "nothing", &Literal::from_vec(&[0], vec![0f32; 0]).unwrap()).unwrap();
        file.text(0, "recipe", "*x*").unwrap();
        file.image(9, "digit", &Literal::from_vec(&[2, 3], vec![0u8; 6]).unwrap()).unwrap();
        let program = "func @f(%x: f32[2]) -> (y: f32[2]) {
  %0: f32[2] = tanh %x
  return %0
}";
        file.graph(&parse_program(program, "f.ir").unwrap().functions()[0]).unwrap();
        file.flush().unwrap();
        let events = events(file.path());
        assert_eq!(events[0].what, Some(What::FileVersion(VERSION.into())));
        let started = What::SessionLog(SessionLog { status: 1 });
        assert_eq!((events[1].step, &events[1].what), (7, &Some(started)));
        let values = |event: &Event| match &event.what {
            Some(What::Summary(summary)) => summary.value.clone(),
            other => panic!("{other:?}"),
        };
        let scalars = values(&events[2]);
        assert_eq!(
            (scalars[0].tag.as_str(), &scalars[0].content),
            ("loss", &Some(Content::Scalar(0.5)))
        );
        assert_eq!(scalars[1].tag, "metrics/right");
        assert!(
            matches!(&values(&events[3])[0].content, Some(Content::Histogram(h)) if h.num == 3.0)
        );
        assert!(matches!(&values(&events[4])[0].content, Some(Content::Tensor(t))
            if t.string_val == [b"*x*"]));
        assert!(matches!(&values(&events[5])[0].content, Some(Content::Image(i))
            if (i.height, i.width, i.colorspace) == (2, 3, 1)));
        let Some(What::GraphDef(graph)) = &events[6].what else { panic!() };
        let names: Vec<String> =
            GraphDef::decode(&graph[..]).unwrap().node.into_iter().map(|node| node.name).collect();
        assert_eq!(names, ["inputs/x", "f.ir/2/tanh_0", "outputs/y"]);
        assert_eq!(events.len(), 7);
    }

    #[test]
    fn files_of_one_folder_have_different_names() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = [0, 1].map(|_| EventFile::create(folder.path(), 1).unwrap());
        assert!(a.path() < b.path());
        let missing = folder.path().join("missing");
        let error = EventFile::create(&missing, 1).unwrap_err();
        assert!(error.message.contains("cannot create"), "{error}");
    }
}
