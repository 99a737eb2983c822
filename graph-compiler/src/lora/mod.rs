//! Low-rank adaptation of weights (Hu et al., *LoRA*, 2021, arXiv:2106.09685), as a pass over
//! functions.
//!
//! A weight w that stays as it is gets an update of low rank, P·Q, of which P and Q are trained. A
//! function that reads w reads w + s·P·Q in its place, with s = alpha / rank. Every model can be
//! adapted: the pass needs key paths only, and looks at no layer.
//!
//! # The parameters
//!
//! The pass adds two parameters for each weight. `<path>.lora_a` takes what the weight takes, and
//! begins with random numbers. `<path>.lora_b` gives what the weight gives, and begins with zeros,
//! so that the function is at first what it was. Their shapes follow from the axis of the weight
//! that its outputs have ([`Adapter`]):
//!
//! | weight | `lora_a` | `lora_b` | update |
//! |---|---|---|---|
//! | `[in…, out]` | `[in…, r]` | `[r, out]` | `lora_a · lora_b` |
//! | `[out, in…]` | `[r, in…]` | `[out, r]` | `lora_b · lora_a` |
//!
//! A weight has one axis of inputs, or it is a kernel of a convolution, whose inputs have several.
//! The first product with the weight says which axis is which: it sums over the inputs.
//!
//! # The rule
//!
//! A product x·w becomes x·w + ((x·P)·s)·Q. So no update of the size of the weight is made, in the
//! derivative neither: for n rows, the three products take n·(in·out + r·(in + out))
//! multiplications, and the derivative of w is not computed. Every other reader of w, such as a
//! convolution, a lookup or a loop, reads the sum w + s·P·Q, which is made once. A kernel is small
//! beside the images that it is moved over, so nothing is gained by two convolutions.
//!
//! # Order
//!
//! The pass runs before differentiation: the derivative is built of the adapted function. Mixed
//! precision comes after it.
//!
//! Cost: two walks over the equations.

mod adapter;
mod remove;
mod rewrite;

pub use adapter::{Adapter, OutputAxis};
pub use remove::{Plain, Update, remove};

use crate::key_paths::KeyPaths;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use wengert_core::graph::{Function, Input, InputRole, Program, verify};
use wengert_core::{Diagnostic, Result, diagnostic};

/// The end of the key path of the parameter that takes a weight's inputs.
pub const DOWN: &str = "lora_a";

/// The end of the key path of the parameter that gives a weight's outputs.
pub const UP: &str = "lora_b";

/// Which weights are adapted, and by updates of which rank.
///
/// ```
/// # use wengert_compiler::lora::Lora;
/// # use wengert_core::graph::parse_program;
/// let program = parse_program(
///     "func @predict(%x: f32[B,6], param %w: f32[6,5]) -> (y: f32[B,5]) {
///        %0: f32[B,5] = dot_general %x, %w {contract=[[1],[0]]}
///        return %0
///      }",
///     "model.ir",
/// )?;
/// let adapted = Lora::new(2)?.path("w")?.apply_to_program(&program)?;
/// let names: Vec<&str> =
///     adapted.functions()[0].inputs.iter().map(|input| input.name.as_str()).collect();
/// assert_eq!(names, ["x", "w", "w.lora_a", "w.lora_b"]);
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Lora {
    rank: usize,
    alpha: f64,
    paths: KeyPaths,
}

impl Lora {
    /// Updates of a rank, at first for no weight. Alpha is the rank, so the factor s is 1.
    ///
    /// # Errors
    /// The rank is 0.
    pub fn new(rank: usize) -> Result<Self> {
        if rank == 0 {
            return Err(Diagnostic::new("an update of rank 0 changes nothing")
                .help("ranks from 4 to 64 are usual"));
        }
        Ok(Lora { rank, alpha: rank as f64, paths: KeyPaths::new() })
    }

    /// Sets alpha: an update is multiplied by s = alpha / rank. With one alpha, a learning rate
    /// suits updates of several ranks.
    ///
    /// # Errors
    /// Alpha is 0, or not finite.
    pub fn alpha(mut self, alpha: f64) -> Result<Self> {
        if !alpha.is_finite() || alpha == 0.0 {
            return Err(diagnostic!("LoRA with an alpha of {alpha}").help(
                "alpha is a finite number other than 0; the rank, or twice the rank, is usual",
            ));
        }
        self.alpha = alpha;
        Ok(self)
    }

    /// Adapts the weights whose key paths match a pattern, with those of earlier calls. Patterns
    /// have `*`, `?` and `[…]`, as in `model.h.*.attention.*.weight`; `*` matches dots, too.
    ///
    /// # Errors
    /// The text is no pattern.
    pub fn path(mut self, pattern: &str) -> Result<Self> {
        self.paths = self.paths.with(pattern)?;
        Ok(self)
    }

