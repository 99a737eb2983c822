//! The inputs and outputs of functions under a policy: the dtypes of parameters and results, and
//! the names in a program to which a policy refers.

use super::flow::{Port, Stored};
use super::is_initializer;
use super::policy::{Dtypes, Precision};
use glob::Pattern;
use std::collections::BTreeSet;
use wengert_core::graph::{Function, InputRole, OutputRole, Program};
use wengert_core::{DType, Diagnostic, LocationId, Result, diagnostic};

/// Most names that a help lists.
const SHOWN: usize = 5;

impl Precision {
    /// The policy for a program: it knows the parameters of all its functions. A training step
    /// alone does not tell them from other states.
    ///
    /// # Errors
    /// A pattern matches no function, variable or parameter of the program; the policy has a dtype
    /// of parameters and the program has none of f32; a function that the policy is not for takes
    /// such a parameter; an equation is kept of a function that does not exist.
    pub fn for_program(&self, program: &Program) -> Result<Self> {
        let names: BTreeSet<&str> = program.functions().iter().map(|f| f.name.as_str()).collect();
        let functions = || {
            let known: Vec<String> =
                program.functions().iter().map(|function| format!("@{}", function.name)).collect();
            format!("functions of the program are {}", known.join(", "))
        };
        if let Some(pattern) = unmatched(&self.functions, &names) {
            return Err(diagnostic!("no function matches `{pattern}`").help(functions()));
        }
        if let Some(name) = self.equations.keys().find(|name| !names.contains(name.as_str())) {
            return Err(diagnostic!("there is no function `@{name}`").help(functions()));
        }
        let variables = variables(program, |_| true);
        if let Some(pattern) = unmatched(&self.paths, &variables) {
            return Err(diagnostic!("no variable matches `{pattern}`")
                .help(listed("variables of the program are", &variables)));
        }
        let Dtypes { param_dtype, .. } = self.dtypes;
        if param_dtype == DType::F32 {
            return match self.params.first().or(self.kept_params.first()) {
                None => Ok(self.clone()),
                Some(pattern) => Err(diagnostic!(
                    "`{pattern}` names parameters, and the policy has no dtype of parameters"
                )
                .help("give it one: `param_dtype`, or `--param-dtype`")),
            };
        }
        let params = self.params_of(program)?;
        for function in program.functions() {
            if self.is_for(&function.name) || is_initializer(function) {
                continue;
            }
            if let Some(input) = function.inputs.iter().find(|i| params.contains(i.name.as_str())) {
                return Err(diagnostic!(
                    "parameter `{}` would be {param_dtype}, but @{} takes it, too, and the policy \
                     is not for that function",
                    input.name,
                    function.name
                )
                .help(
                    "a variable has one dtype in a program: let the policy match all functions \
                     that take it, or give parameters no dtype",
                ));
            }
        }
        let exact = |name: &&str| {
            Pattern::new(&Pattern::escape(name)).expect("an escaped name is a pattern")
        };
        let mut policy = Precision { kept_params: vec![], ..self.clone() };
        policy.params = params.iter().map(exact).collect();
        if params.is_empty() {
            policy.dtypes.param_dtype = DType::F32;
        }
        Ok(policy)
    }

