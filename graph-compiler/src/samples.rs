//! Hand-made kernels for tests.

use crate::kernels::{Buffer, BufferId, Kernel, Kernels, Work};
use wengert_core::graph::{Input, InputRole, Output, OutputRole};
use wengert_core::nest::parse_nests;
use wengert_core::{DType, Literal, LocationId, TensorType, Verified};

/// Builds kernels one after another.
#[derive(Default)]
pub(crate) struct Sample(pub Kernels);

impl Sample {
    pub fn new() -> Self {
        Sample(Kernels { function: "f".into(), ..Kernels::default() })
    }

    /// A buffer of `f32[n]`.
    pub fn buffer(&mut self, n: usize) -> BufferId {
        let name = format!("b{}", self.0.buffers.len());
        self.0.buffers.push(Buffer::dense(name, TensorType::new(DType::F32, [n])))
    }

    pub fn input(&mut self, name: &str, role: InputRole, n: usize) -> BufferId {
        let buffer = self.buffer(n);
        self.0.inputs.push((Input { name: name.into(), role, location: LocationId(0) }, buffer));
        buffer
    }

    pub fn constant(&mut self, values: &[f32]) -> BufferId {
        let buffer = self.buffer(values.len());
        let literal =
            Literal::from_vec(&[values.len()], values.to_vec()).expect("a vector fills its shape");
        self.0.constants.push((buffer, literal));
        buffer
    }

    pub fn output(&mut self, name: &str, role: OutputRole, buffer: BufferId) {
        let ty = self.0.buffers[buffer].ty.clone();
        self.0.outputs.push((Output { name: name.into(), role }, ty, buffer));
    }

    fn elements(&self, buffer: BufferId) -> usize {
        self.0.buffers[buffer].ty.elements().expect("samples have no dimension variables")
    }

    fn nest(&mut self, text: &str, reads: &[BufferId], writes: &[BufferId]) {
        let nest = parse_nests("sample", text).expect("samples are well-formed").remove(0).0;
        let (reads, writes) = (reads.to_vec(), writes.to_vec());
        self.0.kernels.push(Kernel {
            work: Work::Nest(Box::new(Verified::new(nest).expect("samples are valid"))),
            reads,
            writes,
            locations: vec![],
        });
    }

    /// The elementwise sum of operands; operands of one element are broadcast.
    pub fn sum(&mut self, reads: &[BufferId]) -> BufferId {
        let n = reads.iter().map(|b| self.elements(*b)).max().expect("a sum has operands");
        let result = self.buffer(n);
        let mut head = String::new();
        let mut body = "%s: f32 = const 1.0".to_string();
        let mut sum = "%s".to_string();
        for (k, read) in reads.iter().enumerate() {
            let extent = self.elements(*read);
            let index = if extent == n { "i" } else { "0" };
            head += &format!("in %x{k}: f32[{extent}], ");
            body += &format!(" %l{k}: f32 = load %x{k}[{index}] %s{k}: f32 = add {sum}, %l{k}");
            sum = format!("%s{k}");
        }
        let text = format!(
            "nest @sum({head}out %y: f32[{n}]) {{ parallel i: {n} phase {{ {body} store %y[i], \
             {sum} }} }}"
        );
        self.nest(&text, reads, &[result]);
        result
    }

    /// The elements in reverse order, which cannot be done in place.
    pub fn reversed(&mut self, read: BufferId) -> BufferId {
        let n = self.elements(read);
        let result = self.buffer(n);
        let text = format!(
            "nest @reverse(in %x: f32[{n}], out %y: f32[{n}]) {{ parallel i: {n} phase {{
               %0: f32 = load %x[-i+{}] store %y[i], %0 }} }}",
            n - 1
        );
        self.nest(&text, &[read], &[result]);
        result
    }

    /// The first `n` elements.
    pub fn beginning(&mut self, read: BufferId, n: usize) -> BufferId {
        let (of, result) = (self.elements(read), self.buffer(n));
        let text = format!(
            "nest @beginning(in %x: f32[{of}], out %y: f32[{n}]) {{ parallel i: {n} phase {{
               %0: f32 = load %x[i] store %y[i], %0 }} }}"
        );
        self.nest(&text, &[read], &[result]);
        result
    }

    /// Two results of one kernel: the sum, and the first operand in reverse order.
    pub fn two(&mut self, a: BufferId, b: BufferId) -> [BufferId; 2] {
        let n = self.elements(a);
        let results = [self.buffer(n), self.buffer(n)];
        let text = format!(
            "nest @two(in %a: f32[{n}], in %b: f32[{n}], out %y: f32[{n}], out %z: f32[{n}]) {{ \
             parallel i: {n} phase {{
               %0: f32 = load %a[i]
               %1: f32 = load %b[i]
               %2: f32 = add %0, %1
               store %y[i], %2
               %3: f32 = load %a[-i+{}]
               store %z[i], %3 }} }}",
            n - 1
        );
        self.nest(&text, &[a, b], &results);
        results
    }
}