    /// The rank of the updates.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// s = alpha / rank, by which an update is multiplied.
    pub fn scale(&self) -> f64 {
        self.alpha / self.rank as f64
    }

    /// Whether the weight at a key path is adapted. Parameters of adapters are not.
    pub fn is_for(&self, path: &str) -> bool {
        !is_of_adapter(path) && self.paths.matches(path)
    }

    /// The patterns, as they were given.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter()
    }

    /// The adapters of a program's weights, in the order of the functions and their inputs.
    ///
    /// # Errors
    /// There is no pattern, or one matches no variable; a variable that matches is no matrix and no
    /// kernel of a convolution, is not of floats, is too small for the rank, or is adapted already;
    /// a function replaces such a variable: its derivative is built already.
    pub fn adapters(&self, program: &Program) -> Result<Vec<Adapter>> {
        adapter::find(self, program.functions())
    }

    /// The program with adapted functions. Functions that take none of the weights stay as they
    /// are.
    ///
    /// # Errors
    /// As for [`adapters`](Self::adapters).
    pub fn apply_to_program(&self, program: &Program) -> Result<Program> {
        let adapters = self.adapters(program)?;
        let mut adapted = program.clone();
        for function in program.functions() {
            adapted.replace(self.adapted(function, &adapters));
        }
        Ok(adapted)
    }

    /// The function with updates of its weights.
    ///
    /// # Errors
    /// As for [`adapters`](Self::adapters), of a program with this function alone.
    pub fn apply(&self, function: &Function) -> Result<Function> {
        let adapters = adapter::find(self, std::slice::from_ref(function))?;
        Ok(self.adapted(function, &adapters))
    }

    fn adapted(&self, function: &Function, adapters: &[Adapter]) -> Function {
        let adapters: BTreeMap<&str, &Adapter> =
            adapters.iter().map(|adapter| (adapter.path.as_str(), adapter)).collect();
        let of = |input: &Input| adapters.get(input.name.as_str()).copied();
        if !function.inputs.iter().any(|input| of(input).is_some()) {
            return function.clone();
        }
        let mut inputs = Vec::new();
        for input in &function.inputs {
            inputs.push(input.clone());
            for name in of(input).into_iter().flat_map(|adapter| [adapter.down(), adapter.up()]) {
                inputs.push(Input { name, role: InputRole::Param, location: input.location });
            }
        }
        let body = rewrite::body(function, of, self.scale());
        let adapted = Function { inputs, body, ..function.clone() }.renumber();
        if let Err(fault) = verify(&adapted) {
            panic!("the pass of LoRA breaks an invariant of the graph: {fault}");
        }
        adapted
    }
}

/// Whether a variable belongs to an adapter.
pub fn is_of_adapter(path: &str) -> bool {
    [DOWN, UP].iter().any(|end| path.strip_suffix(end).is_some_and(|rest| rest.ends_with('.')))
}

/// `r=8,alpha=16,*.weight`, as the option `--lora` takes it.
impl FromStr for Lora {
    type Err = Diagnostic;

    fn from_str(text: &str) -> Result<Self> {
        let number = |name: &str, value: &str| {
            value.parse::<f64>().map_err(|_| diagnostic!("`{name}={value}` is not a number"))
        };
        let mut lora = None;
        let (mut alpha, mut patterns) = (None, Vec::new());
        for part in text.split(',').map(str::trim) {
            match part.split_once('=') {
                Some(("r" | "rank", value)) => {
                    let rank = value.parse().map_err(|_| {
                        diagnostic!("`{part}` is not a rank").help("a rank is a number such as 8")
                    })?;
                    lora = Some(Lora::new(rank)?);
                }
                Some(("alpha", value)) => alpha = Some(number("alpha", value)?),
                _ => patterns.push(part),
            }
        }
        let form = "write `r=8,alpha=16,PATTERN`: a rank, alpha if it is not the rank, and \
                    patterns of key paths";
        let mut lora = lora.ok_or_else(|| diagnostic!("LoRA `{text}` has no rank").help(form))?;
        if patterns.iter().all(|pattern| pattern.is_empty()) {
            return Err(diagnostic!("LoRA `{text}` is for no weight").help(form));
        }
        if let Some(alpha) = alpha {
            lora = lora.alpha(alpha)?;
        }
        patterns.into_iter().try_fold(lora, Lora::path)
    }
}

impl fmt::Display for Lora {
    /// In the form that is parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r={},alpha={}", self.rank, self.alpha)?;
        self.paths().try_for_each(|path| write!(f, ",{path}"))
    }
}
