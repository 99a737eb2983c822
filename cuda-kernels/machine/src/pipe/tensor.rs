//! Products of tensor cores: how many an instruction does, and at which rate.
//!
//! The shape is in the name. `HMMA.16816` multiplies 16×16 by 16×8; a warp does m·n·k products.
//! `HGMMA.64x256x16` is executed by four warps together, each with 16 of the 64 rows.

use crate::card::TensorRates;
use crate::sass::Instruction;

/// Products of a warp.
///
/// Errors: no modifier is a shape; a sparse operand.
pub(super) fn products(i: &Instruction) -> Result<f64, String> {
    if i.has("SP") || i.has("SPARSE") {
        return Err("products with sparse operands are not modelled".to_owned());
    }
    if i.opcode.starts_with("UTC") {
        return Err("the shape of its product is in a descriptor, not in its name".to_owned());
    }
    let found = i.modifiers.iter().find_map(|m| shape(m));
    let (m, n, k) = found.ok_or("its name has no shape")?;
    // A warp group shares the rows.
    let rows = if i.opcode.ends_with("GMMA") { m / 4 } else { m };
    Ok(f64::from(rows) * f64::from(n) * f64::from(k))
}

/// `64x256x16`, or `16816` for 16·8·16 and `884` for 8·8·4.
fn shape(modifier: &str) -> Option<(u32, u32, u32)> {
    if modifier.contains('x') {
        let mut parts = modifier.split('x').map(|p| p.parse().ok());
        let shape = (parts.next()??, parts.next()??, parts.next()??);
        return parts.next().is_none().then_some(shape);
    }
    let (m, rest) = match modifier.strip_prefix("168") {
        Some(rest) => (16, rest),
        None => (8, modifier.strip_prefix("88")?),
    };
    let k: u32 = rest.parse().ok()?;
    [4, 8, 16, 32, 64, 128, 256].contains(&k).then_some((m, 8, k))
}

/// Products per clock and multiprocessor for the types in the name.
///
/// Errors: the card has none for these types; the types are not known.
pub(super) fn rate(i: &Instruction, rates: &TensorRates) -> Result<f64, String> {
    // The first of these modifiers is the type of the sums.
    let sums = i.modifiers.iter().map(String::as_str).find(|m| matches!(*m, "F16" | "F32"));
    let rate = match i.opcode.as_str() {
        "HMMA" | "HGMMA" if i.has("TF32") => rates.tf32.value,
        "HMMA" | "HGMMA" if sums == Some("F16") => rates.f16.value,
        "HMMA" | "HGMMA" => rates.f16_f32.value,
        "IMMA" | "IGMMA"
            if i.modifiers.iter().any(|m| m.starts_with("S4") || m.starts_with("U4")) =>
        {
            return Err("the rate of products of 4-bit integers is not in the table".to_owned());
        }
        "IMMA" | "IGMMA" => rates.i8.value,
        "QMMA" | "QGMMA" => rates.f8.value,
        "DMMA" => rates.f64.value,
        _ => return Err("the types of its operands are not in the table".to_owned()),
    };
    match rate > 0.0 {
        true => Ok(rate),
        false => Err("the card has no such tensor cores".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::shape;

    #[test]
    fn shapes_are_read_from_names() {
        assert_eq!(shape("16816"), Some((16, 8, 16)));
        assert_eq!(shape("1688"), Some((16, 8, 8)));
        assert_eq!(shape("1684"), Some((16, 8, 4)));
        assert_eq!(shape("884"), Some((8, 8, 4)));
        assert_eq!(shape("16832"), Some((16, 8, 32)));
        assert_eq!(shape("64x128x16"), Some((64, 128, 16)));
        for none in ["F32", "16817", "64x128", "E4M3", "8", "64x8x16x2"] {
            assert_eq!(shape(none), None, "{none}");
        }
    }
}
