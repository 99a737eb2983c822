//! Ranks as threads and as processes: right bytes, and what every fault looks like.

mod command;
mod faults;
mod suite;
