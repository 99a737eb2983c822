//! `train`, `evaluate` and `data inspect` on data of every kind.

use crate::place::{Place, Ran};
use serde_json::Value;
use wengert::data::{self, npy};
use wengert::{GraphFile, Literal};

/// The arrays of `data.npz` as a folder `rows` of .npy files and as `rows.safetensors`.
fn place() -> Place {
    let place = Place::new();
    let arrays = data::read_all(place.path("data.npz")).unwrap();
    std::fs::create_dir(place.path("rows")).unwrap();
    for (name, array) in &arrays {
        npy::write(place.path(&format!("rows/{name}.npy")), array).unwrap();
    }
    let named = arrays.iter().map(|(k, v)| (k.as_str(), v));
    data::write_all(place.path("rows.safetensors"), named).unwrap();
    place
}

fn train(place: &Place, data: &str, out: &str, rest: &[&str]) -> Ran {
    let fixed = ["train", "model.graph", "--data", data, "--out", out];
    place.graphrun(&[&fixed, rest].concat())
}

#[test]
fn streams_give_the_files_of_memory() {
    let place = place();
    train(&place, "data.npz", "whole", &[]).good();
    for (number, data) in ["rows", "rows.safetensors"].into_iter().enumerate() {
        for (threads, rest) in [("1", &["--stream"][..]), ("3", &["--stream"]), ("1", &[])] {
            let out = format!("out{number}{threads}{}", rest.len());
            let rest = [rest, &["--data-threads", threads]].concat();
            train(&place, data, &out, &rest).good();
            assert!(place.contents(&out) == place.contents("whole"), "{out}");
        }
    }
    // In blocks, from memory and from files, at once and in parts.
    train(&place, "data.npz", "blocks", &["--shuffle-blocks", "3x2"]).good();
    assert!(place.contents("blocks") != place.contents("whole"));
    for steps in ["20", "33", "60"] {
        let resume: &[&str] = if steps == "20" { &[] } else { &["--resume"] };
        let rest = ["--stream", "--shuffle-blocks", "3x2", "--steps", steps];
        train(&place, "rows", "parts", &[&rest, resume].concat()).good();
    }
    let weights =
        |folder: &str| std::fs::read(place.path(folder).join("weights.safetensors")).unwrap();
    assert!(weights("parts") == weights("blocks"));

    let found = |data: &str, rest: &[&str]| {
        let fixed = ["evaluate", "model.graph", "--params", "whole/weights.safetensors"];
        let ran = place.graphrun(&[&fixed, &["--data", data][..], rest].concat());
        ran.good();
        ran.out
    };
    assert_eq!(found("rows", &["--stream"]), found("data.npz", &[]));
}

#[test]
fn bad_data_are_named() {
    let place = place();
    let fails = |data: &str, rest: &[&str], says: &[&str]| {
        train(&place, data, "bad", rest).failed(2, says);
        assert!(!place.path("bad").exists());
    };
    fails("data.npz", &["--stream"], &["`data.npz` cannot be read one by one"]);
    fails("rows", &["--shuffle-blocks", "0x2"], &["ROWS or ROWSxWINDOW"]);
    let bytes = std::fs::read(place.path("rows/y.npy")).unwrap();
    std::fs::write(place.path("rows/y.npy"), &bytes[..bytes.len() - 4]).unwrap();
    fails("rows", &["--stream"], &["y.npy", "cut short"]);
    npy::write(place.path("rows/y.npy"), &Literal::zeros(wengert::DType::F32, &[9])).unwrap();
    fails("rows", &["--stream"], &["array `x` has 10 examples, `y` has 9"]);
    std::fs::write(place.path("no.parquet"), b"PAR1 no").unwrap();
    fails("no.parquet", &[], &["no.parquet", "no Parquet file"]);
    fails("rows", &["--window", "3"], &["--tokenizer"]);
}

#[test]
fn data_are_inspected() {
    let place = place();
    let inspect = |data: &str, rest: &[&str]| {
        let ran = place.graphrun(&[&["data", "inspect", data], rest].concat());
        ran.good();
        ran.out
    };
    let text = inspect("classes.npz", &[]);
    assert_eq!(
        text,
        "\
classes.npz: 2 arrays
array  type    least  greatest      mean  NaN  infinite
label  i64[4]      0         2  0.750000    0         0
word   u8[4]       0         3  1.500000    0         0
classes of label: 0 (2), 1 (1), 2 (1)
classes of word: 0 (1), 1 (1), 2 (1), 3 (1)
label[0]: 0
label[1]: 1
label[2]: 2
word[0]: 0
word[1]: 1
word[2]: 2
"
    );
    let memory: Value = serde_json::from_str(&inspect("data.npz", &["--json"])).unwrap();
    let stream: Value = serde_json::from_str(&inspect("rows", &["--stream", "--json"])).unwrap();
    assert_eq!(memory["arrays"], stream["arrays"]);
    assert_eq!(memory["arrays"]["x"]["shape"], serde_json::json!([10, 3]));
    assert_eq!(memory["arrays"]["x"]["dtype"], "f32");
    assert!(memory["arrays"]["x"]["least"].as_f64().unwrap() == -0.5);
    place.graphrun(&["data", "inspect", "none.npz"]).failed(2, &["none.npz"]);
    place.graphrun(&["data", "inspect", "none"]).failed(2, &["has no file of that name"]);
}

