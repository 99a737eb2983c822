//! Samples of collectives: ops over the ranks of a mesh. They are no [`Sample`](super::Sample)s,
//! since one rank alone cannot run them.

use wengert_core::mesh::Varying;
use wengert_core::op::{
    AllGather, AllToAll, AxisIndex, PPermute, PReduce, PReduceKind, PVary, PsumScatter,
};
use wengert_core::{DType, Mesh, Op, TensorType};

/// A collective on the mesh of [`mesh`].
#[derive(Clone, Debug)]
pub struct CollectiveSample {
    /// The op.
    pub op: Op,
    /// Extents of the operand; `None`: it takes none.
    pub shape: Option<Vec<usize>>,
    /// The axes over which the operand varies.
    pub varying: Varying,
}

impl CollectiveSample {
    /// The types of the operands, of this dtype.
    pub fn operands(&self, dtype: DType) -> Vec<TensorType> {
        let ty = |shape: &Vec<usize>| TensorType::new(dtype, shape.iter().copied());
        let ty = self.shape.as_ref().map(|shape| ty(shape).with_varying(self.varying.clone()));
        ty.into_iter().collect()
    }
}

/// 2 × 3 ranks.
pub fn mesh() -> Mesh {
    Mesh::new([("data", 2), ("tensor", 3)]).expect("the mesh is well formed")
}

fn names(over: &[&str]) -> Vec<String> {
    over.iter().map(|name| name.to_string()).collect()
}

fn sample(op: impl Into<Op>, shape: &[usize], varying: &[&str]) -> CollectiveSample {
    CollectiveSample { op: op.into(), shape: Some(shape.to_vec()), varying: Varying::over(varying) }
}

/// Samples of each collective, over one axis and over both in either order.
pub fn collectives() -> Vec<CollectiveSample> {
    let both = ["data", "tensor"];
    let mut all = Vec::new();
    for kind in PReduceKind::ALL {
        let cases: [(&[&str], &[&str]); 4] = [
            (&["data"], &["data"]),
            (&["tensor"], &both),
            (&both, &both),
            (&["tensor", "data"], &both),
        ];
        for (over, varying) in cases {
            all.push(sample(PReduce { kind, over: names(over) }, &[2, 2], varying));
        }
    }
    all.push(sample(PVary { over: names(&["data"]) }, &[3], &[]));
    all.push(sample(PVary { over: names(&["tensor"]) }, &[3], &["data"]));
    all.push(sample(PVary { over: names(&both) }, &[3], &[]));
    let groups: [(&[&str], usize); 3] =
        [(&["data"], 2), (&["tensor"], 3), (&["tensor", "data"], 6)];
    for (over, size) in groups {
        let over = || names(over);
        for axis in 0..2 {
            for invariant in [false, true] {
                let gather = |axis, tiled| AllGather { over: over(), axis, size, tiled, invariant };
                all.push(sample(gather(axis + 1, false), &[2, 3], &both));
                all.push(sample(gather(axis, true), &[2, 3], &both));
            }
            let scatter = |tiled| PsumScatter { over: over(), axis, size, tiled };
            let mut shape = [2, 3];
            shape[axis] = size;
            all.push(sample(scatter(false), &shape, &both));
            shape[axis] = 2 * size;
            all.push(sample(scatter(true), &shape, &both));
            for concat_axis in 0..2 {
                let exchange = |tiled| {
                    let over = over();
                    AllToAll { over, split_axis: axis, concat_axis, size, tiled }
                };
                shape[axis] = size;
                all.push(sample(exchange(false), &shape, &both));
                shape[axis] = 2 * size;
                all.push(sample(exchange(true), &shape, &both));
            }
        }
        let rotation = (0..size).map(|rank| (rank, (rank + 1) % size)).collect();
        all.push(sample(PPermute { over: over(), perm: rotation }, &[2], &both));
        all.push(sample(PPermute { over: over(), perm: vec![(1, 0)] }, &[2], &both));
        let op = AxisIndex { over: over() }.into();
        all.push(CollectiveSample { op, shape: None, varying: Varying::default() });
    }
    all
}
