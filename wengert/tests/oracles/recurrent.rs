//! An LSTM and its derivatives against PyTorch in double precision. `recurrent.py` wrote the file.

use super::{arrays, doubles};
use wengert::core::KeyPath;
use wengert::prelude::*;

#[test]
fn an_lstm_and_its_derivatives_are_those_of_pytorch() {
    let arrays = arrays("recurrent.npz");
    let mut program = Program::new();
    program
        .function("lstm", |f| {
            let input = |f: &mut FunctionBuilder, name: &str| f.input(name, arrays[name].ty());
            let state = |f: &mut FunctionBuilder, prefix: &str| LstmState {
                hidden: input(f, &format!("{prefix}hidden")),
                cell: input(f, &format!("{prefix}cell")),
            };
            let (x, begin) = (input(f, "x"), state(f, ""));
            let ct = (input(f, "ct_all"), state(f, "ct_last_"));
            let layer = f.param("layer", nn::with_dtype(&Lstm::new(4, 5), DType::F64));
            let given = (x, begin, layer);
            let ((all, last), pullback) = vjp(&given, |(x, begin, layer)| layer.call(x, begin));
            f.output("all", all);
            f.output("last_hidden", last.hidden);
            f.output("last_cell", last.cell);
            let (x, begin, layer) = pullback(&ct);
            f.output("d_x", x);
            let both = (begin, layer);
            both.visit_tensors(&KeyPath::root("d"), &mut |path, t| {
                let path = path.to_string();
                let name = path.rsplit('.').next().unwrap();
                f.output(&format!("d_{name}"), t);
            });
        })
        .unwrap();
    for device in [Device::Interpreter, Device::Cpu] {
        let mut session = Session::open(device).unwrap();
        for name in ["input", "recurrent", "bias"] {
            session.set_variable(&format!("layer.{name}"), &arrays[name]).unwrap();
        }
        let given = ["x", "hidden", "cell", "ct_all", "ct_last_hidden", "ct_last_cell"];
        let given = given.map(|name| (name, arrays[name].clone()));
        let outputs = session.compile(&program, "lstm", bind!()).unwrap().run(&given).unwrap();
        assert_eq!(outputs.iter().unwrap().count(), 9);
        for (name, found) in outputs.iter().unwrap() {
            let wanted = &arrays[name];
            assert_eq!(found.ty(), wanted.ty(), "{name}");
            for (found, wanted) in doubles(found).iter().zip(doubles(wanted)) {
                assert!(
                    (found - wanted).abs() <= 1e-13 * (1.0 + wanted.abs()),
                    "{device}: {name}: {found}, {wanted}"
                );
            }
        }
    }
}
