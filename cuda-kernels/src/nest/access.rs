//! Loads and stores.
//!
//! The indices of an access become one expression: the index of the element in its buffer. Its
//! constant term is the offset in the instruction. The rest is split into a loop-invariant part,
//! which goes into a base address, and a part that changes in the loops of the phase. An index
//! that is clamped is first clamped to its dimension, and then stands in the expression as an
//! axis of that extent.
//!
//! **Vectors.** Where neighbouring copies access neighbouring elements under the same predicates,
//! and the first of them is known to be aligned, one instruction moves up to 16 bytes. Buffers
//! are aligned to 256 bytes in most plans, so coefficients and constants decide. Elements of less
//! than 32 bits are packed into words.
//!
//! **Known elements.** An element that the thread has loaded is known from then on, even if it is
//! updated in place, since a nest reads the elements that it updates before it updates them. In
//! row storage, a thread knows the elements that it has stored; it must load those that other
//! threads stored. If row storage is never loaded, its stores are removed.
//!
//! **Bounds.** A guarded access is predicated: where the guard fails, the address is not
//! dereferenced, whatever its value.

use super::element::{VECTOR_BYTES, element};
use super::emit::{Copy, Emit, Key, NestReg};
use super::place::Place;
use super::vector::Vector;
use crate::ptx::{Binary, Reg, Ternary, Type, Width};
use wengert_core::Id;
use wengert_core::nest::{Access, Affine, AxisId, BufferId, BufferRole, Term};

/// The elements that copies access, and their predicates.
struct Targets {
    elements: Vec<Affine>,
    predicates: Vec<Option<Reg>>,
}

