//! How the products of a plan are computed: by the library or by kernels of this crate, with which
//! addends and followers, and the bytes that kernels beside them move.
//!
//! The choice is made once, when a plan is lowered, and recorded here. It needs no device: the
//! library's forms are decided from the product alone.

use std::fmt;
use wengert_core::call::{Addends, Call};

/// How one product of a plan is computed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProductChoice {
    /// The product.
    pub call: Call,
    /// The operand that shares the result's memory.
    pub in_place: Option<usize>,
    /// The part of a library; the error is the reason why kernels of this crate compute it.
    pub library: Result<(), String>,
    /// The addends that a kernel of their own adds.
    pub left: Addends,
    /// The nest that follows the product, and whether it is part of the product's kernels.
    pub follower: Option<(String, bool)>,
    /// Bytes of the arguments of the kernels beside the product: that of the remaining addends, and
    /// the nest that follows, unless it is part of the product's kernels.
    pub beside: u64,
}

impl ProductChoice {
    /// The product's addends, in words.
    fn addends(&self) -> String {
        let wanted = self.in_place.map_or("residual", |_| "residual in place");
        let Call::Gemm(gemm) = &self.call else { return String::new() };
        let named = [(gemm.addends.bias, "bias"), (gemm.addends.residual, wanted)];
        let named: Vec<&str> = named.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
        let apart = if self.left == Addends::default() { "" } else { " (own kernel)" };
        named.join(" + ") + apart
    }
}

/// Equal choices with their number, in the order of the first of each, as the rows of a table.
pub struct ProductTable<'a>(pub &'a [ProductChoice]);

impl fmt::Display for ProductTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: Vec<(&ProductChoice, String, u64)> = Vec::new();
        for choice in self.0 {
            let by = match &choice.library {
                Ok(()) => "library".to_owned(),
                Err(reason) => format!("own kernels: {reason}"),
            };
            let follower = match &choice.follower {
                None => "",
                Some((_, true)) => "nest in the product",
                Some((_, false)) => "nest (own kernel)",
            };
            let Call::Gemm(gemm) = &choice.call else { continue };
            let text = format!(
                "{:<34} {:<5} {:<34} {:<20} {by}",
                choice.call.description(),
                gemm.result.to_string(),
                choice.addends(),
                follower,
            );
            match rows.iter_mut().find(|(known, row, _)| {
                *row == text && known.beside == choice.beside && known.call == choice.call
            }) {
                Some((.., count)) => *count += 1,
                None => rows.push((choice, text, 1)),
            }
        }
        writeln!(
            f,
            "{:>5} {:>12} {:<34} {:<5} {:<34} {:<20} computed by",
            "times", "MB beside", "product", "to", "addends", "follower"
        )?;
        for (choice, text, count) in &rows {
            let megabytes = choice.beside as f64 * *count as f64 / 1e6;
            writeln!(f, "{count:>5} {megabytes:>12.1} {text}")?;
        }
        let beside: u64 = self.0.iter().map(|choice| choice.beside).sum();
        let library = self.0.iter().filter(|choice| choice.library.is_ok()).count();
        writeln!(
            f,
            "{} products, {library} by the library; {:.2} GB beside them",
            self.0.len(),
            beside as f64 / 1e9
        )
    }
}
