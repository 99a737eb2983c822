//! Recomputes short functions of one tensor in the backward pass, instead of keeping them from
//! the forward pass.
//!
//! `gelu(x)` is an operand of the next layer in the forward pass, and of the gradient of that
//! layer's weights in the backward pass. Kept between the two it occupies memory beside x, which
//! the derivative of the GELU reads anyway. In a transformer's block, that is a quarter of all
//! residuals. So readers at a distance from the others get a copy of their own, recomputed from the
//! same tensor. A weight that is only converted to halves keeps its copy: it is small beside
//! activations, and twice as many bytes are read to convert it again.
//!
//! Fusion does this to values without a buffer (`fuse/values.rs`). Operands of products have to
//! be in memory, so here equations are repeated. It costs a pass over memory. That is small
//! beside a product, and pays on machines short of memory, which a target declares.

use std::collections::BTreeSet;
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::Cost;
use wengert_core::{Op, Target};

/// Minimum number of loops (products, reductions, calls) between two readers that count as
/// distant.
const FAR: usize = 8;
/// Maximum number of equations of a short function, besides its constants and conversions.
const SHORT: usize = 16;
/// Minimum size in bytes of a recomputed value.
const LEAST_BYTES: usize = 1 << 20;

/// Recomputes values that have a distant reader, for targets that want it; at most `fuel` copies.
pub(crate) fn recompute(mut function: Function, target: &Target, fuel: u64) -> (Function, u64) {
    if !target.rematerializes {
        return (function, 0);
    }
    let copies = Copies::of(&function.body, fuel);
    let changes = copies.len() as u64;
    if changes > 0 {
        insert(&mut function.body, copies);
        function = function.renumber();
    }
    (function, changes)
}

/// A value to be recomputed.
struct Copy {
    /// The equation in front of which it is recomputed.
    before: usize,
    /// The first equation that no longer reads the copy.
    until: usize,
    value: ValueId,
    /// The equations that compute it.
    equations: Vec<usize>,
}

struct Copies<'b> {
    body: &'b Body,
    /// For each value the equation that computes it.
    definition: IdVec<ValueId, Option<usize>>,
    /// For each value the equations that read it.
    readers: IdVec<ValueId, Vec<usize>>,
    /// The last equation at which it is in memory; the end, if it is an input or an output of the
    /// function.
    last: IdVec<ValueId, usize>,
    /// The number of loops before each equation.
    loops: Vec<usize>,
}

