//! Classifier loss that never holds all logits in memory.
//!
//! The logits are the largest tensor of a language model: rows times vocabulary, where other
//! tensors are rows times width. Only the loss of each row and two products of the logits'
//! gradient are needed, and that gradient, softmax − onehot, is known up to one factor once the
//! logits are. So the logits are computed for one chunk of rows at a time and replaced by their
//! gradient in place. The gradient is multiplied by the weights, which gives the gradient of the
//! chunk's rows, and by the rows, which is added to the weights' gradient. Then the next chunk
//! begins. Unlike with a checkpoint, no product is computed twice.

use wengert_compiler::autodiff::operators::vjp;
use wengert_compiler::autodiff::rules::custom_vjp;
use wengert_core::build::control::scan;
use wengert_core::op::DotGeneral;
use wengert_core::{DType, Diagnostic, Dim, Location, Tensor, diagnostic};

/// The mean of the [softmax cross-entropy](Tensor::softmax_cross_entropy) of the logits
/// `hidden · weightᵀ`, with one of `chunks` equal parts of the logits in memory at a time. Value
/// and gradients are those of the unchunked loss, up to rounding.
///
/// `hidden` is `[…, C]` of floats, `weight` is `[V, C]` like the table of an embedding, `labels`
/// are integers `[…]` below V. The result is a scalar, f32 for f16 and bf16 operands. The
/// weights' gradient is accumulated in f32, too.
///
/// Under differentiation, the loss computes its gradients along with its value. It costs the same
/// three products as the unchunked loss.
///
/// Errors: the number of rows is no multiple of `chunks`; the shapes do not fit; labels are no
/// integers.
///
/// ```
/// # use wengert::prelude::*;
/// # use wengert::nn::loss::linear_cross_entropy;
/// # fn main() -> Result<()> {
/// let mut program = Program::new();
/// program.function("loss", |f| {
///     let hidden = f.input("hidden", TensorType::new(DType::F32, [6usize, 2]));
///     let weight = f.input("weight", TensorType::new(DType::F32, [5usize, 2]));
///     let labels = f.input("labels", TensorType::new(DType::I32, [6usize]));
///     f.output("loss", linear_cross_entropy(&hidden, &weight, &labels, 3));
/// })?;
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn linear_cross_entropy(
    hidden: &Tensor,
    weight: &Tensor,
    labels: &Tensor,
    chunks: usize,
) -> Tensor {
    let _user = Location::caller().attributed();
    let rows = match Rows::new(hidden, weight, labels, chunks) {
        Ok(rows) => rows,
        Err(error) => return Tensor::fail_of(&[hidden, weight, labels], error),
    };
    let at = (hidden.clone(), weight.clone());
    custom_vjp(
        &at,
        |(hidden, weight)| rows.loss_and_gradients(hidden, weight, labels),
        |(by_hidden, by_weight), cotangent| {
            let scaled = |gradient: &Tensor, like: &Tensor| {
                let factor = cotangent.convert(gradient.dtype());
                (gradient * factor).convert(like.dtype())
            };
            (scaled(by_hidden, hidden), scaled(by_weight, weight))
        },
    )
}

/// The division of the rows into chunks.
struct Rows {
    /// Total number of rows.
    count: Dim,
    chunks: usize,
    /// Rows of a chunk.
    chunk: Dim,
    width: Dim,
    /// Dtype of the sums.
    dtype: DType,
}

impl Rows {
    fn new(
        hidden: &Tensor,
        weight: &Tensor,
        labels: &Tensor,
        chunks: usize,
    ) -> Result<Self, Diagnostic> {
        for operand in [hidden, weight, labels] {
            if let Some(error) = operand.error() {
                return Err(error.clone());
            }
        }
        let mismatch = || {
            let (hidden, weight, labels) = (hidden.ty(), weight.ty(), labels.ty());
            diagnostic!("rows have type {hidden}, weights {weight}, labels {labels}").help(
                "rows are […, C] and weights [V, C] of one float dtype, labels […] \
                     of an integer dtype",
            )
        };
        let (Some((width, rows)), [_, columns]) = (hidden.shape().split_last(), weight.shape())
        else {
            return Err(mismatch());
        };
        let dtypes = hidden.dtype() == weight.dtype()
            && hidden.dtype().is_float()
            && labels.dtype().is_integer();
        if width != columns || rows != labels.shape() || !dtypes {
            return Err(mismatch());
        }
        let count =
            rows.iter().try_fold(Dim::constant(1), |product, extent| product.checked_mul(extent));
        let parts = i64::try_from(chunks).ok().filter(|n| *n > 0).map(Dim::constant);
        let chunk =
            count.as_ref().zip(parts).and_then(|(count, parts)| count.checked_exact_div(&parts));
        let (Some(count), Some(chunk)) = (count, chunk) else {
            let rows: Vec<String> = rows.iter().map(Dim::to_string).collect();
            return Err(diagnostic!("{} rows in {chunks} chunks", rows.join(" · "))
                .help("give a number of chunks that divides the number of rows"));
        };
        let dtype = if hidden.dtype().is_half() { DType::F32 } else { hidden.dtype() };
        Ok(Rows { count, chunks, chunk, width: width.clone(), dtype })
    }

    /// The loss, and its gradients by rows and weights.
    fn loss_and_gradients(
        &self,
        hidden: &Tensor,
        weight: &Tensor,
        labels: &Tensor,
    ) -> (Tensor, (Tensor, Tensor)) {
        let chunks = Dim::from(self.chunks);
        let parts = (
            hidden.reshape([chunks.clone(), self.chunk.clone(), self.width.clone()]),
            labels.reshape([chunks, self.chunk.clone()]),
        );
        let share: Tensor = Tensor::dim_as_value(self.count.clone(), self.dtype).reciprocal();
        let none = Tensor::zeros(&weight.ty().with_dtype(self.dtype));
        let (by_weight, (losses, by_hidden)) = scan(&none, &parts, |sum, (hidden, labels)| {
            let logits = product(hidden, weight, (1, 1), None);
            let (losses, pull_back) = vjp(&logits, |logits| logits.softmax_cross_entropy(labels));
            let by_logits = pull_back(&share.broadcast_to(losses.shape()));
            let by_hidden = product(&by_logits, weight, (1, 0), None);
            let by_weight = product(&by_logits, hidden, (0, 0), Some(self.dtype));
            (sum + by_weight, (losses, by_hidden))
        });
        (losses.mean(), (by_hidden.reshape(hidden.shape().to_vec()), by_weight))
    }
}

/// The product of two matrices, summed over one axis of each.
fn product(
    lhs: &Tensor,
    rhs: &Tensor,
    (left, right): (usize, usize),
    result: Option<DType>,
) -> Tensor {
    let result = result.filter(|dtype| *dtype != lhs.dtype());
    let dot = DotGeneral { contract: (vec![left], vec![right]), batch: (vec![], vec![]), result };
    Tensor::apply(dot, &[lhs, rhs])
}
