//! The parameters of networks as a burn module, which burn's optimisers can train, and the layers
//! that use them.

use crate::case::{Inference, Kind};
use crate::network::Drawn;
use burn::module::{Module, Param};
use burn::nn::Lstm;
use burn::tensor::activation::softmax;
use burn::tensor::module::{attention, layer_norm, linear};
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Bool, DType, Device, Distribution, Tensor, TensorData};
use std::cell::Cell;
use std::fmt::{self, Display, Formatter};

/// A variant of a network: its use of burn's interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Form {
    /// Matrices are stored as `[outputs, inputs]`, like those of a `burn::nn::Linear` with layout
    /// `Col`.
    pub turned: bool,
    /// Attention is one op instead of products and a softmax.
    pub flash: bool,
    /// The recurrent layer is `burn::nn::Lstm`.
    pub layer: bool,
}

impl Display for Form {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.turned, "matrices by columns"),
            (self.flash, "attention as one op"),
            (self.layer, "its own layer"),
        ];
        let parts: Vec<&str> = parts.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
        write!(f, "{}", if parts.is_empty() { "plain".to_owned() } else { parts.join(", ") })
    }
}

impl Form {
    /// The variants for inference of a network.
    pub fn of_inference(network: &Inference) -> Vec<Form> {
        let flashes = !matches!(network, Inference::Mlp(_));
        let forms = [false, true]
            .map(|turned| [false, true].map(|flash| Form { turned, flash, layer: false }));
        forms.into_iter().flatten().filter(|form| flashes || !form.flash).collect()
    }

    /// The variants for a training step. They exclude attention as one op, because burn decomposes
    /// it for differentiation into more ops than users would write.
    pub fn of_training(kind: &Kind) -> Vec<Form> {
        let plain = Form::default();
        match kind {
            Kind::Recurrent { .. } => vec![plain, Form { layer: true, ..plain }],
            _ => vec![plain, Form { turned: true, ..plain }],
        }
    }
}

/// The parameters of a network, grouped by rank: burn's tensor types include the rank.
#[derive(Module, Debug)]
pub struct Parameters {
    vectors: Vec<Param<Tensor<1>>>,
    matrices: Vec<Param<Tensor<2>>>,
    filters: Vec<Param<Tensor<4>>>,
    /// burn's LSTM layer, in the variant that uses it.
    pub lstm: Option<Lstm>,
}

/// A tensor with these elements.
pub fn tensor<const D: usize>(
    values: Vec<f32>,
    shape: [usize; D],
    device: &Device,
    dtype: DType,
) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, shape), (device, dtype))
}

impl Parameters {
    /// The initial parameters. Filters are permuted to burn's order, channels first.
    pub fn new(drawn: &[Drawn], form: Form, device: &Device, dtype: DType) -> Parameters {
        let mut found =
            Parameters { vectors: vec![], matrices: vec![], filters: vec![], lstm: None };
        for drawn in drawn {
            match drawn.shape[..] {
                [n] => found.vectors.push(Param::from_tensor(tensor(
                    drawn.values(),
                    [n],
                    device,
                    dtype,
                ))),
                [rows, columns] => {
                    let matrix = tensor(drawn.values(), [rows, columns], device, dtype);
                    found.matrices.push(matrix_of(matrix, form.turned && drawn.is_affine()));
                }
                [high, wide, from, to] => {
                    let filter = tensor(drawn.values(), [high, wide, from, to], device, dtype);
                    found.filters.push(Param::from_tensor(laid(filter.permute([3, 2, 0, 1]))));
                }
                _ => unreachable!("parameters are vectors, matrices and filters"),
            }
        }
        found
    }

    /// Random parameters from burn's own generator. A start uses them, because its time includes
    /// the drawing.
    pub fn random(drawn: &[Drawn], device: &Device) -> Parameters {
        let mut found =
            Parameters { vectors: vec![], matrices: vec![], filters: vec![], lstm: None };
        for drawn in drawn {
            let between = Distribution::Uniform(drawn.bounds[0], drawn.bounds[1]);
            match drawn.shape[..] {
                [n] => found.vectors.push(Param::from_tensor(Tensor::random([n], between, device))),
                [rows, columns] => {
                    found.matrices.push(Param::from_tensor(Tensor::random(
                        [rows, columns],
                        between,
                        device,
                    )));
                }
                _ => unreachable!("a transformer's parameters are vectors and matrices"),
            }
        }
        found
    }