    /// Key paths of the parameters of a program that are stored in the dtype of the policy.
    fn params_of<'a>(&self, program: &'a Program) -> Result<BTreeSet<&'a str>> {
        let param_dtype = self.dtypes.param_dtype;
        let all = variables(program, |ty| ty == DType::F32);
        if let Some(pattern) = unmatched(&self.params, &all) {
            return Err(diagnostic!("no variable of f32 matches `{pattern}`")
                .help(listed("variables of f32 are", &all)));
        }
        let mut params = BTreeSet::new();
        for function in program.functions() {
            for (n, input) in function.inputs.iter().enumerate() {
                let is_f32 = function.input_type(n).dtype == DType::F32;
                if is_f32 && self.is_param(&input.name, input.role) {
                    params.insert(input.name.as_str());
                }
            }
        }
        if params.is_empty() {
            let help = match all.is_empty() {
                true => "it has no variables of f32".to_owned(),
                false => format!(
                    "no function takes a variable as a parameter; say which are, by `param_path` \
                     or `--param-path`: {}",
                    listed("variables of f32 are", &all)
                ),
            };
            let message = format!("the program has no parameters to be stored in {param_dtype}");
            return Err(Diagnostic::new(message).help(help));
        }
        if let Some(pattern) = unmatched(&self.kept_params, &params) {
            return Err(diagnostic!("no parameter matches `{pattern}`")
                .help(listed("parameters of the program are", &params)));
        }
        params.retain(|name| !self.kept_params.iter().any(|pattern| pattern.matches(name)));
        Ok(params)
    }

    /// Whether a variable that a function takes in a role is a parameter.
    fn is_param(&self, name: &str, role: InputRole) -> bool {
        match self.params.is_empty() {
            true => role == InputRole::Param,
            false => is_variable(role) && self.params.iter().any(|of| of.matches(name)),
        }
    }

    /// The dtype in which a variable of f32 is stored, if it is not f32.
    fn stored(&self, name: &str, role: InputRole) -> Option<DType> {
        let dtype = self.dtypes.param_dtype;
        let is_stored = dtype != DType::F32
            && self.is_param(name, role)
            && !self.kept_params.iter().any(|pattern| pattern.matches(name));
        is_stored.then_some(dtype)
    }

    /// The policy with its dtype of parameters only.
    pub(super) fn params_only(&self) -> Self {
        let Dtypes { param_dtype, .. } = self.dtypes;
        let dtypes = Dtypes { param_dtype, ..Dtypes::default() };
        let equations = Default::default();
        Precision { dtypes, equations, ..self.clone() }
    }

    /// Whether an input or output of a function is stored in the dtype of parameters.
    pub(super) fn has_params(&self, function: &Function) -> bool {
        let (inputs, outputs) = self.params_only().ports(function);
        inputs.iter().chain(&outputs).any(|port| port.stored.is_some())
    }

    /// Whether the policy gives a result of a function a dtype.
    pub(super) fn has_results(&self, function: &Function) -> bool {
        self.dtypes.output_dtype != DType::F32
            && function.outputs.iter().enumerate().any(|(n, output)| {
                output.role == OutputRole::Output && function.output_type(n).dtype == DType::F32
            })
    }

    /// The inputs and outputs of a function under this policy.
    pub(super) fn ports(&self, function: &Function) -> (Vec<Port>, Vec<Port>) {
        let port = |name: &str, is_variable: bool| Port {
            is_variable,
            is_kept: is_variable && self.paths.iter().any(|pattern| pattern.matches(name)),
            stored: None,
        };
        let stored = |dtype: DType, to: Option<DType>, location: LocationId| {
            to.filter(|_| dtype == DType::F32).map(|dtype| Stored { dtype, location })
        };
        let input = |(n, input): (usize, &wengert_core::graph::Input)| Port {
            stored: stored(
                function.input_type(n).dtype,
                self.stored(&input.name, input.role),
                input.location,
            ),
            ..port(&input.name, is_variable(input.role))
        };
        let output = |(n, output): (usize, &wengert_core::graph::Output)| {
            let is_state = output.role == OutputRole::State;
            let to = match is_state {
                true => self.stored(&output.name, InputRole::State),
                false => Some(self.dtypes.output_dtype).filter(|dtype| *dtype != DType::F32),
            };
            let location = function.body.equations.last().map(|equation| equation.location);
            let location = location.unwrap_or(LocationId(0));
            Port {
                stored: stored(function.output_type(n).dtype, to, location),
                ..port(&output.name, is_state)
            }
        };
        (
            function.inputs.iter().enumerate().map(input).collect(),
            function.outputs.iter().enumerate().map(output).collect(),
        )
    }
}

fn is_variable(role: InputRole) -> bool {
    matches!(role, InputRole::Param | InputRole::State)
}

/// Key paths of the variables that functions take, of some dtypes.
fn variables(program: &Program, wanted: impl Fn(DType) -> bool) -> BTreeSet<&str> {
    let of = |function: &Function, n: usize| wanted(function.input_type(n).dtype);
    program
        .functions()
        .iter()
        .flat_map(|function| {
            let taken = function.inputs.iter().enumerate();
            taken.filter(|(n, input)| is_variable(input.role) && of(function, *n))
        })
        .map(|(_, input)| input.name.as_str())
        .collect()
}

/// The first pattern that matches no name.
fn unmatched<'a>(patterns: &'a [Pattern], names: &BTreeSet<&str>) -> Option<&'a Pattern> {
    patterns.iter().find(|pattern| !names.iter().any(|name| pattern.matches(name)))
}

/// The first names of a list, for a help.
fn listed(before: &str, names: &BTreeSet<&str>) -> String {
    if names.is_empty() {
        return "the program has no variables".into();
    }
    let few: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    format!("{before} {}", few.join(", "))
}
