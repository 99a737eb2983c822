//! Filetests of nests.
#[test]
fn smoke() {
    let text = include_str!("nest/softmax.nest");
    for (nest, places) in wengert_core::nest::parse_nests("softmax.nest", text).unwrap() {
        println!("{nest}");
        if let Err(e) = wengert_core::nest::verify_at(&nest, &places) {
            panic!("{e}");
        }
        let again = wengert_core::nest::parse_nests("x", &nest.to_string()).unwrap();
        assert_eq!(again[0].0, nest);
    }
}
