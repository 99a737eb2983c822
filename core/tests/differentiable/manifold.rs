//! Unit quaternions. Their tangent vectors have three coordinates, and they move by the exponential
//! map.

use crate::support::{elements, vector};
use wengert_core::{Differentiable, KeyPath, Tensor};

/// A rotation as a unit quaternion (w, x, y, z).
struct Rotation(Tensor);

/// A turn about three body-fixed axes, by half angles: q̇ = q ⊗ (0, v). The columns of v ↦ q ⊗ (0,
/// v) are orthonormal.
#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
struct Turn(Tensor);

impl Rotation {
    /// The matrix of v ↦ q ⊗ (0, v), 4 × 3, row by row.
    fn frame(&self) -> Vec<[Tensor; 3]> {
        let [w, x, y, z] = [0, 1, 2, 3].map(|i| self.0.slice_axis(0, i, i + 1));
        vec![
            [-&x, -&y, -&z],
            [w.clone(), -&z, y.clone()],
            [z.clone(), w.clone(), -&x],
            [-&y, x.clone(), w.clone()],
        ]
    }

    /// q ⊗ (0, v).
    fn along(&self, v: &Tensor) -> Tensor {
        let v = [0, 1, 2].map(|i| v.slice_axis(0, i, i + 1));
        let row = |row: &[Tensor; 3]| &row[0] * &v[0] + &row[1] * &v[1] + &row[2] * &v[2];
        let rows: Vec<Tensor> = self.frame().iter().map(row).collect();
        Tensor::concatenate(&rows.iter().collect::<Vec<_>>(), 0)
    }
}

impl Differentiable for Rotation {
    type TangentVector = Turn;
    fn visit_tensors(&self, path: &KeyPath, visit: &mut dyn FnMut(&KeyPath, &Tensor)) {
        visit(path, &self.0);
    }
    fn map_tensors(
        &self,
        path: &KeyPath,
        map: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor,
    ) -> Self {
        Rotation(map(path, &self.0))
    }
    fn tangent(&self, path: &KeyPath, make: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor) -> Turn {
        let component = make(path, &self.0);
        let component = [0, 1, 2, 3].map(|i| component.slice_axis(0, i, i + 1));
        let frame = self.frame();
        let column =
            |j: usize| (0..4).map(|i| &frame[i][j] * &component[i]).reduce(|a, b| a + b).unwrap();
        let columns = [0, 1, 2].map(column);
        Turn(Tensor::concatenate(&columns.iter().collect::<Vec<_>>(), 0))
    }
    fn components(&self, turn: &Turn, give: &mut dyn FnMut(&Tensor)) {
        give(&self.along(&turn.0));
    }
    /// exp: q ⊗ (cos |v|, v · sin |v| / |v|).
    fn move_along(&self, turn: &Turn) -> Self {
        let length = turn.0.square().sum().sqrt();
        // `scaled_by` is the strong product: a zero tangent moves nothing, although 0/0 is NaN.
        Rotation(&self.0 * length.cos() + self.along(&turn.0.scaled_by(&(length.sin() / &length))))
    }
    fn zero_tangent(&self) -> Turn {
        Turn(vector(&[0.0; 3]))
    }
}

const Q: [f64; 4] = [0.6, 0.0, 0.8, 0.0];

#[test]
fn a_tangent_is_taken_apart_and_put_together_again() {
    let again = elements(|| {
        let q = Rotation(vector(&Q));
        let mut components = Vec::new();
        q.components(&Turn(vector(&[1.0, 2.0, 3.0])), &mut |t| components.push(t.clone()));
        q.tangent(&KeyPath::default(), &mut |_, _| components[0].clone())
    });
    again
        .iter()
        .zip([1.0, 2.0, 3.0])
        .for_each(|(a, b)| assert!((a - b).abs() < 1e-15, "{again:?}"));
}

#[derive(Differentiable)]
#[differentiable(crate = wengert_core, synthesize = ArmTangent)]
struct Arm {
    joints: Vec<Rotation>,
    length: Tensor,
}

#[test]
fn moving_a_model_moves_its_manifolds_along_their_exponential_map() {
    let moved = elements(|| {
        let arm = Arm { joints: vec![Rotation(vector(&Q))], length: vector(&[2.0]) };
        // A quarter turn about y. It adds π/4 to the half angle of q.
        let turn = Turn(vector(&[0.0, std::f64::consts::FRAC_PI_4, 0.0]));
        let tangent = ArmTangent { joints: vec![turn], length: vector(&[0.5]) };
        arm.move_along(&tangent)
    });
    let half = 0.8f64.atan2(0.6) + std::f64::consts::FRAC_PI_4;
    for (a, b) in moved.iter().zip([half.cos(), 0.0, half.sin(), 0.0, 2.5]) {
        assert!((a - b).abs() < 1e-15, "{moved:?}");
    }
}
