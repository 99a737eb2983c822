//! Programs to and from version 1.
//!
//! Reading rebuilds the program and checks every number, and the core verifier checks the result.
//! No value of a file is used unchecked.

use super as v1;
use super::literals::{self, Literals};
use crate::format::container::damaged;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use wengert_core::dim::Product;
use wengert_core::graph::{
    Body, Equation, Function, Input, InputRole, Output, OutputRole, Program, Region, ValueId,
};
use wengert_core::op::{Attribute, Op};
use wengert_core::{
    Diagnostic, Dim, IdVec, LocationId, LocationTable, Mesh, Result, Scalar, TensorType,
};

/// Deepest nesting of regions and lists of attributes, the same as in text.
const MAX_DEPTH: usize = wengert_core::text::cursor::MAX_DEPTH as usize;

/// The record of a program, and the contents of section `literals`.
pub fn to_record(program: &Program) -> (v1::Program, Vec<u8>) {
    let mut writer = Writer::default();
    let functions = program
        .functions()
        .iter()
        .map(|function| v1::Function {
            name: function.name.clone(),
            inputs: function
                .inputs
                .iter()
                .map(|input| v1::Input {
                    name: input.name.clone(),
                    role: input.role.name().into(),
                    location: input.location.0,
                })
                .collect(),
            outputs: function
                .outputs
                .iter()
                .map(|output| v1::Output {
                    name: output.name.clone(),
                    role: output_role(output.role).into(),
                })
                .collect(),
            body: writer.body(&function.body),
        })
        .collect();
    (v1::Program { functions, bodies: writer.bodies }, writer.literals)
}

const fn output_role(role: OutputRole) -> &'static str {
    match role {
        OutputRole::Output => "output",
        OutputRole::State => "state",
    }
}

#[derive(Default)]
struct Writer {
    bodies: Vec<v1::Body>,
    /// Numbers of the bodies of called functions, by the address of their body.
    called: HashMap<usize, u32>,
    literals: Vec<u8>,
}

impl Writer {
    /// Writes a body after the bodies within it, and its literals after theirs, since literals
    /// are read in the order of bodies. Returns its number.
    fn body(&mut self, body: &Body) -> u32 {
        let numbers = |values: &[ValueId]| values.iter().map(|v| v.0).collect();
        let regions: Vec<Vec<u32>> = body
            .equations
            .iter()
            .map(|equation| match equation.op.callee() {
                Some(_) => equation.regions.iter().map(|region| self.called(region)).collect(),
                None => equation.regions.iter().map(|region| self.body(region)).collect(),
            })
            .collect();
        let equations = body
            .equations
            .iter()
            .zip(regions)
            .map(|(equation, regions)| v1::Equation {
                op: equation.op.name().into(),
                attributes: equation
                    .op
                    .attributes()
                    .iter()
                    .map(|(name, attribute)| {
                        let mut nodes = Vec::new();
                        self.attribute(attribute, &mut nodes);
                        (name.to_string(), nodes)
                    })
                    .collect(),
                operands: numbers(&equation.operands),
                results: numbers(&equation.results),
                regions,
                location: equation.location.0,
            })
            .collect();
        let record = v1::Body {
            values: body.values.iter().map(|(_, ty)| type_to(ty)).collect(),
            inputs: numbers(&body.inputs),
            equations,
            outputs: numbers(&body.outputs),
        };
        self.bodies.push(record);
        self.bodies.len() as u32 - 1
    }

    /// Writes a called function at its first call only.
    fn called(&mut self, region: &Region) -> u32 {
        if let Some(number) = self.called.get(&region.address()) {
            return *number;
        }
        let number = self.body(region);
        self.called.insert(region.address(), number);
        number
    }

    fn attribute(&mut self, attribute: &Attribute, nodes: &mut Vec<v1::Node>) {
        nodes.push(match attribute {
            Attribute::Bool(value) => v1::Node::Bool(*value),
            Attribute::Dim(dim) => v1::Node::Dim(dim_to(dim)),
            Attribute::DType(dtype) => v1::Node::DType(dtype.name().into()),
            Attribute::Text(text) => v1::Node::Text(text.clone()),
            Attribute::Function(name) => v1::Node::Function(name.clone()),
            Attribute::Scalar(scalar) => {
                v1::Node::Scalar { dtype: scalar.dtype().name().into(), bits: scalar.bits() }
            }
            Attribute::Literal(literal) => {
                let (dtype, shape) = literals::put(&mut self.literals, literal);
                v1::Node::Literal { dtype, shape }
            }
            Attribute::List(items) => {
                nodes.push(v1::Node::List(items.len() as u32));
                items.iter().for_each(|item| self.attribute(item, nodes));
                return;
            }
        });
    }
}

