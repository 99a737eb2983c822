//! Executes PTX on the CPU, and watches what it does.
#![forbid(unsafe_code)]
