//! Tests native code: its bytes, and its results, against the definitions of the instructions.

mod encode;
mod program;

#[test]
fn the_choice_is_checked() {
    assert!(super::from_name("native").expect("a choice"));
    assert!(!super::from_name("interpreted").expect("a choice"));
    assert!(
        super::from_name("fast").expect_err("none").to_string().contains("native, interpreted")
    );
}
