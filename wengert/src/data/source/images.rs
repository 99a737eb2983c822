//! Folders of images.
//!
//! Two layouts are read:
//!
//! - **Folders of classes**: `cat/001.png`, `dog/7.jpg`. The classes are the folders, sorted by
//!   name, and the images are sorted by class and name.
//! - **`labels.csv`**: a table beside the images whose first line is `file,label`. Its rows are
//!   the examples, in their order; a label is an integer.
//!
//! The arrays are `image`, u8 `[N, height, width, channels]`, and `label`, i64 `[N]`. PNG and JPEG
//! files are read (`.png`, `.jpg`, `.jpeg`), with 8 bits of each channel; an image in colour
//! becomes grey, and grey becomes colour, as [`ImageOptions::channels`] says. All images have one
//! size, unless [`ImageOptions::size`] resizes them.
//!
//! An image is decoded when its row is read. A damaged one is an error that names its file and
//! row. [`ImageOptions::skip_damaged`] decodes every image when the folder is opened and leaves
//! the damaged ones out, so that rows keep their numbers from then on.

use super::{ArrayType, ImageOptions, Source, checked, missing};
use crate::atomic::{self, cannot};
use crate::data::map::Map;
use crate::data::text;
use ::image::imageops::FilterType;
use ::image::{DynamicImage, ImageReader, Limits};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::Range;
use std::path::{Path, PathBuf};
use wengert_core::{DType, Diagnostic, Literal, Result, diagnostic};

/// Name of the table of labels.
pub const LABELS: &str = "labels.csv";

/// Bytes of a decoded image, at most.
const LARGEST: u64 = 256 << 20;

/// A folder of images with labels.
#[derive(Debug)]
pub struct ImageFolder {
    options: ImageOptions,
    examples: Vec<Labelled>,
    /// Height and width.
    size: (usize, usize),
    classes: Vec<String>,
    skipped: Vec<Diagnostic>,
}

impl ImageFolder {
    /// Whether a folder has `labels.csv`, or a folder with an image.
    pub fn is_one(folder: &Path) -> bool {
        folder.join(LABELS).is_file()
            || atomic::entries("read", folder).is_ok_and(|entries| {
                entries.iter().filter(|entry| entry.is_dir()).any(|class| {
                    atomic::entries("read", class)
                        .is_ok_and(|files| files.iter().any(|file| is_image(file)))
                })
            })
    }

    /// Lists the images of a folder, and decodes the first one. With
    /// [`skip_damaged`](ImageOptions::skip_damaged), it decodes all.
    ///
    /// Errors: there is no image; `labels.csv` has a line without a file and an integer; the first
    /// image is damaged.
    pub fn open(folder: impl AsRef<Path>, options: ImageOptions) -> Result<ImageFolder> {
        let folder = folder.as_ref();
        if ![1, 3].contains(&options.channels) || options.size.is_some_and(|(h, w)| h * w == 0) {
            return Err(Diagnostic::new("images have 1 or 3 channels, and a height and width")
                .help("choose 3 for colour and 1 for grey"));
        }
        let labels = folder.join(LABELS);
        let (examples, classes) =
            if labels.is_file() { (listed(folder, &labels)?, vec![]) } else { classes(folder)? };
        if examples.is_empty() {
            return Err(diagnostic!("the folder `{}` has no image", folder.display())
                .help("it has folders of .png and .jpg files, or such files and `labels.csv`"));
        }
        let mut images = ImageFolder { options, examples, size: (0, 0), classes, skipped: vec![] };
        if options.skip_damaged {
            images.skip_damaged()?;
        } else {
            images.size = size_of(&images.decoded(0)?, options);
        }
        Ok(images)
    }

    /// Names of the classes, by label; none if the folder has `labels.csv`.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The errors of the images that were left out.
    pub fn skipped(&self) -> &[Diagnostic] {
        &self.skipped
    }

    fn skip_damaged(&mut self) -> Result<()> {
        let mut good = Vec::new();
        for row in 0..self.examples.len() {
            let image = self.decoded(row).and_then(|image| {
                if good.is_empty() {
                    self.size = size_of(&image, self.options);
                }
                self.fitted(row, image).map(drop)
            });
            match image {
                Ok(()) => good.push(self.examples[row].clone()),
                Err(error) => self.skipped.push(error),
            }
        }
        self.examples = good;
        match self.skipped.first() {
            Some(first) if self.examples.is_empty() => {
                Err(first.clone().context("every image is damaged"))
            }
            _ => Ok(()),
        }
    }

    /// An error of the image of a row.
    fn damaged(&self, row: usize, what: &dyn std::fmt::Display) -> Diagnostic {
        let path = self.examples[row].0.display();
        diagnostic!("the image `{path}` (row {row}) cannot be read: {what}")
            .help("mend or remove the file; `--skip-damaged` leaves such images out")
    }

