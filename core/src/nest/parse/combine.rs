//! Parser of combiners.

use super::{Defined, define, definitions, read_reg, single, straight};
use crate::diagnostic::Result;
use crate::dtype::DType;
use crate::id::IdVec;
use crate::nest::Combine;
use crate::text::Cursor;
use std::collections::BTreeMap;

/// `sum`, or `combine(%a: f32 = 0.0; %b) { … return %c }`.
pub(super) fn parse_combine(c: &mut Cursor<'_>, dtypes: &[DType]) -> Result<Combine> {
    let token = c.peek();
    let name = c.expect_name("a combiner")?;
    if name != "combine" {
        return Combine::named(name, dtypes).ok_or_else(|| {
            let names: Vec<_> = Combine::names().collect();
            let dtypes: Vec<_> = dtypes.iter().map(|d| d.name()).collect();
            c.error(token, format!("no combiner `{name}` for ({})", dtypes.join(", ")))
                .help(format!("there are {}, and `combine(…) {{ … }}`", names.join(", ")))
        });
    }
    let mut names = BTreeMap::new();
    let mut registers = IdVec::new();
    c.expect("(")?;
    let identity = c.separated(|c| {
        let token = c.peek();
        let name = c.expect_value("an operand of the combiner")?;
        c.expect(":")?;
        let dtype = c.dtype()?;
        c.expect("=")?;
        let identity = c.scalar(dtype)?;
        define(c, Defined { name, dtype, token }, &mut names, &mut registers)?;
        Ok(identity)
    })?;
    c.expect(";")?;
    for (n, value) in identity.iter().enumerate() {
        if n > 0 {
            c.expect(",")?;
        }
        let token = c.peek();
        let name = c.expect_value("a second operand of the combiner")?;
        define(c, Defined { name, dtype: value.dtype(), token }, &mut names, &mut registers)?;
    }
    c.expect(")")?;
    c.expect("{")?;
    let mut body = Vec::new();
    while !c.is_keyword("return") {
        let defined = definitions(c, "an instruction or `return`")?;
        let single = single(c, &defined)?;
        let token = c.peek();
        let word = c.expect_name("an instruction")?;
        let mut instr = straight(c, token, word, single, |c| read_reg(c, &names))?;
        instr.results_mut().fill(define(c, single, &mut names, &mut registers)?);
        body.push(instr);
    }
    c.expect_keyword("return")?;
    let results = c.separated(|c| read_reg(c, &names))?;
    c.expect("}")?;
    Ok(Combine { identity, registers, body, results })
}