impl Copies<'_> {
    /// The copies that pay, in program order.
    fn of(body: &Body, fuel: u64) -> Vec<Copy> {
        let mut found = Copies {
            body,
            definition: body.values.ids().map(|_| None).collect(),
            readers: body.values.ids().map(|_| Vec::new()).collect(),
            last: body.values.ids().map(|_| 0).collect(),
            loops: Vec::with_capacity(body.equations.len()),
        };
        let mut loops = 0;
        for (n, equation) in body.equations.iter().enumerate() {
            found.loops.push(loops);
            loops += usize::from(equation.op.traits().cost == Cost::Loop);
            equation.results.iter().for_each(|v| found.definition[*v] = Some(n));
            for v in equation.operands.iter().collect::<BTreeSet<_>>() {
                found.readers[*v].push(n);
                found.last[*v] = n;
            }
        }
        found.extend_lives();
        body.inputs.iter().chain(&body.outputs).for_each(|v| found.last[*v] = usize::MAX);
        let mut copies = Vec::new();
        for equation in &body.equations {
            if let [value] = equation.results[..] {
                found.copies_of(value, &mut copies);
            }
        }
        copies.sort_by_key(|copy: &Copy| (copy.before, copy.value));
        copies.truncate(usize::try_from(fuel).unwrap_or(usize::MAX));
        copies
    }

    /// A tensor is in memory for as long as short functions of it are read, which fusion recomputes
    /// in the kernels that read them.
    fn extend_lives(&mut self) {
        // For each value the tensor that it is a short function of, and the depth of its equations.
        let mut roots: IdVec<ValueId, (ValueId, usize)> =
            self.body.values.ids().map(|v| (v, 0)).collect();
        for equation in &self.body.equations {
            let [value] = equation.results[..] else { continue };
            let traits = equation.op.traits();
            let element = traits.elementwise && traits.cost <= Cost::Expensive;
            if !element || !equation.regions.is_empty() || self.is_read_by_a_loop(value) {
                continue;
            }
            let operands = equation.operands.iter().filter(|v| !self.is_number(**v));
            let of: Vec<(ValueId, usize)> = operands.map(|v| roots[*v]).collect();
            let Some((root, _)) = of.first() else { continue };
            let depth = 1 + of.iter().map(|(_, depth)| *depth).max().unwrap_or(0);
            let bytes = |v: ValueId| self.body.ty(v).bytes();
            let short = depth <= SHORT && bytes(*root) <= bytes(value);
            if short && of.iter().all(|(other, _)| other == root) {
                roots[value] = (*root, depth);
                self.last[*root] = self.last[*root].max(self.last[value]);
            }
        }
    }

    fn copies_of(&self, value: ValueId, copies: &mut Vec<Copy>) {
        let ty = self.body.ty(value);
        let bytes = ty.bytes().unwrap_or(0);
        // An output of the function is in memory anyway.
        if bytes < LEAST_BYTES
            || self.last[value] == usize::MAX
            || !self.is_read_by_a_loop(value)
            || self.is_converted_input(value)
        {
            return;
        }
        let readers = &self.readers[value];
        let far: Vec<usize> = (1..readers.len())
            .filter(|n| self.loops[readers[*n]] >= self.loops[readers[n - 1]] + FAR)
            .collect();
        if far.is_empty() {
            return;
        }
        for (n, first) in far.iter().enumerate() {
            let before = readers[*first];
            if let Some(equations) = self.function_of_what_is_there(value, before) {
                let until = far.get(n + 1).map_or(self.body.equations.len(), |next| readers[*next]);
                copies.push(Copy { before, until, value, equations });
            }
        }
    }

    /// Whether it is an input of the function in another dtype.
    fn is_converted_input(&self, value: ValueId) -> bool {
        self.definition[value].is_some_and(|n| {
            let Equation { op, operands, .. } = &self.body.equations[n];
            matches!(op, Op::ConvertElementType(_)) && self.definition[operands[0]].is_none()
        })
    }

    /// Whether a product or a call reads it, so that it has to be in memory.
    fn is_read_by_a_loop(&self, value: ValueId) -> bool {
        self.readers[value].iter().any(|n| self.body.equations[*n].op.traits().cost == Cost::Loop)
    }

    /// The equations that compute a value from one tensor that is in memory at equation `at`
    /// anyway, if they are few.
    fn function_of_what_is_there(&self, value: ValueId, at: usize) -> Option<Vec<usize>> {
        let (mut equations, mut elementwise) = (BTreeSet::new(), 0);
        // Values still to be computed, with their equations. When one tensor is left, the value
        // is a function of it.
        let mut open = BTreeSet::from([(self.definition[value], value)]);
        while let Some((definition, v)) = open.pop_last() {
            if v != value && open.is_empty() && self.last[v] >= at {
                return Some(equations.into_iter().collect());
            }
            let equation = &self.body.equations[definition?];
            let traits = equation.op.traits();
            let element = traits.elementwise && traits.cost <= Cost::Expensive;
            if !element || !equation.regions.is_empty() || equation.results.len() != 1 {
                return None;
            }
            equations.extend(definition);
            elementwise += usize::from(!matches!(equation.op, Op::ConvertElementType(_)));
            if elementwise > SHORT {
                return None;
            }
            for operand in &equation.operands {
                if self.is_number(*operand) {
                    self.add_number(*operand, &mut equations);
                } else {
                    open.insert((self.definition[*operand], *operand));
                }
            }
        }
        None
    }

    /// Adds the equations that compute a number or a repetition of one.
    fn add_number(&self, value: ValueId, equations: &mut BTreeSet<usize>) {
        let made = self.definition[value].expect("a number is made by equations");
        if equations.insert(made) {
            self.body.equations[made].operands.iter().for_each(|v| self.add_number(*v, equations));
        }
    }

    /// Whether it is a constant or a repetition of one.
    fn is_number(&self, value: ValueId) -> bool {
        self.definition[value].is_some_and(|n| {
            let equation = &self.body.equations[n];
            match equation.operands[..] {
                [] => self.body.ty(value).elements() == Some(1),
                [one] => equation.op.name() == "broadcast_in_dim" && self.is_number(one),
                _ => false,
            }
        })
    }
}

