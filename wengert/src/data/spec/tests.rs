//! Tests of specs.

use super::*;
use wengert_core::Binding;

fn ty(text: &str) -> TensorType {
    Cursor::new("t", text).tensor_type().unwrap()
}

#[test]
fn texts_of_every_form() {
    assert_eq!(
        Spec::parse("@a.npy").unwrap(),
        Spec::File { path: "a.npy".into(), key: None, dtype: None }
    );
    assert_eq!(
        Spec::parse("@d/w.safetensors[layers.0.w]").unwrap(),
        Spec::File { path: "d/w.safetensors".into(), key: Some("layers.0.w".into()), dtype: None }
    );
    assert_eq!(Spec::parse("zeros").unwrap(), Spec::Zeros);
    assert_eq!(Spec::parse("random:18446744073709551615").unwrap(), Spec::Random(u64::MAX));
    for text in
        ["2x2xf32=1.0 -2.5 inf nan", "i32=-7", "0x3xu8=", "2xbool=true false", "3xbf16=1.0 0.1 2.0"]
    {
        let Spec::Value(literal) = Spec::parse(text).unwrap() else { panic!("{text} is a value") };
        assert_eq!(Spec::parse(literal.to_string()).unwrap(), Spec::Value(literal));
    }
    for (bad, says) in [
        ("2x2xf32=1 2 3", "3 elements do not fill"),
        ("2xf33=1 2", "unknown dtype"),
        ("axf32=1", "no extent"),
        ("2xi32=1 2.5", "expected an integer"),
        ("18446744073709551615x4xf32=1", "do not fill"),
        ("@", "names no file"),
        ("random:x", "no seed"),
        ("ones", "does not say"),
    ] {
        let error = Spec::parse(bad).unwrap_err();
        assert!(error.to_string().contains(says), "{bad}: {error}");
    }
}

#[test]
fn files_are_converted_where_a_dtype_follows() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let wide = Literal::from_vec(&[2], vec![1.0f64, 2.5]).unwrap();
    let whole = Literal::from_vec(&[2], vec![300i64, -1]).unwrap();
    let write = |name: &str, array: &Literal| crate::data::write_one(at(name), "k", array);
    write("x.npy", &wide).unwrap();
    write("x.npz", &wide).unwrap();
    write("n.npy", &whole).unwrap();
    write("u.npy:f32.npy", &wide).unwrap();
    std::fs::write(at("t.csv"), "1.5\n2.5\n").unwrap();
    let read = |text: &str, dtype: &str| {
        let ty = ty(&format!("{dtype}[N]"));
        let spec = Spec::parse(format!("@{}", at(text)))?;
        let mut found = resolve(&[("x", &ty)], &[("x", spec)], &mut Binding::new())?;
        Ok(found.swap_remove(0).1)
    };
    let narrow = Literal::from_vec(&[2], vec![1.0f32, 2.5]).unwrap();
    assert_eq!(read("x.npy:f32", "f32"), Ok(narrow.clone()));
    assert_eq!(read("x.npz[k]:f32", "f32"), Ok(narrow.clone()));
    assert_eq!(read("x.npz:f32", "f32"), Ok(narrow.clone()));
    assert_eq!(read("n.npy:i32", "i32"), Ok(Literal::from_vec(&[2], vec![300i32, -1]).unwrap()));
    // A colon within the name of a file.
    assert_eq!(read("u.npy:f32.npy", "f64"), Ok(wide.clone()));
    assert_eq!(read("u.npy:f32.npy:f32", "f32"), Ok(narrow));
    // A file with the whole text as its name; its format is unknown.
    std::fs::write(at("x.npy:f64"), "").unwrap();
    let says = |result: Result<Literal>, text: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    says(read("x.npy:f64", "f64"), "is no tensor file");
    says(read("x.npy:float", "f32"), "unknown dtype `float`");
    says(read("x.npz[k]:f23", "f32"), "unknown dtype `f23`");
    says(read("x.npy", "f32"), "to convert it, write `:f32` after the file");
    says(read("x.npy:f16", "f32"), "the tensor given is f16[2]");
    says(read("x.npy:i32", "i32"), "x.npy`: element 1 is 2.5, which is no i32");
    says(read("n.npy:u8", "u8"), "element 0 is 300, which is no u8 (and so are 1 more)");
    says(read("t.csv:f64", "f32"), "the tensor given is f64[2]");
}

#[test]
fn files_bind_variables_that_the_others_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    let x = Literal::zeros(DType::F32, &[5, 3]);
    crate::data::npy::write(&path, &x).unwrap();
    let table = folder.path().join("y.csv");
    std::fs::write(&table, "1\n2\n3\n4\n5\n").unwrap();
    let (tx, ty_y, tz) = (ty("f32[B,3]"), ty("i32[B]"), ty("f64[2*B]"));
    let inputs = [("z", &tz), ("x", &tx), ("y", &ty_y)];
    let file = |p: &PathBuf| Spec::File { path: p.clone(), key: None, dtype: None };
    let specs = [("x", file(&path)), ("y", file(&table)), ("z", Spec::Random(1))];
    let mut binding = Binding::new();
    let found = resolve(&inputs, &specs, &mut binding).unwrap();
    assert_eq!(binding.get("B"), Some(5));
    assert_eq!(found[0].1.shape(), [10]);
    assert_eq!(found[1], ("x".into(), x));
    assert_eq!(found[2].1.as_slice::<i32>().unwrap(), [1, 2, 3, 4, 5]);
    assert_eq!(
        resolve(&inputs, &specs, &mut Binding::new()).unwrap(),
        found,
        "random is reproducible"
    );

    let says = |specs: &[(&str, Spec)], binding: &mut Binding, text: &str| {
        let error = resolve(&inputs, specs, binding).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    };
    says(&specs[..2], &mut Binding::new(), "input `z` (f64[2*B]) is not given");
    says(&[("w", Spec::Zeros)], &mut Binding::new(), "inputs are `z`, `x`, `y`");
    says(&[specs[0].clone(), specs[0].clone()], &mut Binding::new(), "twice");
    says(&specs, &mut Binding::new().with("B", 4), "the tensor given is f32[5,3]");
    let zeros = [("x", Spec::Zeros), ("y", Spec::Zeros), ("z", Spec::Zeros)];
    says(&zeros, &mut Binding::new(), "add `--bind B=NUMBER`");
    says(&zeros, &mut Binding::new().with("B", 1 << 60), "larger than any memory");
    let wrong =
        [("x", Spec::parse("5x3xf64=".trim_end()).unwrap_or(Spec::Zeros)), specs[1].clone()];
    assert!(resolve(&inputs, &wrong, &mut Binding::new()).is_err());
    let int =
        [("x", Spec::parse("1x3xi32=1 2 3").unwrap()), ("y", Spec::Zeros), ("z", Spec::Zeros)];
    says(&int, &mut Binding::new(), "convert it to f32");
}

#[test]
fn made_up_tensors_depend_on_seed_and_name() {
    let a = random(&ty("f32[100]"), 1, "a").unwrap();
    assert_ne!(a, random(&ty("f32[100]"), 1, "b").unwrap());
    assert_ne!(a, random(&ty("f32[100]"), 2, "a").unwrap());
    assert!(a.scalars().all(|s| (-1.0..=1.0).contains(&s.to_f64())));
    let labels = random(&ty("i32[100]"), 1, "a").unwrap();
    assert!(labels.as_slice::<i32>().unwrap().iter().all(|v| (0..10).contains(v)));
}