fn type_to(ty: &TensorType) -> v1::Type {
    v1::Type { dtype: ty.dtype.name().into(), shape: ty.shape.iter().map(dim_to).collect() }
}

/// A product of variables is stored as its text, `B*T`.
fn dim_to(dim: &Dim) -> v1::Dim {
    let terms = dim.terms().iter();
    let terms = terms.map(|(product, coefficient)| (product.to_string(), *coefficient)).collect();
    v1::Dim { constant: dim.constant_term(), terms }
}

/// The program of a record; `literals` is the contents of that section, `locations` one table per
/// function.
pub fn from_record(
    record: v1::Program,
    literals: &[u8],
    locations: Vec<LocationTable>,
) -> Result<Program> {
    let mut reader = Reader {
        literals: Literals::new(literals),
        bodies: Vec::with_capacity(record.bodies.len()),
    };
    for (number, body) in record.bodies.into_iter().enumerate() {
        let body =
            reader.body(body).map_err(|error| error.context(format_args!("body {number}")))?;
        reader.bodies.push(body);
    }
    reader.literals.end()?;
    let mut program = Program::new();
    for (function, locations) in record.functions.into_iter().zip(locations) {
        let context = format!("@{}", function.name);
        let function =
            reader.function(function, locations).map_err(|error| error.context(context))?;
        program.add(function)?;
    }
    if let Some(number) = reader.bodies.iter().position(|body| body.used == Use::Not) {
        return Err(damaged(format!("body {number} belongs to no function")));
    }
    Ok(program)
}

struct Reader<'a> {
    literals: Literals<'a>,
    /// Bodies with the depth of their regions and the greatest location they use.
    bodies: Vec<Built>,
}

/// Uses of a body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Not used yet.
    Not,
    /// Used by one function, or by one equation.
    Own,
    /// Used by any number of calls.
    Called,
}

struct Built {
    used: Use,
    body: Region,
    depth: usize,
    greatest_location: u32,
}

