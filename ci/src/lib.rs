//! ci