/// A program whose input is a batch of images of 4×4 pixels in colour, flattened by the recipe's
/// program.
const PICTURES: &str = "\
func @init() -> (state w: f32[4,4,3]) {
  %0: f32[4,4,3] = constant {value=f32[4,4,3] 0.0}
  return %0
}

func @step(%x: f32[B,4,4,3], %y: f32[B], state %w: f32[4,4,3]) \
  -> (loss: f32[], state w: f32[4,4,3]) {
  %p: f32[B] = dot_general %x, %w {contract=[[1,2,3],[0,1,2]]}
  %e: f32[B] = sub %p, %y
  %s: f32[B] = mul %e, %e
  %loss: f32[] = reduce_sum %s {axes=[0]}
  %g: f32[4,4,3] = dot_general %e, %x {contract=[[0],[0]]}
  %r: f32[] = constant {value=f32[] 0.001}
  %rs: f32[4,4,3] = broadcast_in_dim %r {dims=[], shape=[4,4,3]}
  %d: f32[4,4,3] = mul %g, %rs
  %n: f32[4,4,3] = sub %w, %d
  return %loss, %n
}
";

#[test]
fn folders_of_images_train() {
    use wengert::core::graph::parse_program;
    use wengert::recipe::{InputRecipe, StepRecipe};
    let place = place();
    let file = GraphFile::read(place.path("model.graph")).unwrap();
    let program = parse_program(PICTURES, "pictures").unwrap();
    let input = |name: &str, array: &str, transforms: &[&str]| {
        transforms
            .iter()
            .fold(InputRecipe::new(name, array), |input, text| input.then(text.parse().unwrap()))
    };
    let inputs = vec![
        input(
            "x",
            "image",
            &[
                "pad 1 1 1 u8 0",
                "pad 2 1 1 u8 0",
                "crop 1 4 random",
                "crop 2 4 random",
                "flip 2",
                "convert f32",
                "scale f32 0.00390625",
            ],
        ),
        input("y", "label", &["convert f32"]),
    ];
    let mut recipe = file.recipe.clone().unwrap();
    recipe.step = StepRecipe { function: "step".into(), inputs, loss: "loss".into() };
    recipe.evaluate = None;
    let pictures = GraphFile { program, recipe: Some(recipe), ..GraphFile::default() };
    pictures.write(place.path("pictures.graph")).unwrap();
    assert!(GraphFile::read(place.path("pictures.graph")).unwrap() == pictures);
    let text = pictures.recipe.unwrap().to_string();
    let line = "x = image | pad 1 1 1 u8 0 | pad 2 1 1 u8 0 | crop 1 4 random";
    assert!(text.contains(line), "{text}");

    for (class, numbers) in [("ant", 0..5u8), ("bee", 5..11)] {
        std::fs::create_dir_all(place.path("photos").join(class)).unwrap();
        for number in numbers {
            let mut bytes = Vec::new();
            let mut encoder = png::Encoder::new(&mut bytes, 4, 4);
            encoder.set_color(png::ColorType::Rgb);
            let pixels: Vec<u8> = (0..48).map(|i| number.wrapping_mul(23) ^ (i * 5)).collect();
            encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
            std::fs::write(place.path(&format!("photos/{class}/{number:02}.png")), bytes).unwrap();
        }
    }
    let train = |out: &str, rest: &[&str]| {
        let fixed = ["train", "pictures.graph", "--data", "photos", "--out", out];
        place.graphrun(&[&fixed, rest].concat())
    };
    train("whole", &[]).good();
    train("streamed", &["--stream", "--data-threads", "2"]).good();
    assert!(place.contents("streamed") == place.contents("whole"));
    for steps in ["10", "31", "60"] {
        let resume: &[&str] = if steps == "10" { &[] } else { &["--resume"] };
        train("parts", &[&["--stream", "--steps", steps], resume].concat()).good();
    }
    assert!(place.contents("parts") == place.contents("whole"));

    std::fs::write(place.path("photos/bee/07.png"), b"\x89PNG\r\n\x1a\n no image").unwrap();
    let named = ["photos/bee/07.png` (row 7)", "--skip-damaged"];
    train("bad", &["--stream"]).failed(2, &named);
    let skipped = train("fewer", &["--skip-damaged"]);
    assert!(skipped.status == Some(0) && skipped.err.starts_with("warning: "), "{skipped:?}");
    assert!(skipped.err.contains(named[0]), "{skipped:?}");
    let inspected = place.graphrun(&["data", "inspect", "photos", "--skip-damaged", "--json"]);
    let found: Value = serde_json::from_str(&inspected.out).unwrap();
    assert_eq!(found["arrays"]["label"]["classes"], serde_json::json!({"0": 5, "1": 5}));
    assert_eq!(found["arrays"]["image"]["shape"], serde_json::json!([10, 4, 4, 3]));
    assert_eq!(found["skipped"].as_array().unwrap().len(), 1);
}
