//! Inputs and outputs of a compiled function, from a program or from a plan in a file.

use wengert_core::graph::{Function, InputRole, OutputRole};
use wengert_core::plan::{Plan, ValueId};
use wengert_core::{DType, TensorType};

/// Names, roles and types of a function without dimension variables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    /// Name of the function.
    pub name: String,
    /// Inputs, variables included.
    pub inputs: Vec<InputPort>,
    /// Outputs, variables included.
    pub outputs: Vec<OutputPort>,
}

/// An input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InputPort {
    /// Its name; of a variable, its key path.
    pub name: String,
    /// Its role: whether the caller or the session provides it.
    pub role: InputRole,
    /// Dtype and extents.
    pub ty: TensorType,
}

/// An output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutputPort {
    /// Its name; of a variable, its key path.
    pub name: String,
    /// Its role: whether the caller or the session receives it.
    pub role: OutputRole,
    /// Dtype and extents.
    pub ty: TensorType,
}

impl InputPort {
    /// True if the session provides it.
    pub fn is_variable(&self) -> bool {
        is_variable(self.role)
    }
}

/// True for inputs that the session provides.
pub(crate) fn is_variable(role: InputRole) -> bool {
    matches!(role, InputRole::Param | InputRole::State)
}

impl Signature {
    /// The key paths of the variables that a run reads, then of those that it replaces or creates.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        let read = self.inputs.iter().filter(|input| input.is_variable()).map(|i| i.name.as_str());
        let replaced = self.outputs.iter().filter(|output| output.role == OutputRole::State);
        read.chain(replaced.map(|output| output.name.as_str()))
    }

    /// Whether a run replaces or creates variables.
    pub fn replaces_variables(&self) -> bool {
        self.outputs.iter().any(|output| output.role == OutputRole::State)
    }

    /// The signature of a function. On several ranks it is that of one: types name no axes of the
    /// mesh.
    pub fn of_function(function: &Function) -> Signature {
        let inputs = function.inputs.iter().enumerate().map(|(i, input)| InputPort {
            name: input.name.clone(),
            role: input.role,
            ty: function.input_type(i).invariant(),
        });
        let outputs = function.outputs.iter().enumerate().map(|(i, output)| OutputPort {
            name: output.name.clone(),
            role: output.role,
            ty: function.output_type(i).invariant(),
        });
        Signature {
            name: function.name.clone(),
            inputs: inputs.collect(),
            outputs: outputs.collect(),
        }
    }

    /// The signature of a verified plan: its inputs and the variables that it reads, in the
    /// plan's order; its outputs and the variables that it replaces or creates.
    pub fn of_plan(plan: &Plan) -> Signature {
        let ty = |dtype: DType, shape: &[usize]| TensorType::new(dtype, shape.iter().copied());
        let dtype = |value: ValueId| plan.values[value].dtype;
        let given = plan.inputs.iter().map(|input| InputPort {
            name: input.name.clone(),
            role: input.role,
            ty: ty(dtype(input.value), &plan.values[input.value].shape),
        });
        let read = plan.variables.iter().filter_map(|variable| {
            let before = variable.before?;
            Some(InputPort {
                name: variable.name.clone(),
                role: if before == variable.after { InputRole::Param } else { InputRole::State },
                ty: ty(variable.dtype, &variable.shape),
            })
        });
        let returned = plan.outputs.iter().map(|output| OutputPort {
            name: output.name.clone(),
            role: OutputRole::Output,
            ty: ty(dtype(output.value), &output.shape),
        });
        let written = plan.variables.iter().filter(|v| v.before != Some(v.after)).map(|variable| {
            OutputPort {
                name: variable.name.clone(),
                role: OutputRole::State,
                ty: ty(variable.dtype, &variable.shape),
            }
        });
        Signature {
            name: plan.function.clone(),
            inputs: given.chain(read).collect(),
            outputs: returned.chain(written).collect(),
        }
    }
}
