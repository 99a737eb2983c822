//! Implementations of a plan's products: cuBLASLt where it gives the plan's bits and is faster,
//! else kernels of this crate.

mod measure;

use super::Options;
use crate::call;
use crate::driver::blas::tuning::Key;
use crate::driver::blas::{
    Alignment, Blas, Form, Measured, Operands, Prepared, Rules, Tuning, supports,
};
use crate::driver::{Address, Device};
use crate::lowered::{Choice, Choose, Following, Question};
use measure::{Arguments, Contest};
use wengert_core::Result;
use wengert_core::call::Gemm;
use wengert_core::nest::Nest;

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

    /// The library, loaded at the first product that it may do.
    ///
    /// Errors: it is missing.
    fn library(&mut self) -> Result<Blas> {
        Ok(match self.blas.take() {
            Some(blas) => blas,
            None => self.device.blas()?,
        })
    }

    /// Times of the library and of this crate's kernels for a product and what follows it: known,
    /// or measured now. None without `autotune`, and if one of them cannot compute it.
    fn measured(
        &mut self,
        blas: &Blas,
        (gemm, form): (&Gemm, &Form),
        question: &Question,
        following: Option<&Following>,
    ) -> Result<Option<Measured>> {
        let alignment = alignment(question);
        let key = followed(blas.key(&form.problem, &alignment, question.workspace), following);
        if let Some(known) = self.tuning.measured(&key) {
            return Ok(Some(*known));
        }
        if !self.autotune {
            return Ok(None);
        }
        if self.tuning.get(&blas.key(&form.problem, &alignment, question.workspace)).is_none() {
            let arguments = Arguments::new(&self.device, gemm, question, None)?;
            let operands = operands(gemm, &arguments.addresses());
            let place = arguments.workspace();
            // If no algorithm is found, the preparation of the product reports it.
            drop(blas.autotune(&form.problem, &alignment, place, &operands, &mut self.tuning)?);
        }
        let device = &self.device.clone();
        let contest = Contest { device, blas, gemm, form, question, following };
        let measured = contest.run(&alignment, &self.tuning)?;
        if let Some(measured) = measured {
            self.tuning.insert_measured(key, measured);
        }
        Ok(measured)
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

impl Choose for Products {
    /// Prepares a product that the library does.
    ///
    /// Errors: the library is missing, or fails. (A product that it cannot do is no error.)
    fn call(&mut self, question: &Question, compared: bool) -> Result<Choice> {
        let (gemm, form) = match library_form(question, self.rules) {
            Ok(found) => found,
            Err(why) => return Ok(Choice::Kernels(why)),
        };
        let blas = self.library()?;
        let measured = match compared {
            true => None,
            false => self.measured(&blas, (gemm, &form), question, None)?,
        };
        let blas = self.blas.insert(blas);
        if let Some(why) = measured.and_then(|measured| measured.own()) {
            return Ok(Choice::Kernels(why));
        }
        let in_place = question.in_place.is_some();
        let alignment = alignment(question);
        match blas.prepare(&form, in_place, &alignment, question.workspace, &self.tuning)? {
            Err(why) => Ok(Choice::Kernels(why.to_string())),
            Ok(prepared) => {
                let left = prepared.form().map_or(gemm.addends, |form| form.left);
                self.prepared.push((gemm.clone(), prepared));
                Ok(Choice::Library(left))
            }
        }
    }

    /// A measurement takes precedence over the rule.
    fn product(&mut self, question: &Question, following: &Following) -> Result<Option<String>> {
        let Ok(product) = library_form(question, self.rules) else { return Ok(None) };
        let blas = self.library()?;
        let measured = self.measured(&blas, (product.0, &product.1), question, Some(following))?;
        self.blas = Some(blas);
        Ok(match measured {
            Some(measured) => measured.own(),
            None => following.by_rule(),
        })
    }
}

/// The key of a product together with the nest that follows it.
fn followed(mut key: Key, following: Option<&Following>) -> Key {
    if let Some(Following { follower, alignment, .. }) = following {
        // The nest without its name, which says where it is from.
        let nest = Nest { name: "follower".into(), ..follower.nest.clone() }.to_string();
        let words: Vec<&str> = nest.split_whitespace().collect();
        let stored = if follower.stores { "stored" } else { "not stored" };
        key.product += &format!(
            "; {stored}, followed at {} {:?} aligned {alignment} by {}",
            follower.tile,
            follower.in_place,
            words.join(" ")
        );
    }
    key
}

/// The alignment of a product's matrices.
fn alignment(question: &Question) -> Alignment {
    let aligned = u32::try_from(question.alignment).expect("at most 256");
    Alignment { lhs: aligned, rhs: aligned, out: aligned, bias: aligned }
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

/// A device whose library accepts every form that these rules permit. Plans are lowered for it
/// where no device is at hand.
#[derive(Clone, Copy, Debug)]
pub struct ByRule(pub Rules);

impl Choose for ByRule {
    fn call(&mut self, question: &Question, _: bool) -> Result<Choice> {
        Ok(match library_form(question, self.0) {
            Ok((_, form)) => Choice::Library(form.left),
            Err(why) => Choice::Kernels(why),
        })
    }

    fn product(&mut self, question: &Question, following: &Following) -> Result<Option<String>> {
        Ok(library_form(question, self.0).ok().and_then(|_| following.by_rule()))
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