/// Inserts copies in front of their readers.
fn insert(body: &mut Body, copies: Vec<Copy>) {
    let old = std::mem::take(&mut body.equations);
    let mut copies = copies.into_iter().peekable();
    // For each value the copy that is read in its place, and up to which equation.
    let mut current: IdVec<ValueId, (ValueId, usize)> =
        body.values.ids().map(|v| (v, usize::MAX)).collect();
    for (n, equation) in old.iter().enumerate() {
        while let Some(copy) = copies.next_if(|copy| copy.before == n) {
            let mut local: Vec<(ValueId, ValueId)> = Vec::new();
            for made in &copy.equations {
                let made = &old[*made];
                let new = |v: &ValueId| {
                    local.iter().find(|(from, _)| from == v).map_or(*v, |(_, to)| *to)
                };
                let operands = made.operands.iter().map(new).collect();
                let result = body.values.push(body.values[made.results[0]].clone());
                local.push((made.results[0], result));
                body.equations.push(Equation { operands, results: vec![result], ..made.clone() });
            }
            let (_, again) = local.last().expect("a function has an equation");
            current[copy.value] = (*again, copy.until);
        }
        let mut equation = equation.clone();
        for v in &mut equation.operands {
            let (again, until) = current[*v];
            if n < until {
                *v = again;
            }
        }
        body.equations.push(equation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;
    use wengert_core::graph::{parse_program, verify};
    use wengert_core::{Literal, interpret};

    const ROWS: usize = LEAST_BYTES / 4 / 64;

    /// y = f(x) read by a product; `between` products; then a product that reads y again, and the
    /// equation `last`.
    fn function(f: &str, between: usize, last: &str) -> Function {
        let shape = format!("f32[{ROWS},64]");
        let mut text = format!(
            "func @f(%a: {shape}, %b: {shape}, %w: f32[64,64]) -> (p: f32[64,64], q: {shape}) {{
               %0: f32[] = constant {{value=f32[] 0.5}}
               %1: {shape} = broadcast_in_dim %0 {{shape=[{ROWS},64]}}
               %2: {shape} = mul %a, %b
               %3: {shape} = {f}
               %4: {shape} = add %3, %1
               %5: f32[64,64] = dot_general %4, %b {{contract=[[0],[0]]}}\n"
        );
        for n in 0..between {
            text += &format!(
                "%{}: f32[64,64] = dot_general %{}, %w {{contract=[[1],[0]]}}\n",
                n + 6,
                n + 5
            );
        }
        let (n, before) = (between + 6, between + 5);
        text += &format!(
            "%{n}: f32[64,64] = dot_general %4, %a {{contract=[[0],[0]]}}
             %{}: f32[64,64] = add %{n}, %{before}
             %{}: {shape} = {last}
             return %{}, %{}
             }}",
            n + 1,
            n + 2,
            n + 1,
            n + 2
        );
        let program = parse_program(&text, "test.ir").unwrap_or_else(|e| panic!("{e}"));
        program.functions()[0].clone()
    }

    /// A target whose memory is scarce, as on a GPU.
    fn gpu() -> Target {
        Target { followers: false, lays_out: false, rematerializes: true, ..Target::cpu() }
    }

    fn on_a_gpu(before: &Function, fuel: u64) -> (Function, u64) {
        let (after, changes) = recompute(before.clone(), &gpu(), fuel);
        verify(&after).unwrap_or_else(|e| panic!("{e}"));
        (after, changes)
    }

    #[test]
    fn a_function_of_what_is_there_is_made_again() {
        // A function of a tensor that is read later; of one tensor by two paths; of an input; of a
        // tensor of which another function is read later.
        let two = format!("tanh %2\n %early: f32[{ROWS},64] = exp %2");
        for (f, last) in [
            ("tanh %2", "neg %2"),
            ("mul %2, %2", "exp %2"),
            ("neg %a", "neg %b"),
            (two.as_str(), "neg %early"),
        ] {
            let before = function(f, FAR - 1, last);
            let (after, changes) = on_a_gpu(&before, u64::MAX);
            assert_eq!(changes, 1, "{f}");
            let made = after.body.equations.len() - before.body.equations.len();
            assert_eq!(made, 4, "its function, the sum, and its number");
            let products: Vec<&Equation> =
                after.body.equations.iter().filter(|e| e.op.name() == "dot_general").collect();
            assert_ne!(products[0].operands[0], products[FAR].operands[0]);
            assert_eq!(on_a_gpu(&after, u64::MAX), (after.clone(), 0));
            assert_eq!(on_a_gpu(&before, 0), (before.clone(), 0));
            assert_eq!(recompute(before.clone(), &Target::cpu(), u64::MAX), (before, 0));
        }
    }

    #[test]
    fn it_is_the_same_function() {
        let before = function("tanh %2", FAR, "neg %2");
        let numbers = |n: usize| {
            Literal::from_vec(&[n / 64, 64], (0..n).map(|n| (n as f32).sin()).collect::<Vec<f32>>())
        };
        let given = [ROWS * 64, ROWS * 64, 64 * 64].map(|n| numbers(n).expect("it fits"));
        let run = |f: &Function| interpret::run(f, &given).expect("it runs");
        let (after, _) = on_a_gpu(&before, u64::MAX);
        assert_eq!(run(&after), run(&before));
    }

    /// Without the copy fusion would load the operand once for both, and keep both.
    #[test]
    fn it_is_a_kernel_apart() {
        let before = function("tanh %2", FAR - 1, "neg %2");
        let options = crate::pipeline::Options::default();
        let kernels = crate::pipeline::compile_kernels(&before, &gpu(), &options);
        let kernels = kernels.expect("it compiles").kernels;
        let made = |n: usize| &kernels.kernels[n].writes;
        let products: Vec<usize> = (0..kernels.kernels.len())
            .filter(|n| matches!(kernels.kernels[*n].work, crate::kernels::Work::Call(_)))
            .collect();
        assert_eq!(products.len(), FAR + 1);
        let of = |product: usize| {
            let operand = kernels.kernels[products[product]].reads[0];
            (0..kernels.kernels.len()).find(|n| made(*n).contains(&operand))
        };
        assert_ne!(of(0), of(FAR), "{kernels}");
    }

    /// Converted again, it would be read in f32 again.
    #[test]
    fn a_converted_input_is_kept() {
        let rows = 2 * ROWS;
        let mut text = format!(
            "func @f(%w: f32[{rows},64], %x: bf16[{rows},64]) -> (y: f32[64,64]) {{
             %h: bf16[{rows},64] = convert_element_type %w {{dtype=bf16}}
             %0: f32[64,64] = dot_general %h, %x {{contract=[[0],[0]], result=f32}}\n"
        );
        for n in 0..FAR {
            let next = n + 1;
            let _ = writeln!(
                text,
                "%{next}: f32[64,64] = dot_general %{n}, %{n} {{contract=[[0],[0]]}}"
            );
        }
        let _ = write!(
            text,
            "%z: f32[64,64] = dot_general %h, %h {{contract=[[0],[0]], result=f32}}
             %y: f32[64,64] = add %z, %{FAR}
             return %y }}"
        );
        let before =
            parse_program(&text, "f.ir").expect("the text is right").functions()[0].clone();
        assert_eq!(on_a_gpu(&before, u64::MAX), (before, 0));
    }

    #[test]
    fn what_would_keep_another_tensor_stays() {
        for before in [
            // Read again within the distance; no later reader of the operand; of two tensors.
            function("tanh %2", FAR - 2, "neg %2"),
            function("tanh %2", FAR, "neg %a"),
            function("atan2 %2, %a", FAR, "neg %b"),
        ] {
            assert_eq!(on_a_gpu(&before, u64::MAX), (before, 0));
        }
    }
}
