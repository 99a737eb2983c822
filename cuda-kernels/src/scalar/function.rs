//! Elementary functions, with the bits of [`wengert_core::math`].
//!
//! A function is a straight-line program of exact instructions ([`math::program`]). Short
//! programs are inlined, where several of them are in flight together. Long ones, which work in
//! f64 or have many selections, become a function of the module, so that a kernel that computes
//! eight elements side by side still fits the instruction cache. Where a shorter program has the
//! same bits for operands of moderate size ([`math::moderate`]), it comes first, and a branch that
//! is rarely taken computes the others.

use super::{Functions, constant, immediate, value_type};
use crate::ptx::{Binary, Code, Compare, Function, Inst, Reg, Unary};
use wengert_core::math::{self, MathProgram};
use wengert_core::nest::{Instr, ScalarOp};
use wengert_core::{DType, Diagnostic, Id, Result};

/// Maximum number of instructions of an inlined program.
const INLINE: usize = 64;

/// `op` of the operands.
pub(super) fn emit(
    code: &mut Code,
    functions: &mut Functions,
    op: ScalarOp,
    dtype: DType,
    operands: &[Reg],
) -> Result<Reg> {
    let Some(program) = math::program(op, dtype) else {
        return Err(Diagnostic::new(format!("`{}` of {dtype} has no program for GPUs", op.name()))
            .help("compute it in f32, or run the program on the CPU"));
    };
    if let Some(mut results) = moderate(code, functions, op, dtype, operands)? {
        return Ok(results.remove(0));
    }
    if program.size() <= INLINE {
        return inline(code, functions, program, operands);
    }
    let (ty, name) = (value_type(dtype), format!("wengert_{}_{dtype}", op.name()));
    if !functions.contains_key(&name) {
        let mut body = Code::new();
        let parameters: Vec<Reg> = operands.iter().map(|_| body.reg_of(ty)).collect();
        let result = inline(&mut body, functions, program, &parameters)?;
        let function = Function {
            name: name.clone(),
            remark: format!("{} of {dtype}, as everywhere.", op.name()),
            parameters: parameters.iter().map(|r| (ty, *r)).collect(),
            results: vec![(ty, result)],
            code: body,
        };
        functions.insert(name.clone(), function);
    }
    let result = code.reg_of(ty);
    let arguments = operands.iter().map(Into::into).collect();
    code.push(Inst::Call { function: name, ty, result, arguments });
    Ok(result)
}

/// The results for several operands, if the function has a shorter program for operands of
/// moderate size.
///
/// They have one branch in common, which computes all of them by the whole program if one operand
/// is not moderate. A branch for each would keep the instructions of one apart from the next.
pub(crate) fn moderate(
    code: &mut Code,
    functions: &mut Functions,
    op: ScalarOp,
    dtype: DType,
    operands: &[Reg],
) -> Result<Option<Vec<Reg>>> {
    let (Some(short), Some(program)) = (math::moderate(op, dtype), math::program(op, dtype)) else {
        return Ok(None);
    };
    let ty = value_type(dtype);
    let results: Vec<Reg> = operands
        .iter()
        .map(|x| inline(code, functions, short.program, &[*x]))
        .collect::<Result<_>>()?;
    let sizes: Vec<Reg> = operands.iter().map(|x| code.unary(Unary::Abs, ty, *x)).collect();
    // A NaN stays one.
    let largest = sizes.into_iter().reduce(|x, y| code.binary(Binary::MaxNan, ty, x, y));
    let largest = largest.expect("there is an operand");
    // False for a NaN.
    let all = code.compare(Compare::Le, ty, largest, immediate(short.bound));
    let end = code.label();
    code.branch_if(all, end);
    for (x, result) in operands.iter().zip(&results) {
        let whole = inline(code, functions, program, &[*x])?;
        code.assign(ty, *result, whole);
    }
    code.place(end);
    Ok(Some(results))
}

/// About how many instructions of the machine one of these is.
pub(super) fn cost(op: ScalarOp, dtype: DType) -> usize {
    if let Some(short) = math::moderate(op, dtype) {
        return short.program.size() + 3;
    }
    math::program(op, dtype).map_or(1, |p| p.size().min(INLINE))
}

/// The instructions of a program.
fn inline(
    code: &mut Code,
    functions: &mut Functions,
    program: &MathProgram,
    operands: &[Reg],
) -> Result<Reg> {
    let mut registers: Vec<Option<Reg>> = operands.iter().map(|r| Some(*r)).collect();
    registers.resize(program.registers.len(), None);
    let is_one = |r: &wengert_core::nest::Reg| {
        program.body.iter().any(|instr| {
            matches!(instr, Instr::Const { result, value } if result == r && value.to_f64() == 1.0)
        })
    };
    for instr in &program.body {
        match instr {
            Instr::Scalar { result, op, operands } => {
                let given: Vec<Reg> = operands
                    .iter()
                    .map(|r| registers[r.index()].expect("a program is straight-line"))
                    .collect();
                let dtypes: Vec<DType> = operands.iter().map(|r| program.registers[*r]).collect();
                let dtype = program.registers[*result];
                // It has the bits of the division.
                let value = match op {
                    ScalarOp::Div if dtype.is_float() && is_one(&operands[0]) => {
                        code.unary(Unary::Reciprocal, value_type(dtype), given[1])
                    }
                    _ => super::emit(code, functions, *op, &dtypes, dtype, &given)?,
                };
                registers[result.index()] = Some(value);
            }
            Instr::Const { result, value } => {
                registers[result.index()] = Some(constant(code, *value))
            }
            _ => unreachable!("programs of functions have scalar instructions and constants only"),
        }
    }
    Ok(registers[program.result.index()].expect("a program defines its result"))
}
