//! The text that the example `wengert_list` prints.
use python_free_examples::wengert_list::report;

#[test]
fn lists_are_printed_differentiated_and_run() {
    let text = report().unwrap();
    let has =
        |line: &str| assert!(text.lines().any(|l| l.starts_with(line)), "no `{line}` in\n{text}");
    for line in [
        "x: f64[]",
        "v1: f64[] = mul x, x",
        "v2: f64[] = mul v1, x",
        "y = v2",
        "at 5: 75",
        "at 2: 12",
    ] {
        has(line);
    }
    has("its own derivative, at 5: 30");
    has("√2 = 1.414213562373 after 6 steps, with slope 0.353553390593");
    has("at 2.25: 1.500000000000");
    assert!(
        text.contains("// python-free-examples/src/wengert_list.rs:")
            || text.contains("wengert_list.rs:")
    );
}
