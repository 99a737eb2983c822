//! Implementations of a plan's products: cuBLASLt where it gives the plan's bits, else kernels of
//! this crate.

use super::Options;
use crate::call;
use crate::driver::blas::{Alignment, Blas, Form, Operands, Prepared, Rules, Tuning, supports};
use crate::driver::{Address, Device};
use crate::lowered::{Choice, Question};
use wengert_core::Result;
use wengert_core::call::{Call, Gemm};

/// Prepared products, by their number in the lowered plan.
pub(super) struct Products {
    device: Device,
    /// The library, loaded at the first product that it may do.
    blas: Option<Blas>,
    rules: Rules,
    tuning: Tuning,
    autotune: bool,
    prepared: Vec<(Gemm, Prepared)>,
}

impl Products {
    /// No products yet.
    pub fn new(device: &Device, options: &Options) -> Products {
        Products {
            device: device.clone(),
            blas: None,
            rules: options.rules,
            tuning: options.tuning.clone(),
            autotune: options.autotune,
            prepared: Vec::new(),
        }
    }

    /// Known algorithms, including those measured here.
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// Decides how a call is done, and prepares a product that the library does.
    ///
    /// Errors: the library is missing, or fails. (A product that it cannot do is no error.)
    pub fn choose(&mut self, question: &Question) -> Result<Choice> {
        let (gemm, form) = match library_form(question, self.rules) {
            Ok(found) => found,
            Err(why) => return Ok(Choice::Kernels(why)),
        };
        let in_place = question.in_place.is_some();
        let blas = match self.blas.take() {
            Some(blas) => self.blas.insert(blas),
            None => self.blas.insert(self.device.blas()?),
        };
        let aligned = u32::try_from(question.alignment).expect("at most 256");
        let alignment = Alignment { lhs: aligned, rhs: aligned, out: aligned, bias: aligned };
        if self.autotune {
            measure(
                &self.device,
                blas,
                gemm,
                &form,
                &alignment,
                question.workspace,
                &mut self.tuning,
            )?;
        }
        match blas.prepare(&form, in_place, &alignment, question.workspace, &self.tuning)? {
            Err(why) => Ok(Choice::Kernels(why.to_string())),
            Ok(prepared) => {
                let left = prepared.form().map_or(gemm.addends, |form| form.left);
                self.prepared.push((gemm.clone(), prepared));
                Ok(Choice::Library(left))
            }
        }
    }

    /// Enqueues product number `number`.
    pub fn execute(&self, number: usize, arguments: &[Address], workspace: Address) -> Result<()> {
        let (gemm, prepared) = &self.prepared[number];
        let blas = self.blas.as_ref().expect("a product was prepared, so there is a library");
        Ok(blas.execute(prepared, &operands(gemm, arguments), workspace)?)
    }

    /// A line for each product.
    pub fn decisions(&self) -> impl Iterator<Item = String> + '_ {
        self.prepared.iter().map(|(_, p)| format!("{}: {}", p.problem(), p.algorithm().text))
    }
}

/// The product of a call and the form in which cuBLASLt computes it, or the reason why it does
/// not. This needs neither library nor device; the installed library may refuse the form.
fn library_form(question: &Question, rules: Rules) -> std::result::Result<(&Gemm, Form), String> {
    let gemm = call::library_product(&question.call).ok_or("cuBLASLt has no such call")?;
    if gemm.k == 0 {
        return Err("a sum of nothing is no product".into());
    }
    if call::reads_once(gemm) {
        return Err("there are few rows, and a kernel reads the matrix once".into());
    }
    let form = supports(gemm, rules, question.in_place.is_some()).map_err(|why| why.to_string())?;
    Ok((gemm, form))
}

/// The choices of a device whose library accepts every form that the rules permit. Plans are
/// lowered with it where no device is at hand.
pub fn library_by_rule(rules: Rules) -> impl FnMut(&Question) -> Result<Choice> {
    move |question| {
        Ok(match library_form(question, rules) {
            Ok((_, form)) => Choice::Library(form.left),
            Err(why) => Choice::Kernels(why),
        })
    }
}

/// The matrices' addresses, from the arguments of the call.
fn operands(gemm: &Gemm, arguments: &[Address]) -> Operands {
    let out = arguments[arguments.len() - 1];
    let bias = gemm.bias_argument().map_or(Address::default(), |n| arguments[n]);
    let residual = gemm.residual_argument().map_or(out, |n| arguments[n]);
    let scales = match gemm.scales {
        Some(_) => [arguments[2], arguments[3]],
        None => Default::default(),
    };
    Operands { lhs: arguments[0], rhs: arguments[1], residual, out, bias, scales }
}

/// Measures the algorithms of a product on memory of its own, unless it was measured before.
fn measure(
    device: &Device,
    blas: &Blas,
    gemm: &Gemm,
    form: &Form,
    alignment: &Alignment,
    workspace: u64,
    tuning: &mut Tuning,
) -> Result<()> {
    if tuning.get(&blas.key(&form.problem, alignment, workspace)).is_some() {
        return Ok(());
    }
    let call = Call::from(gemm.clone());
    let mut types = call.operands();
    types.extend(call.results());
    // The memory of an operand may be larger than its type says: it extends as far as its
    // strides.
    let reach = |m: &wengert_core::call::Matrix, rows: usize, columns: usize| {
        let last = (gemm.batch - 1) * m.batch + (rows - 1) * m.row + (columns - 1) * m.column;
        (last as u64 + 1) * gemm.operand.size() as u64
    };
    let mut memories = Vec::new();
    for (n, ty) in types.iter().enumerate() {
        let bytes = match n {
            0 => reach(&gemm.lhs, gemm.m, gemm.k),
            1 => reach(&gemm.rhs, gemm.k, gemm.n),
            n if n + 1 == types.len() => {
                (gemm.batch * gemm.m * gemm.out_row() * gemm.result.size()) as u64
            }
            _ => ty.bytes().expect("verified extents fit") as u64,
        };
        let memory = device.allocate(bytes, "the matrices of a measurement")?;
        // Small numbers in every float dtype.
        device.fill(memory.address(), 0x3c, bytes)?;
        memories.push(memory);
    }
    let scratch = device.allocate(workspace, "the workspace of a measurement")?;
    let addresses: Vec<Address> = memories.iter().map(|m| m.address()).collect();
    let place = (scratch.address(), workspace);
    // If no algorithm is found, the preparation of the product reports it.
    drop(blas.autotune(&form.problem, alignment, place, &operands(gemm, &addresses), tuning)?);
    Ok(())
}
