//! wengert