impl Emit<'_> {
    /// The index of the element, over axes of the schedule.
    fn element(&mut self, access: &Access, number: usize, copy: &Copy) -> Affine {
        if !access.clamp {
            let element = element(self.nest, access);
            return self.expression(&element, number, copy);
        }
        let buffer = &self.nest.buffers[access.buffer];
        let mut sum = Affine::default();
        let strided = access.indices.iter().zip(buffer.strides());
        for ((index, stride), extent) in strided.zip(&buffer.shape) {
            let index = self.expression(index, number, copy);
            sum = sum.add(&self.clamped(&index, *extent).scale(stride));
        }
        sum
    }

    /// The index, clamped to `0..extent`.
    fn clamped(&mut self, index: &Affine, extent: usize) -> Affine {
        let interval = self.interval(index);
        if interval.within(0, extent as i128) {
            return index.clone();
        }
        let clamped = self.once(Key::Clamped(index.clone(), extent), |emit| {
            let wide = !emit.is_narrow(index) || i32::try_from(extent).is_err();
            let (value, ty) = emit.number(index, wide);
            let value = emit.code.binary(Binary::Max, ty, value, 0);
            emit.code.binary(Binary::Min, ty, value, extent as i64 - 1)
        });
        // One axis for each register, so that copies with the same index access the same element.
        let at = self.axis_registers.iter().position(|r| *r == Some(clamped));
        let found = at.filter(|at| self.bounds.axes[AxisId::new(*at)].extent == extent);
        Affine::axis(match found {
            Some(at) => AxisId::new(at),
            None => self.axis_in("clamped", extent, clamped),
        })
    }

    fn targets(&mut self, access: &Access, copies: &[Copy], store: bool) -> Targets {
        let (mut elements, mut predicates) = (Vec::new(), Vec::new());
        for (n, copy) in copies.iter().enumerate() {
            let guard = self.guards(&access.guards, n, copy);
            let own = if store { copy.stores } else { None };
            predicates.push(self.all(guard.into_iter().chain(copy.active).chain(own).collect()));
            elements.push(self.element(access, n, copy));
        }
        Targets { elements, predicates }
    }

    /// Hoists the common loop-invariant parts of a phase's accesses.
    pub fn prepare(&mut self, access: &Access, copy: &Copy, number: usize) {
        let from_body = |reg: NestReg| {
            self.body.get(number).is_none_or(|b| b[reg.index()].is_none())
                && self.row[number.min(self.row.len() - 1)][reg.index()].is_none()
        };
        let mut unknown = access.clamp;
        for index in &access.indices {
            index.visit_terms(&mut |term| unknown |= matches!(term, Term::Reg(r) if from_body(*r)));
        }
        if !unknown {
            let element = self.element(access, number, copy);
            let (outer, _) = self.split(&element);
            self.base(access.buffer, &outer);
        }
    }

    /// The terms that are invariant in the loops of the phase, and the others; no constant.
    fn split(&self, element: &Affine) -> (Affine, Affine) {
        let is_outer = |term: &Term| {
            let mut outer = true;
            let one = Affine { constant: 0, terms: vec![(term.clone(), 1)] };
            one.visit_terms(&mut |t| match t {
                Term::Axis(axis) => outer &= axis.index() < self.outer.0,
                Term::Reg(reg) => outer &= reg.index() < self.outer.1,
                _ => {}
            });
            outer
        };
        let (outer, inner) = element.terms.iter().cloned().partition(|(term, _)| is_outer(term));
        (Affine { constant: 0, terms: outer }, Affine { constant: 0, terms: inner })
    }

    /// The address of an element without its constant term.
    fn base(&mut self, buffer: BufferId, element: &Affine) -> Reg {
        if element.terms.is_empty() {
            return self.places[buffer.index()].base();
        }
        self.once(Key::Address(buffer, element.clone()), |emit| {
            let (outer, inner) = emit.split(element);
            let size = emit.nest.buffers[buffer].dtype.size() as i64;
            let (start, rest) = if inner.terms.is_empty() || outer.terms.is_empty() {
                (emit.places[buffer.index()].base(), element.clone())
            } else {
                (emit.base(buffer, &outer), inner)
            };
            emit.displace(start, &rest, size)
        })
    }

    /// `start + expression · size`.
    fn displace(&mut self, start: Reg, expression: &Affine, size: i64) -> Reg {
        if start.width == Width::B32 {
            // Shared memory has 32-bit addresses.
            let value = self.narrow(expression);
            return self.code.ternary(Ternary::Mad, Type::S32, value, size, start);
        }
        if self.is_narrow(expression) {
            let unsigned = self.interval(expression).low >= 0;
            let value = self.narrow(expression);
            let ty = if unsigned { Type::U32 } else { Type::S32 };
            return self.code.ternary(Ternary::MadWide, ty, value, size, start);
        }
        let value = self.wide(expression);
        self.code.ternary(Ternary::Mad, Type::S64, value, size, start)
    }

    /// Base register and offset of an element.
    fn address(&mut self, buffer: BufferId, element: &Affine) -> (Reg, i64) {
        let size = self.nest.buffers[buffer].dtype.size() as i64;
        let variable = Affine { constant: 0, terms: element.terms.clone() };
        let base = self.base(buffer, &variable);
        match element.constant.checked_mul(size) {
            Some(offset) if i32::try_from(offset).is_ok() => (base, offset),
            _ => {
                let bytes = element.constant.wrapping_mul(size);
                let (ty, bytes) = if base.width == Width::B32 {
                    (Type::S32, i64::from(bytes as i32))
                } else {
                    (Type::S64, bytes)
                };
                (self.code.binary(Binary::Add, ty, base, bytes), 0)
            }
        }
    }

    /// The number of copies, from `first` on, that one instruction serves.
    fn run(&self, targets: &Targets, first: usize, size: usize) -> usize {
        let element = &targets.elements[first];
        let mut width = (VECTOR_BYTES.min(self.alignment) / size).max(1);
        while width > 1 {
            let fits = first + width <= targets.elements.len();
            let aligned = element.constant % width as i64 == 0
                && element.terms.iter().all(|(_, factor)| factor % width as i64 == 0);
            let together = || {
                (1..width).all(|k| {
                    let other = &targets.elements[first + k];
                    other.terms == element.terms
                        && other.constant == element.constant + k as i64
                        && targets.predicates[first + k] == targets.predicates[first]
                })
            };
            if fits && aligned && together() {
                return width;
            }
            width /= 2;
        }
        1
    }

    /// Loads an element for each copy.
    pub fn load(&mut self, access: &Access, fill: Option<NestReg>, copies: &[Copy]) -> Vec<Reg> {
        let buffer = &self.nest.buffers[access.buffer];
        let dtype = buffer.dtype;
        let storage = buffer.role == BufferRole::Row;
        let targets = self.targets(access, copies, false);
        let fills: Vec<Option<Reg>> =
            (0..copies.len()).map(|c| fill.map(|f| self.value(c, f))).collect();
        let key = |c: usize| {
            Key::Element(
                access.buffer,
                targets.elements[c].clone(),
                targets.predicates[c],
                fills[c],
            )
        };
        let mut values = Vec::new();
        while values.len() < copies.len() {
            let first = values.len();
            if let Some(known) = self.recall(&key(first)) {
                values.push(known);
                continue;
            }
            if storage {
                self.storage_loads.insert(access.buffer);
            }
            let width = self.run(&targets, first, dtype.size());
            let (base, offset) = self.address(access.buffer, &targets.elements[first]);
            let place = &self.places[access.buffer.index()];
            let load = Vector {
                space: place.space(),
                read_only: matches!(place, Place::Global { written: false, .. }),
                base,
                offset,
                predicate: targets.predicates[first],
                dtype,
            };
            let loaded = load.load(&mut self.code, &fills[first..first + width]);
            for (k, value) in loaded.iter().enumerate() {
                self.remember(key(first + k), *value);
            }
            values.extend(loaded);
        }
        values
    }

    /// Stores the values of the copies.
    pub fn store(&mut self, access: &Access, values: Vec<Reg>, copies: &[Copy]) {
        let dtype = self.nest.buffers[access.buffer].dtype;
        let storage = self.nest.buffers[access.buffer].role == BufferRole::Row;
        let targets = self.targets(access, copies, true);
        let mut first = 0;
        while first < copies.len() {
            let width = self.run(&targets, first, dtype.size());
            let (base, offset) = self.address(access.buffer, &targets.elements[first]);
            let store = Vector {
                space: self.places[access.buffer.index()].space(),
                read_only: false,
                base,
                offset,
                predicate: targets.predicates[first],
                dtype,
            };
            let line = self.code.lines().len();
            store.store(&mut self.code, &values[first..first + width]);
            if storage {
                // The lines before the last one prepare it, and have no effect without it.
                let last = self.code.lines().len();
                self.storage_stores.extend((line..last).map(|n| (access.buffer, n)));
            }
            first += width;
        }
        if storage {
            // The old elements are no longer known. This thread knows the elements that it has
            // stored.
            self.forget(access.buffer);
            for ((element, predicate), value) in
                targets.elements.into_iter().zip(targets.predicates).zip(values)
            {
                self.remember(Key::Element(access.buffer, element, predicate, None), value);
            }
        }
    }
}
