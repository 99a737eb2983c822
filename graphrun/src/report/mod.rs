//! The page of `graphrun report`: one HTML file that loads nothing.
//!
//! The page has its data as JSON, in the form of [`wengert::anatomy::Anatomy`] and of the outputs
//! of `graphrun memory --frontier --json` and `graphrun precision --json`. Its scripts draw them.
//! The libraries for layout, zoom and curves are in `vendor/`.

mod page;

pub use page::page;
