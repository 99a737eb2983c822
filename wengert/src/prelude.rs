//! Common names of programs: `use wengert::prelude::*;`.

pub use crate::eager::Tracked;
pub use crate::list::{WengertList, trace};
pub use crate::nn::loss::cross_entropy;
pub use crate::nn::{
    Activation, Conv1d, Conv2d, Dropout, Embedding, LayerNorm, Linear, Lstm, LstmState,
};
pub use crate::operators::{
    Checkpoint, TransposeSolve, checkpoint, custom_jvp, custom_linear_solve, custom_root,
    custom_vjp, grad, grad_wrt, gvp, hessian, hvp, jacfwd, jacrev, jet, jvp, linearize,
    nth_derivative, print_saved_residuals, saved_residuals, transpose, value_and_grad,
    value_and_grad_wrt, value_aux_and_grad, vjp, vmap, vmap_axes, with_derivative,
};
pub use crate::optim::{
    Adafactor, Adagrad, Adam, AdamW, Lion, LossScale, Muon, RmsProp, Sgd, Soap,
};
pub use crate::program::Program;
pub use crate::types::{bf16, bool, f8e4m3fn, f8e5m2, f16, f32, f64, i8, i32, i64, u8, u32, u64};
pub use crate::{Device, Session, bind, nn, optim};
pub use wengert_compiler::precision::{Dtypes, Precision};
pub use wengert_core::build::FunctionBuilder;
pub use wengert_core::build::control;
pub use wengert_core::{
    Binding, DType, Diagnostic, Differentiable, Dim, Initializer, Literal, NoDerivative, Result,
    Tensor, TensorType, VectorSpace, s,
};
