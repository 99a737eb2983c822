//! Containers of differentiable values: vectors, arrays, options, boxes, maps and tuples.
//!
//! The tangent vector of a container is the container of tangent vectors. A tangent of a vector,
//! a map or an option has as many elements as its value. A tangent of another structure is an
//! error, not zero.

use super::{Differentiable, KeyPath, MakeTensor, VisitTensor, mismatch, mismatched_components};
use crate::build::tensor::Tensor;
use crate::location::Location;
use std::collections::BTreeMap;

impl<T: Differentiable> Differentiable for Vec<T> {
    type TangentVector = Vec<T::TangentVector>;
    fn visit_tensors(&self, path: &KeyPath, visit: VisitTensor<'_>) {
        self.iter().enumerate().for_each(|(i, item)| item.visit_tensors(&path.child(i), visit));
    }
    fn map_tensors(&self, path: &KeyPath, map: MakeTensor<'_>) -> Self {
        self.iter().enumerate().map(|(i, item)| item.map_tensors(&path.child(i), map)).collect()
    }
    fn tangent(&self, path: &KeyPath, make: MakeTensor<'_>) -> Self::TangentVector {
        self.iter().enumerate().map(|(i, item)| item.tangent(&path.child(i), make)).collect()
    }
    #[track_caller]
    fn components(&self, tangent: &Self::TangentVector, give: &mut dyn FnMut(&Tensor)) {
        if self.len() != tangent.len() {
            return mismatched_components(self, tangent, &lengths(tangent.len(), self.len()), give);
        }
        for (item, tangent) in self.iter().zip(tangent) {
            item.components(tangent, give);
        }
    }
    #[track_caller]
    fn move_along(&self, direction: &Self::TangentVector) -> Self {
        if self.len() != direction.len() {
            return mismatch(self, direction, &lengths(direction.len(), self.len()));
        }
        let mut moved = Vec::with_capacity(self.len());
        for (item, direction) in self.iter().zip(direction) {
            moved.push(item.move_along(direction));
        }
        moved
    }
    #[track_caller]
    fn zero_tangent(&self) -> Self::TangentVector {
        let mut zeros = Vec::with_capacity(self.len());
        for item in self {
            zeros.push(item.zero_tangent());
        }
        zeros
    }
}

fn lengths(tangent: usize, value: usize) -> String {
    format!("it has {tangent} items, the value has {value}")
}

impl<T: Differentiable, const N: usize> Differentiable for [T; N] {
    type TangentVector = [T::TangentVector; N];
    fn visit_tensors(&self, path: &KeyPath, visit: VisitTensor<'_>) {
        self.iter().enumerate().for_each(|(i, item)| item.visit_tensors(&path.child(i), visit));
    }
    fn map_tensors(&self, path: &KeyPath, map: MakeTensor<'_>) -> Self {
        std::array::from_fn(|i| self[i].map_tensors(&path.child(i), map))
    }
    fn tangent(&self, path: &KeyPath, make: MakeTensor<'_>) -> Self::TangentVector {
        std::array::from_fn(|i| self[i].tangent(&path.child(i), make))
    }
    #[track_caller]
    fn components(&self, tangent: &Self::TangentVector, give: &mut dyn FnMut(&Tensor)) {
        for (item, tangent) in self.iter().zip(tangent) {
            item.components(tangent, give);
        }
    }
    #[track_caller]
    fn move_along(&self, direction: &Self::TangentVector) -> Self {
        let mut moved = Vec::with_capacity(N);
        for (item, direction) in self.iter().zip(direction) {
            moved.push(item.move_along(direction));
        }
        moved.try_into().unwrap_or_else(|_| unreachable!("there are as many items as in the array"))
    }
    #[track_caller]
    fn zero_tangent(&self) -> Self::TangentVector {
        let caller = Location::caller();
        std::array::from_fn(|i| caller.attribute(|| self[i].zero_tangent()))
    }
}

/// The path of an item is its key. A key should have no dot, since it would read as two names.
impl<T: Differentiable> Differentiable for BTreeMap<String, T> {
    type TangentVector = BTreeMap<String, T::TangentVector>;
    fn visit_tensors(&self, path: &KeyPath, visit: VisitTensor<'_>) {
        self.iter().for_each(|(key, item)| item.visit_tensors(&path.child(key), visit));
    }
    fn map_tensors(&self, path: &KeyPath, map: MakeTensor<'_>) -> Self {
        self.iter()
            .map(|(key, item)| (key.clone(), item.map_tensors(&path.child(key), map)))
            .collect()
    }
    fn tangent(&self, path: &KeyPath, make: MakeTensor<'_>) -> Self::TangentVector {
        self.iter().map(|(key, item)| (key.clone(), item.tangent(&path.child(key), make))).collect()
    }
    #[track_caller]
    fn components(&self, tangent: &Self::TangentVector, give: &mut dyn FnMut(&Tensor)) {
        if !self.keys().eq(tangent.keys()) {
            return mismatched_components(self, tangent, &keys(tangent.keys(), self.keys()), give);
        }
        for (item, tangent) in self.values().zip(tangent.values()) {
            item.components(tangent, give);
        }
    }
    #[track_caller]
    fn move_along(&self, direction: &Self::TangentVector) -> Self {
        if !self.keys().eq(direction.keys()) {
            return mismatch(self, direction, &keys(direction.keys(), self.keys()));
        }
        let mut moved = BTreeMap::new();
        for ((key, item), direction) in self.iter().zip(direction.values()) {
            moved.insert(key.clone(), item.move_along(direction));
        }
        moved
    }
    #[track_caller]
    fn zero_tangent(&self) -> Self::TangentVector {
        let mut zeros = BTreeMap::new();
        for (key, item) in self {
            zeros.insert(key.clone(), item.zero_tangent());
        }
        zeros
    }
}

