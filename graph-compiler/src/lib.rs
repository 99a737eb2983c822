//! graph-compiler
