//! Training by a recipe.
pub mod batches;
pub mod checkpoint;
pub mod log;