impl Reader<'_> {
    /// Marks a body as used in this way, and returns it.
    fn body_of(&mut self, number: u32, used: Use) -> Result<&Built> {
        match self.bodies.get_mut(number as usize) {
            Some(body)
                if body.used == Use::Not || (body.used, used) == (Use::Called, Use::Called) =>
            {
                body.used = used;
                Ok(body)
            }
            _ => Err(damaged(format!("body {number} is not there, or is used twice"))),
        }
    }

    fn function(&mut self, record: v1::Function, locations: LocationTable) -> Result<Function> {
        let built = self.body_of(record.body, Use::Own)?;
        let (body, greatest_location) = (built.body.to_body(), built.greatest_location);
        let known = |location: u32| match (location as usize) < locations.len() {
            true => Ok(LocationId(location)),
            false => Err(damaged(format!("there is no location {location}"))),
        };
        known(greatest_location)?;
        let inputs = record.inputs.into_iter().map(|input| {
            let role = InputRole::ALL.into_iter().find(|role| role.name() == input.role);
            let role = role.ok_or_else(|| damaged(format!("unknown role `{}`", input.role)))?;
            Ok(Input { name: input.name, role, location: known(input.location)? })
        });
        let outputs = record.outputs.into_iter().map(|output| {
            let role = [OutputRole::Output, OutputRole::State]
                .into_iter()
                .find(|role| output_role(*role) == output.role);
            let role = role.ok_or_else(|| damaged(format!("unknown role `{}`", output.role)))?;
            Ok(Output { name: output.name, role })
        });
        Ok(Function {
            name: record.name,
            mesh: Mesh::default(),
            inputs: inputs.collect::<Result<_>>()?,
            outputs: outputs.collect::<Result<_>>()?,
            body,
            locations,
        })
    }

    fn body(&mut self, record: v1::Body) -> Result<Built> {
        let values: IdVec<ValueId, TensorType> =
            record.values.into_iter().map(type_from).collect::<Result<_>>()?;
        let count = values.len();
        let numbers = |numbers: Vec<u32>| {
            numbers
                .into_iter()
                .map(|number| match (number as usize) < count {
                    true => Ok(ValueId(number)),
                    false => Err(damaged(format!("there is no value %{number}"))),
                })
                .collect::<Result<Vec<_>>>()
        };
        let (mut depth, mut greatest_location) = (0, 0);
        let mut equations = Vec::with_capacity(record.equations.len());
        for (i, equation) in record.equations.into_iter().enumerate() {
            let context = format!("equation {i} (`{}`)", equation.op);
            let mut regions = Vec::with_capacity(equation.regions.len());
            let used = if equation.op == "call" { Use::Called } else { Use::Own };
            for number in equation.regions {
                let region = self.body_of(number, used)?;
                depth = depth.max(region.depth + 1);
                greatest_location = greatest_location.max(region.greatest_location);
                regions.push(region.body.clone());
            }
            greatest_location = greatest_location.max(equation.location);
            let op = self.op(&equation.op, equation.attributes).map_err(|e| e.context(&context))?;
            equations.push(Equation {
                op,
                operands: numbers(equation.operands).map_err(|e| e.context(&context))?,
                results: numbers(equation.results).map_err(|e| e.context(&context))?,
                regions,
                location: LocationId(equation.location),
            });
        }
        if depth > MAX_DEPTH {
            return Err(damaged(format!("regions nest deeper than {MAX_DEPTH} levels")));
        }
        let (inputs, outputs) = (numbers(record.inputs)?, numbers(record.outputs)?);
        let body = Body { values, inputs, equations, outputs }.into();
        Ok(Built { used: Use::Not, body, depth, greatest_location })
    }

    fn op(&mut self, name: &str, attributes: Vec<(String, Vec<v1::Node>)>) -> Result<Op> {
        let mut map = BTreeMap::new();
        for (name, nodes) in attributes {
            let mut nodes = nodes.into_iter();
            let attribute = self
                .attribute(&mut nodes, 0)
                .map_err(|e| e.context(format_args!("attribute `{name}`")))?;
            if nodes.next().is_some() {
                return Err(damaged(format!("attribute `{name}` has nodes behind its end")));
            }
            if map.insert(name.clone(), attribute).is_some() {
                return Err(damaged(format!("attribute `{name}` is given twice")));
            }
        }
        Op::from_attributes(name, map)
    }

    fn attribute(
        &mut self,
        nodes: &mut std::vec::IntoIter<v1::Node>,
        depth: usize,
    ) -> Result<Attribute> {
        if depth > MAX_DEPTH {
            return Err(damaged(format!("lists nest deeper than {MAX_DEPTH} levels")));
        }
        let node = nodes.next().ok_or_else(|| damaged("a list is cut short"))?;
        Ok(match node {
            v1::Node::Bool(value) => Attribute::Bool(value),
            v1::Node::Dim(dim) => Attribute::Dim(dim_from(dim)?),
            v1::Node::DType(name) => Attribute::DType(name.parse()?),
            v1::Node::Text(text) => Attribute::Text(text),
            v1::Node::Function(name) => Attribute::Function(name),
            v1::Node::Scalar { dtype, bits } => {
                let scalar = Scalar::from_bits(dtype.parse()?, bits);
                if scalar.bits() != bits {
                    return Err(damaged(format!("{bits:#x} are not the bits of one {dtype}")));
                }
                Attribute::Scalar(scalar)
            }
            v1::Node::Literal { dtype, shape } => {
                Attribute::Literal(self.literals.take(&dtype, &shape)?)
            }
            v1::Node::List(count) => {
                // Each item has at least one node, so there are at most as many items as nodes.
                if count as usize > nodes.len() {
                    return Err(damaged(format!(
                        "a list of {count} has only {} nodes",
                        nodes.len()
                    )));
                }
                let items = (0..count).map(|_| self.attribute(nodes, depth + 1));
                Attribute::List(items.collect::<Result<_>>()?)
            }
        })
    }
}

fn type_from(record: v1::Type) -> Result<TensorType> {
    let dtype = record.dtype.parse()?;
    Ok(TensorType::of(dtype, record.shape.into_iter().map(dim_from).collect::<Result<_>>()?))
}

/// Accepts only the normal form, so that equal dimensions have equal bytes. Names must be valid
/// in text.
fn dim_from(record: v1::Dim) -> Result<Dim> {
    let product = |text: &str| Product::of(text.split('*').map(Arc::from));
    let terms = record.terms.iter().map(|(text, coefficient)| (product(text), *coefficient));
    let dim = Dim::polynomial(record.constant, terms).filter(|dim| {
        dim.terms()
            .iter()
            .map(|(p, c)| (p.to_string(), *c))
            .eq(record.terms.iter().map(|(text, c)| (text.clone(), *c)))
            && dim
                .terms()
                .iter()
                .all(|(p, _)| p.factors().iter().all(|name| wengert_core::text::is_name(name)))
    });
    dim.ok_or_else(|| Diagnostic::new("a dimension is not in normal form"))
}
