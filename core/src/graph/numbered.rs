//! Numbers of a function's equations, those in regions and callees included.

use super::{Body, Equation, Function};

/// The body that an equation is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner<'a> {
    /// The function's own body.
    Function,
    /// The body of the callee of this name.
    Callee(&'a str),
    /// A region of an equation.
    Region {
        /// The number of the equation.
        equation: usize,
        /// The number of the region in it.
        region: usize,
    },
}

/// An equation with its place in a function.
#[derive(Clone, Copy, Debug)]
pub struct Numbered<'a> {
    /// The equation.
    pub equation: &'a Equation,
    /// Its body, whose values it uses.
    pub body: &'a Body,
    /// The place of its body.
    pub owner: Owner<'a>,
}

impl Function {
    /// Every equation, in the order of the function's text: those of each callee, once, then those
    /// of the body. Equations of regions come after the equation that has the region. The position
    /// in this list is the equation's **number**.
    pub fn numbered(&self) -> Vec<Numbered<'_>> {
        let mut found = Vec::new();
        for callee in self.body.callees() {
            add(callee.body, Owner::Callee(callee.name), &mut found);
        }
        add(&self.body, Owner::Function, &mut found);
        found
    }
}

fn add<'a>(body: &'a Body, owner: Owner<'a>, found: &mut Vec<Numbered<'a>>) {
    for equation in &body.equations {
        let number = found.len();
        found.push(Numbered { equation, body, owner });
        if equation.op.callee().is_none() {
            for (region, inner) in equation.regions.iter().enumerate() {
                add(inner, Owner::Region { equation: number, region }, found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::graph::{parse_program, print_equations};

    #[test]
    fn equations_are_numbered_in_the_order_of_the_text() {
        let text = "func @f(%x: f32[4,2]) -> (f32[2]) {
            func @g(%0: f32[2]) {
              %1: f32[2] = exp %0
              return %1
            }
            %2: f32[2] = reduce_sum %x {axes=[0]}
            %3: f32[2] = scan %2, %x {captures=0, carries=1, length=4}
              region (%4: f32[2], %5: f32[2]) {
                %6: f32[2] = call %5 {function=@g}
                %7: f32[2] = add %4, %6
                return %7
              }
            %8: f32[2] = neg %3
            return %8
        }";
        let program = parse_program(text, "f.ir").expect("the text is right");
        let function = &program.functions()[0];
        let numbered = function.numbered();
        let names: Vec<&str> = numbered.iter().map(|n| n.equation.op.name()).collect();
        assert_eq!(names, ["exp", "reduce_sum", "scan", "call", "add", "neg"]);
        let texts = print_equations(function);
        assert_eq!(texts.len(), names.len());
        for (text, name) in texts.iter().zip(names) {
            assert!(text.contains(&format!(" = {name} ")) && !text.contains('\n'), "{text}");
        }
    }
}
