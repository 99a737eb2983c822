//! What a user of Wengert writes. The programs are in `examples/`, the data they train on in `data/`.
#![forbid(unsafe_code)]