fn keys<'a>(
    tangent: impl Iterator<Item = &'a String>,
    value: impl Iterator<Item = &'a String>,
) -> String {
    let (tangent, value): (Vec<_>, Vec<_>) = (tangent.collect(), value.collect());
    format!("it has the keys {tangent:?}, the value has {value:?}")
}

/// The content has the path of the option: an optional `bias` is `bias`, not `bias.0`.
impl<T: Differentiable> Differentiable for Option<T> {
    type TangentVector = Option<T::TangentVector>;
    fn visit_tensors(&self, path: &KeyPath, visit: VisitTensor<'_>) {
        self.iter().for_each(|item| item.visit_tensors(path, visit));
    }
    fn map_tensors(&self, path: &KeyPath, map: MakeTensor<'_>) -> Self {
        self.as_ref().map(|item| item.map_tensors(path, map))
    }
    fn tangent(&self, path: &KeyPath, make: MakeTensor<'_>) -> Self::TangentVector {
        self.as_ref().map(|item| item.tangent(path, make))
    }
    #[track_caller]
    fn components(&self, tangent: &Self::TangentVector, give: &mut dyn FnMut(&Tensor)) {
        match (self, tangent) {
            (Some(item), Some(tangent)) => item.components(tangent, give),
            (None, None) => {}
            _ => mismatched_components(self, tangent, ONE_IS_THERE, give),
        }
    }
    #[track_caller]
    fn move_along(&self, direction: &Self::TangentVector) -> Self {
        match (self, direction) {
            (Some(item), Some(direction)) => Some(item.move_along(direction)),
            (None, None) => None,
            _ => mismatch(self, direction, ONE_IS_THERE),
        }
    }
    #[track_caller]
    fn zero_tangent(&self) -> Self::TangentVector {
        Some(self.as_ref()?.zero_tangent())
    }
}

const ONE_IS_THERE: &str = "one of the two options is `Some`, the other `None`";

impl<T: Differentiable> Differentiable for Box<T> {
    type TangentVector = Box<T::TangentVector>;
    fn visit_tensors(&self, path: &KeyPath, visit: VisitTensor<'_>) {
        (**self).visit_tensors(path, visit);
    }
    fn map_tensors(&self, path: &KeyPath, map: MakeTensor<'_>) -> Self {
        Box::new((**self).map_tensors(path, map))
    }
    fn tangent(&self, path: &KeyPath, make: MakeTensor<'_>) -> Self::TangentVector {
        Box::new((**self).tangent(path, make))
    }
    #[track_caller]
    fn components(&self, tangent: &Self::TangentVector, give: &mut dyn FnMut(&Tensor)) {
        (**self).components(tangent, give);
    }
    #[track_caller]
    fn move_along(&self, direction: &Self::TangentVector) -> Self {
        Box::new((**self).move_along(direction))
    }
    #[track_caller]
    fn zero_tangent(&self) -> Self::TangentVector {
        Box::new((**self).zero_tangent())
    }
}

macro_rules! tuple {
    ($($t:ident $i:tt),*) => {
        #[allow(unused_variables, clippy::unused_unit)]
        impl<$($t: Differentiable),*> Differentiable for ($($t,)*) {
            type TangentVector = ($($t::TangentVector,)*);
            fn visit_tensors(&self, path: &KeyPath, visit: VisitTensor<'_>) {
                $(self.$i.visit_tensors(&path.child($i), visit);)*
            }
            fn map_tensors(&self, path: &KeyPath, map: MakeTensor<'_>) -> Self {
                ($(self.$i.map_tensors(&path.child($i), map),)*)
            }
            fn tangent(&self, path: &KeyPath, make: MakeTensor<'_>) -> Self::TangentVector {
                ($(self.$i.tangent(&path.child($i), make),)*)
            }
            #[track_caller]
            fn components(&self, tangent: &Self::TangentVector, give: &mut dyn FnMut(&Tensor)) {
                $(self.$i.components(&tangent.$i, give);)*
            }
            #[track_caller]
            fn move_along(&self, direction: &Self::TangentVector) -> Self {
                ($(self.$i.move_along(&direction.$i),)*)
            }
            #[track_caller]
            fn zero_tangent(&self) -> Self::TangentVector {
                ($(self.$i.zero_tangent(),)*)
            }
        }
    };
}
tuple!();
tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);
