//! Models of other formats, as commands read them.

use crate::cli::ModelArgs;
use crate::console::Outcome;
use crate::source::pair;
use wengert::core::text::Cursor;
use wengert::data::inflate::InflateLimit;
use wengert::data::spec::Spec;
use wengert::{Binding, diagnostic, onnx};

/// How a model is imported. `extents` are numbers for symbolic extents.
pub fn options(args: &ModelArgs, extents: Binding) -> Outcome<onnx::Options> {
    let mut options = onnx::Options {
        extents,
        absent: args.absent.iter().cloned().collect(),
        ..Default::default()
    };
    for text in &args.bound {
        let (name, spec) = pair("bind-input", text)?;
        let value = Spec::parse(spec).and_then(|spec| spec.literal(InflateLimit::default()));
        let value = value.map_err(|error| error.context(format_args!("input `{name}`")))?;
        options.bound.insert(name.to_owned(), value);
    }
    for text in &args.max {
        let most = text.rsplit_once('=').and_then(|(name, most)| Some((name, most.parse().ok()?)));
        let (name, most) = most.filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
            diagnostic!("`--max {text}` is no bound")
                .help("write --max NAME=N, e.g. --max boxes=100")
        })?;
        options.max.insert(name.to_owned(), most);
    }
    for text in &args.sequences {
        let found = text.split_once('=').filter(|(name, _)| !name.is_empty());
        let (name, shapes) = found.ok_or_else(|| {
            diagnostic!("`--sequence {text}` has no shapes")
                .help("write the shape of each element: --sequence \"NAME=[3],[2,4]\"")
        })?;
        let mut cursor = Cursor::new("--sequence", shapes);
        let mut all = vec![];
        while !cursor.is_end() {
            if !all.is_empty() {
                cursor.expect(",")?;
            }
            all.push(cursor.shape()?);
        }
        options.sequences.insert(name.to_owned(), all);
    }
    Ok(options)
}
