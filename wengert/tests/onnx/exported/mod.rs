//! Functions as ONNX models: imported again, and run in ONNX Runtime, they give the same results.

mod networks;
mod programs;

use bytes::Bytes;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use wengert::core::graph::{Function, InputRole};
use wengert::core::{Binding, Diagnostic, Literal, Result, interpret};
use wengert::onnx::{ExportOptions, Options};
use wengert_onnx::{Imported, read, write, write_tensor};

/// An exported function with inputs and results.
struct Exported<'a> {
    function: &'a Function,
    model: Vec<u8>,
    /// For each input.
    given: Vec<Literal>,
    /// For each output, by the interpreter.
    wanted: Vec<Literal>,
}

impl<'a> Exported<'a> {
    /// The function with these values of its inputs, of which parameters and state go into the
    /// model. Errors: it is refused, or cannot be interpreted.
    fn new(
        function: &'a Function,
        binding: &Binding,
        given: Vec<Literal>,
        opset: i64,
    ) -> Result<Self> {
        let parameters: BTreeMap<String, Literal> = function
            .inputs
            .iter()
            .zip(&given)
            .filter(|(input, _)| is_variable(input.role))
            .map(|(input, value)| (input.name.clone(), value.clone()))
            .collect();
        let options = ExportOptions { opset, ..ExportOptions::default() };
        let model = write(function, &parameters, &options)?;
        let wanted = interpret::run(&function.bind(binding)?, &given)?;
        Ok(Exported { function, model, given, wanted })
    }

    /// Whether the model has such a node.
    fn has(&self, node: &str) -> bool {
        let field = [&[0x22, node.len() as u8], node.as_bytes()].concat();
        self.model.windows(field.len()).any(|bytes| bytes == field)
    }

    /// The model, imported.
    fn imported(&self) -> Result<Imported> {
        let alone = |path: &Path| Err(Diagnostic::new(path.display().to_string()));
        read("m.onnx", Bytes::from(self.model.clone()), &alone, &Options::default())
    }

    /// The results of the imported model.
    fn again(&self, imported: &Imported, binding: &Binding) -> Result<Vec<Literal>> {
        let known = &imported.program.functions()[0];
        let operand = |name: &String| {
            let original = imported.names.get(name).unwrap_or(name);
            self.given[self.function.input_index(original).unwrap()].clone()
        };
        let given: Vec<Literal> = known.inputs.iter().map(|input| operand(&input.name)).collect();
        interpret::run(&known.bind(binding)?, &given)
    }

    /// Writes the case as ONNX's tests have them.
    fn keep(&self, folder: &Path) {
        let data = folder.join("test_data_set_0");
        std::fs::create_dir_all(&data).unwrap();
        std::fs::write(folder.join("model.onnx"), &self.model).unwrap();
        let inputs = self.function.inputs.iter().zip(&self.given);
        let inputs = inputs
            .filter(|(input, _)| !is_variable(input.role))
            .map(|(input, value)| (&input.name, value));
        let outputs = self.function.outputs.iter().map(|output| &output.name).zip(&self.wanted);
        let all: [(&str, Vec<(&String, &Literal)>); 2] =
            [("input", inputs.collect()), ("output", outputs.collect())];
        for (kind, values) in all {
            for (number, (name, value)) in values.into_iter().enumerate() {
                let path = data.join(format!("{kind}_{number}.pb"));
                std::fs::write(path, write_tensor(name, value)).unwrap();
            }
        }
    }
}

fn is_variable(role: InputRole) -> bool {
    matches!(role, InputRole::Param | InputRole::State)
}

/// An empty folder for cases of this name.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("exported").join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).unwrap();
    }
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