    /// Applies `change` to a matrix in its logical shape, `[inputs, outputs]`.
    pub fn change_matrix(
        &mut self,
        n: usize,
        form: Form,
        change: impl FnOnce(Tensor<2>) -> Tensor<2>,
    ) {
        self.matrices[n] = matrix_of(change(self.matrices[n].val().detach()), form.turned);
    }

    /// Removes the first `matrices` matrices and the first `vectors` vectors, and returns them.
    pub fn take(&mut self, matrices: usize, vectors: usize) -> (Vec<Tensor<2>>, Vec<Tensor<1>>) {
        let matrices = self.matrices.drain(..matrices).map(|m| m.val().detach()).collect();
        (matrices, self.vectors.drain(..vectors).map(|v| v.val().detach()).collect())
    }
}

/// A copy of a tensor whose elements are stored contiguously in the order of its shape.
pub fn laid<const D: usize>(t: Tensor<D>) -> Tensor<D> {
    let (device, dtype) = (t.device(), t.dtype());
    Tensor::from_data(t.into_data(), (&device, dtype))
}

fn matrix_of(matrix: Tensor<2>, turned: bool) -> Param<Tensor<2>> {
    if !turned {
        return Param::from_tensor(laid(matrix));
    }
    // As in burn for this layout, the matrix is stored by columns and used through a transposed
    // view.
    Param::from_tensor(laid(matrix.transpose()).transpose())
}

/// The parameters of a network, in the order in which its layers take them.
pub struct Layers<'a> {
    parameters: &'a Parameters,
    next: [Cell<usize>; 3],
    /// The variant of the network.
    pub form: Form,
}

impl<'a> Layers<'a> {
    /// Starts at the first parameter of each rank.
    pub fn new(parameters: &'a Parameters, form: Form) -> Layers<'a> {
        Layers { parameters, next: Default::default(), form }
    }

    fn turn(&self, kind: usize) -> usize {
        self.next[kind].replace(self.next[kind].get() + 1)
    }

    /// The next vector.
    pub fn vector(&self) -> Tensor<1> {
        self.parameters.vectors[self.turn(0)].val()
    }

    /// The next matrix.
    pub fn matrix(&self) -> Tensor<2> {
        self.parameters.matrices[self.turn(1)].val()
    }

    /// The next filter of a convolution.
    pub fn filter(&self) -> Tensor<4> {
        self.parameters.filters[self.turn(2)].val()
    }

    /// burn's LSTM layer, in the variant that uses it.
    pub fn lstm(&self) -> Option<&'a Lstm> {
        self.parameters.lstm.as_ref()
    }

    /// x · weight + bias.
    pub fn affine<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        linear(x, self.matrix(), Some(self.vector()))
    }

    /// Layer norm of the rows.
    pub fn norm<const D: usize>(&self, x: Tensor<D>, epsilon: f64) -> Tensor<D> {
        layer_norm(x, self.vector(), Some(self.vector()), epsilon)
    }

    /// Attention; queries, keys and values are `[B, T, C]` each.
    pub fn attention(&self, [q, k, v]: [Tensor<3>; 3], heads: usize, hidden: &Hidden) -> Tensor<3> {
        let [b, t, c] = q.dims();
        let [q, k, v] = [q, k, v].map(|x| x.reshape([b, t, heads, c / heads]).swap_dims(1, 2));
        let mixed = if self.form.flash {
            let options = AttentionModuleOptions { is_causal: hidden.causal, ..Default::default() };
            let mask = (!hidden.causal).then(|| hidden.mask.clone().expand([b, heads, t, t]));
            attention(q, k, v, mask, None, options)
        } else {
            let scale = 1.0 / ((c / heads) as f64).sqrt();
            let scores = (q * scale).matmul(k.swap_dims(2, 3));
            let mask = hidden.mask.clone().expand([b, heads, t, t]);
            softmax(scores.mask_fill(mask, f32::NEG_INFINITY), 3).matmul(v)
        };
        mixed.swap_dims(1, 2).reshape([b, t, c])
    }
}

/// The pairs of tokens that attention masks.
#[derive(Clone, Debug)]
pub struct Hidden {
    /// True at masked pairs, `[1, 1, T, T]` or `[B, 1, 1, T]`.
    pub mask: Tensor<4, Bool>,
    /// The masked pairs are exactly those of a token and a later token.
    pub causal: bool,
}