    fn decoded(&self, row: usize) -> Result<DynamicImage> {
        let bytes = Map::open(&self.examples[row].0).map_err(|e| self.damaged(row, &e.message))?;
        let reader = ImageReader::new(Cursor::new(&bytes[..])).with_guessed_format();
        let mut reader = reader.map_err(|error| self.damaged(row, &error))?;
        let mut limits = Limits::default();
        limits.max_alloc = Some(LARGEST);
        reader.limits(limits);
        reader.decode().map_err(|error| self.damaged(row, &error))
    }

    /// The pixels of an image in the size and channels of all.
    fn fitted(&self, row: usize, image: DynamicImage) -> Result<Vec<u8>> {
        let (height, width) = self.size;
        let found = (image.height() as usize, image.width() as usize);
        let image = match self.options.size {
            _ if found == self.size => image,
            Some(_) => image.resize_exact(width as u32, height as u32, FilterType::Triangle),
            None => {
                return Err(self
                    .damaged(
                        row,
                        &format!(
                            "it has {}×{} pixels, the first one has {height}×{width} \
                             (height × width)",
                            found.0, found.1
                        ),
                    )
                    .help(
                        "`--image-size HEIGHTxWIDTH` resizes all images (`ImageOptions::size`)",
                    ));
            }
        };
        Ok(match self.options.channels {
            1 => image.into_luma8().into_raw(),
            _ => image.into_rgb8().into_raw(),
        })
    }

    fn types(&self) -> (ArrayType, ArrayType) {
        let (height, width) = self.size;
        let count = self.examples.len();
        let shape = vec![count, height, width, self.options.channels];
        (ArrayType { dtype: DType::U8, shape }, ArrayType { dtype: DType::I64, shape: vec![count] })
    }
}

fn size_of(image: &DynamicImage, options: ImageOptions) -> (usize, usize) {
    options.size.unwrap_or((image.height() as usize, image.width() as usize))
}

fn is_image(path: &Path) -> bool {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    path.is_file() && ["png", "jpg", "jpeg"].contains(&extension.to_lowercase().as_str())
}

/// A file and its label.
type Labelled = (PathBuf, i64);

/// The images of folders of classes, and the names of the classes.
fn classes(folder: &Path) -> Result<(Vec<Labelled>, Vec<String>)> {
    let (mut examples, mut names) = (Vec::new(), Vec::new());
    let mut folders = atomic::entries("read", folder)?;
    folders.sort();
    for class in folders.iter().filter(|entry| entry.is_dir()) {
        let mut files = atomic::entries("read", class)?;
        files.retain(|file| is_image(file));
        files.sort();
        if files.is_empty() {
            continue;
        }
        let label = names.len() as i64;
        names.push(class.file_name().unwrap_or_default().to_string_lossy().into_owned());
        examples.extend(files.into_iter().map(|file| (file, label)));
    }
    Ok((examples, names))
}

/// The images of `labels.csv`.
fn listed(folder: &Path, table: &Path) -> Result<Vec<Labelled>> {
    let text = text::read(table)?;
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| cannot("read", table, &error))?;
    let of = |name: &str| header.iter().position(|field| field.trim() == name);
    let (Some(file), Some(label)) = (of("file"), of("label")) else {
        return Err(diagnostic!("the first line of `{}` is not `file,label`", table.display()));
    };
    let mut examples = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| cannot("read", table, &error))?;
        let line = record.position().map_or(0, |position| position.line());
        let wrong = |what: String| diagnostic!("`{}`, line {line}: {what}", table.display());
        let name = record[file].trim();
        // A table must not make its reader open a file elsewhere.
        let inside = Path::new(name)
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_)));
        if name.is_empty() || !inside {
            return Err(wrong(format!("`{name}` is no file within the folder")));
        }
        let text = record[label].trim();
        let label = text.parse().map_err(|_| wrong(format!("the label `{text}` is no integer")))?;
        examples.push((folder.join(name), label));
    }
    Ok(examples)
}

impl Source for ImageFolder {
    fn arrays(&self) -> BTreeMap<String, ArrayType> {
        let (image, label) = self.types();
        BTreeMap::from([("image".into(), image), ("label".into(), label)])
    }

