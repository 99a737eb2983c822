//! Indices out of range: an error of `run --check-indices`, and a finding of `check`.

use crate::place::{Place, Ran};

fn logits(place: &Place, words: &str, rest: &[&str]) -> Ran {
    let fixed = ["run", "classes.ir@logits", "--input", "m.weight=random:1", "--input", words];
    place.graphrun(&[&fixed[..], rest].concat())
}

#[test]
fn an_index_out_of_range_is_an_error_where_it_is_checked() {
    let place = Place::new();
    for device in ["cpu", "interpreter", "emulator"] {
        let on = ["--device", device, "--check-indices"];
        logits(&place, "word=3xi32=0 3 1", &on).good();
        let ran = logits(&place, "word=3xi32=0 4 -1", &on);
        ran.failed(
            2,
            &[
                "gather: index 4 at [1] of its indices is out of range",
                "0 to 3",
                "classes.ir:16:18",
            ],
        );
        assert_eq!(ran.out, "");
        // Without the check, the index is clamped.
        logits(&place, "word=3xi32=0 4 -1", &["--device", device]).good();
    }
    let checked = logits(&place, "word=3xi32=0 3 1", &["--check-indices"]);
    assert_eq!(
        checked.out,
        logits(&place, "word=3xi32=0 3 1", &[]).out,
        "the check changes no output"
    );
    let step = ["run", "classes.ir@step", "--input", "m.weight=zeros", "--input", "word=2xi32=0 1"];
    let ran =
        place.graphrun(&[&step[..], &["--input", "label=2xi32=2 7", "--check-indices"]].concat());
    ran.failed(
        2,
        &["softmax_cross_entropy: index 7 at [1] of its indices is out of range", "0 to 2"],
    );
    place.graphrun(&["compile", "classes.ir@logits", "-o", "p.plan", "--bind", "B=3"]).good();
    let plan =
        ["run", "p.plan", "--input", "m.weight=zeros", "--input", "word=zeros", "--check-indices"];
    place.graphrun(&plan).failed(2, &["a plan has no checks of its indices"]);
}

#[test]
fn check_looks_at_indices() {
    let place = Place::new();
    // Random indices are in range.
    let ran = place.graphrun(&["check", "classes.ir@step"]);
    ran.good();
    assert!(ran.out.contains("good: every index is in range: 2 lookups"), "{ran:?}");
    let ran = place.graphrun(&["check", "classes.ir@logits", "--input", "word=3xi32=0 4 1"]);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert!(
        ran.out.contains("BAD: gather: index 4 at [1] of its indices is out of range"),
        "{ran:?}"
    );
}
