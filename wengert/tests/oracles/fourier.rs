//! Fourier transforms and their derivatives against JAX in double precision.

use super::{Tally, arrays};
use wengert::fft::{fft, fftn, ifft, ifftn, irfft, rfft};
use wengert::prelude::*;

const LENGTHS: [usize; 14] = [1, 2, 3, 4, 5, 8, 12, 17, 60, 64, 97, 128, 134, 139];

#[test]
fn transforms_and_their_derivatives_are_those_of_jax() {
    let arrays = arrays("fourier.npz");
    let mut tally = Tally::default();
    let mut compare = |name: &str, f: &dyn Fn(&[Tensor]) -> Vec<Tensor>| {
        let inputs = (0..).map_while(|i| arrays.get(&format!("{name}.x{i}")));
        let types: Vec<TensorType> = inputs.map(Literal::ty).collect();
        tally.compare(name, &types, f, &arrays);
    };
    let parts =
        |all: [(Tensor, Tensor); 2]| all.into_iter().flat_map(|(re, im)| [re, im]).collect();
    for n in LENGTHS {
        compare(&format!("fft{n}"), &|v| {
            let z = (v[0].clone(), v[1].clone());
            parts([fft(&z), ifft(&z)])
        });
        compare(&format!("rfft{n}"), &|v| {
            let (re, im) = rfft(&v[0]);
            vec![re, im]
        });
        compare(&format!("irfft{n}"), &|v| vec![irfft(&(v[0].clone(), v[1].clone()), n)]);
    }
    compare("plane", &|v| {
        let z = (v[0].clone(), v[1].clone());
        parts([fftn(&z, &[0, 1]), ifftn(&z, &[0, 1])])
    });
    tally.report();
    assert!(tally.worst.0 < 1e-11, "{:?}", tally.worst);
    assert!(tally.compared > 20_000, "{}", tally.compared);
}