    fn read_range(&self, array: &str, rows: Range<usize>) -> Result<Literal> {
        let (image, label) = self.types();
        match array {
            "image" => {
                checked(array, &image, &rows)?;
                let mut pixels = Vec::with_capacity(rows.len() * image.width());
                for row in rows.clone() {
                    pixels.extend(self.fitted(row, self.decoded(row)?)?);
                }
                Literal::from_vec(&image.shape_of(rows.len()), pixels)
            }
            "label" => {
                checked(array, &label, &rows)?;
                let labels = self.examples[rows.clone()].iter().map(|(_, label)| *label).collect();
                Literal::from_vec(&[rows.len()], labels)
            }
            _ => Err(missing(self, array)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::image::{GrayImage, RgbImage};
    use tempfile::TempDir;

    /// Five images of 2×3 pixels in two classes; `bad.jpg` is no image.
    fn folder(with_bad: bool) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (class, numbers) in [("ant", 0..2u8), ("bee", 2..5)] {
            std::fs::create_dir(folder.path().join(class)).unwrap();
            for number in numbers {
                let path = folder.path().join(class).join(format!("{number}.png"));
                RgbImage::from_fn(3, 2, |x, y| [number, x as u8, y as u8].into())
                    .save(path)
                    .unwrap();
            }
        }
        std::fs::create_dir(folder.path().join("empty")).unwrap();
        if with_bad {
            std::fs::write(folder.path().join("bee/1.jpg"), b"\xff\xd8\xff no image").unwrap();
        }
        folder
    }

    #[test]
    fn classes_are_folders() {
        let folder = folder(false);
        assert!(ImageFolder::is_one(folder.path()));
        let images = ImageFolder::open(folder.path(), ImageOptions::default()).unwrap();
        assert_eq!(images.classes(), ["ant", "bee"]);
        assert_eq!(images.arrays()["image"].shape, [5, 2, 3, 3]);
        let labels = images.read("label", &[4, 0, 1, 2]).unwrap();
        assert_eq!(labels, Literal::from_vec(&[4], vec![1i64, 0, 0, 1]).unwrap());
        let read = images.read("image", &[3, 0]).unwrap();
        let pixels = read.as_slice::<u8>().unwrap();
        for (at, number) in [(0, 3), (1, 0)] {
            for (y, x) in [(0, 0), (1, 2), (0, 1)] {
                let from = ((at * 2 + y) * 3 + x) * 3;
                assert_eq!(pixels[from..from + 3], [number, x as u8, y as u8]);
            }
        }
        let grey = ImageOptions { channels: 1, size: Some((4, 4)), ..ImageOptions::default() };
        let images = ImageFolder::open(folder.path(), grey).unwrap();
        assert_eq!(images.read("image", &[1]).unwrap().shape(), [1, 4, 4, 1]);
    }

    #[test]
    fn labels_are_a_table() {
        let folder = tempfile::tempdir().unwrap();
        let table = folder.path().join(LABELS);
        GrayImage::from_pixel(2, 2, [7].into()).save(folder.path().join("a.png")).unwrap();
        std::fs::write(&table, "file,label\na.png,-3\na.png,12\n").unwrap();
        let images = ImageFolder::open(folder.path(), ImageOptions::default()).unwrap();
        let labels = images.read_range("label", 0..2).unwrap();
        assert_eq!(labels, Literal::from_vec(&[2], vec![-3i64, 12]).unwrap());
        // Grey becomes colour.
        assert_eq!(images.read("image", &[1]).unwrap(), Literal::full(&[1, 2, 2, 3], 7u8.into()));
        for (text, says) in [
            ("name,label\na.png,1\n", "first line"),
            ("file,label\na.png,x\n", "line 2: the label `x` is no integer"),
            ("file,label\n../a.png,1\n", "`../a.png` is no file within the folder"),
            ("file,label\n/etc/passwd,1\n", "no file within the folder"),
            ("file,label\n", "has no image"),
            ("file,label\nb.png,1\n", "b.png` (row 0)"),
        ] {
            std::fs::write(&table, text).unwrap();
            let error = ImageFolder::open(folder.path(), ImageOptions::default()).unwrap_err();
            assert!(error.to_string().contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn damaged_images_are_named_and_skipped_only_on_request() {
        let folder = folder(true);
        let images = ImageFolder::open(folder.path(), ImageOptions::default()).unwrap();
        assert_eq!(images.arrays()["label"].shape, [6]);
        assert!(images.read("image", &[0, 1, 3]).is_ok());
        let error = images.read_range("image", 1..4).unwrap_err().to_string();
        assert!(
            error.contains("bee/1.jpg` (row 2)") && error.contains("--skip-damaged"),
            "{error}"
        );
        let skip = ImageOptions { skip_damaged: true, ..ImageOptions::default() };
        let images = ImageFolder::open(folder.path(), skip).unwrap();
        assert_eq!(images.arrays()["label"].shape, [5]);
        assert_eq!(images.skipped().len(), 1);
        assert!(images.skipped()[0].message.contains("bee/1.jpg` (row 2)"));
        assert!(images.read_range("image", 0..5).is_ok());
        // Another size.
        RgbImage::new(5, 5).save(folder.path().join("bee/9.png")).unwrap();
        let images = ImageFolder::open(folder.path(), ImageOptions::default()).unwrap();
        let error = images.read("image", &[6]).unwrap_err().to_string();
        assert!(error.contains("bee/9.png` (row 6)") && error.contains("5×5"), "{error}");
        assert!(error.contains("--image-size"), "{error}");
    }
}
