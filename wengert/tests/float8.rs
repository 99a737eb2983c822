//! 8-bit floats: they are stored, moved, converted and multiplied with scales, and nothing else.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

#[cfg(feature = "cuda")]
use wengert::core::call::{Call, Gemm, Scale, Scales};
#[cfg(feature = "cuda")]
use wengert::core::nest::{Buffer, BufferRole};
#[cfg(feature = "cuda")]
use wengert::core::plan::Step;
use wengert::core::{Target, graph};
use wengert::data::{read_all, write_all};
use wengert::format::{GraphFile, plan};
use wengert::pipeline::{Options, compile};
use wengert::prelude::*;

const FORMATS: [DType; 2] = [DType::F8E4M3FN, DType::F8E5M2];
const DEVICES: [Device; 3] = [Device::Cpu, Device::Emulator, Device::Interpreter];

type Method = fn(&Tensor) -> Tensor;

/// A program with one function, `@f`.
fn program(build: impl FnOnce(&mut FunctionBuilder)) -> Result<Program> {
    let mut program = Program::new();
    program.function("f", |f| build(f))?;
    Ok(program)
}

fn run(device: Device, program: &Program, inputs: &[(&str, &Literal)]) -> Vec<Literal> {
    let mut session = Session::open(device).unwrap();
    let outputs = session.compile(program, "f", bind!()).unwrap().run(inputs);
    outputs.and_then(|o| o.into_values()).unwrap_or_else(|e| panic!("{device}: {e}"))
}

/// Numbers without a pattern, in −2..2.
fn numbers(shape: &[usize], seed: usize) -> Literal {
    let count: usize = shape.iter().product();
    let number = |i: usize| ((i * 7919 + seed * 104_729) % 4001) as f32 / 1000.0 - 2.0;
    Literal::from_vec(shape, (0..count).map(number).collect()).unwrap()
}

/// The error of a program that cannot be built.
fn refused(build: impl FnOnce(&mut FunctionBuilder)) -> String {
    match program(build) {
        Ok(_) => panic!("the program is wrong"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn products_of_quantized_tensors_are_those_of_their_numbers() {
    let (x, w) = (numbers(&[2, 5, 70], 1), numbers(&[70, 33], 2));
    for dtype in FORMATS {
        for whole in [true, false] {
            let program = program(|f| {
                let (x, w) = (f.input("x", x.ty()), f.input("w", w.ty()));
                let ((x, x_scale), (w, w_scale)) = match whole {
                    true => (x.quantize(dtype, ..), w.quantize(dtype, ..)),
                    false => (x.quantize(dtype, -1), w.quantize(dtype, 0)),
                };
                f.output("y", x.scaled_matmul(&x_scale, &w, &w_scale));
                f.output("x", x.dequantize(&x_scale));
                f.output("w", w.dequantize(&w_scale));
            })
            .unwrap();
            for device in DEVICES {
                let outputs = run(device, &program, &[("x", &x), ("w", &w)]);
                let numbers = |l: &Literal| l.scalars().map(|s| s.to_f64()).collect::<Vec<_>>();
                let [y, dx, dw] = [0, 1, 2].map(|i| numbers(&outputs[i]));
                let (gx, gw) = (numbers(&x), numbers(&w));
                // A number is off by half a unit: 2⁻⁴ or 2⁻³ of itself, or of the least normal one.
                let half = if dtype == DType::F8E4M3FN { 2f64.powi(-4) } else { 2f64.powi(-3) };
                for (given, found) in gx.iter().zip(&dx).chain(gw.iter().zip(&dw)) {
                    let error = half * given.abs() * 1.0001 + 1e-4;
                    assert!((given - found).abs() <= error, "{given} became {found} in {dtype}");
                }
                for (at, found) in y.iter().enumerate() {
                    let (row, column) = (at / 33, at % 33);
                    let terms = (0..70).map(|k| dx[row * 70 + k] * dw[k * 33 + column]);
                    let (sum, size) =
                        terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + f64::abs(t)));
                    assert!((found - sum).abs() <= 1e-5 * size, "{found}, not {sum}, on {device}");
                }
            }
        }
    }
}

/// The products of a plan, and how many of its kernels convert 8-bit floats.
#[cfg(feature = "cuda")]
fn products_for(architecture: &str, program: &Program) -> (Vec<Gemm>, usize) {
    let target = wengert::target(architecture).unwrap();
    let plan = compile(program, "f", &bind!(), &target, &Options::default()).unwrap();
    let (mut products, mut conversions) = (Vec::new(), 0);
    plan.visit(&mut |step| match step {
        Step::Call { call: Call::Gemm(gemm), .. } => products.push(gemm.clone()),
        Step::Nest { nest, .. } => {
            let to_halves = |b: &Buffer| b.role == BufferRole::Out && b.dtype == DType::BF16;
            let reads = |b: &Buffer| b.role == BufferRole::In && b.dtype == DType::U8;
            let buffers = || plan.nests[*nest].parameters().map(|(_, buffer)| buffer);
            conversions += usize::from(buffers().any(reads) && buffers().any(to_halves));
        }
        _ => {}
    });
    (products, conversions)
}

/// The scale of a single row is one for the whole tensor, too. Beside scales of columns it counts
/// as one of rows, which the library takes.
#[test]
#[cfg(feature = "cuda")]
fn a_single_row_has_a_scale_of_the_other_operands_kind() {
    let program = program(|f| {
        let x = f.input("x", TensorType::new(DType::F8E4M3FN, [1usize, 64]));
        let w = f.input("w", TensorType::new(DType::F8E4M3FN, [64usize, 32]));
        let (s, t) = (f.input("s", f32("1,1")), f.input("t", f32("1,32")));
        f.output("y", x.scaled_matmul(&s, &w, &t));
    })
    .unwrap();
    let (products, _) = products_for("sm_90", &program);
    let rows = Some(Scales { lhs: Scale::Rows, rhs: Scale::Rows });
    assert_eq!((products.len(), products[0].scales), (1, rows));
}

/// Where tensor cores multiply 8-bit floats, the call takes them and their scales. Elsewhere it
/// takes bf16.
#[test]
#[cfg(feature = "cuda")]
fn a_product_takes_8_bit_floats_where_a_gpu_multiplies_them() {
    for whole in [true, false] {
        let program = program(|f| {
            let x = f.input("x", TensorType::new(DType::F8E4M3FN, [2usize, 24, 64]));
            let w = f.input("w", TensorType::new(DType::F8E5M2, [64usize, 32]));
            let (x_scale, w_scale) = if whole { ("1,1,1", "1,1") } else { ("2,24,1", "1,32") };
            let (s, t) = (f.input("s", f32(x_scale)), f.input("t", f32(w_scale)));
            let bias = f.input("bias", f32("32"));
            f.output("y", x.scaled_matmul(&s, &w, &t) + bias);
        })
        .unwrap();
        for architecture in ["sm_89", "sm_90", "sm_100", "sm_120"] {
            let (products, conversions) = products_for(architecture, &program);
            let [product] = products.as_slice() else { panic!("{products:?}") };
            assert_eq!(product.factors(), [DType::F8E4M3FN, DType::F8E5M2]);
            let scale = if whole { Scale::Whole } else { Scale::Rows };
            assert_eq!(product.scales, Some(Scales { lhs: scale, rhs: scale }));
            assert!(product.addends.bias && conversions == 0, "{architecture}");
        }
        for architecture in ["sm_80", "sm_86"] {
            let (products, conversions) = products_for(architecture, &program);
            assert_eq!(products.len(), 1);
            assert_eq!((products[0].operand, conversions), (DType::BF16, 2));
        }
    }
}

#[test]
fn a_tensor_of_zeros_has_scale_one() {
    let program = program(|f| {
        let (q, scale) = f.input("x", f32("2,3")).quantize(DType::F8E4M3FN, -1);
        f.output("q", q);
        f.output("scale", scale);
    })
    .unwrap();
    let x = Literal::from_vec(&[2, 3], vec![0.0f32, 0.0, 0.0, 448.0, -1.0, 0.0]).unwrap();
    for device in DEVICES {
        let outputs = run(device, &program, &[("x", &x)]);
        assert_eq!(outputs[0].to_string(), "2x3xf8e4m3fn=0.0 0.0 0.0 448.0 -1.0 0.0");
        assert_eq!(outputs[1].to_string(), "2x1xf32=1.0 1.0");
    }
}

/// A function that moves 8-bit floats in many ways: through loops, branches, states and constants.
fn moving(dtype: DType) -> Program {
    let built = program(|f| {
        let x = f.input("x", TensorType::new(dtype, [4usize, 6]));
        let at = f.input("at", i32(""));
        let start = Initializer::Constant(numbers(&[6], 4).convert(dtype));
        let w = f.state("w", Tensor::variable(TensorType::new(dtype, [6usize]), start));
        let w = w.stop_gradient();
        let constant = Tensor::constant(numbers(&[2, 6], 5).convert(dtype));
        let rows = Tensor::concatenate(&[&x, &constant], 0);
        let updated = rows.dynamic_update_slice(&w.reshape([1usize, 6]), &[&at, &at.zeros_like()]);
        let indices = Literal::from_vec(&[5], vec![5i32, 0, 2, 2, 1]).unwrap();
        let taken = updated.index_select(0, &Tensor::constant(indices));
        let is_large = taken.convert(DType::F32).gt(0.5);
        let chosen = is_large.select(&taken, &taken.flip(1));
        let (_, looped) = control::while_loop(
            &(at.zeros_like(), chosen),
            |(n, _)| n.lt(3),
            |(n, t)| (n + 1, t.roll(1, 1).matrix_transpose().reshape([5usize, 6])),
        );
        let branch = control::cond(&at.gt(1), || looped.clone(), || looped.reverse(0));
        f.output("y", &branch);
        f.output("wide", branch.convert(DType::F64));
        f.output("bits", branch.bitcast(DType::U8));
        f.output("part", updated.slice_axis(0, 1, 3).matrix_transpose());
        let grown = (w.convert(DType::F32) * 1.5).convert(dtype);
        f.update("w", &grown);
    });
    built.unwrap()
}

/// Two runs of a function on one device; the second one has the state of the first.
fn twice(device: Device, program: &graph::Program, dtype: DType) -> Vec<Literal> {
    let x = numbers(&[4, 6], 3).convert(dtype);
    let mut session = Session::open(device).unwrap();
    session.compile(program, "init", bind!()).unwrap().run::<Literal>(&[]).unwrap();
    let mut step = session.compile(program, "f", bind!()).unwrap();
    let mut run = |at: i32| {
        let inputs = [("x", &x), ("at", &Literal::from(at))];
        step.run(&inputs).unwrap().into_values().unwrap()
    };
    [run(3), run(1)].concat()
}

#[test]
fn elements_are_moved_bit_for_bit_on_every_device() {
    for dtype in FORMATS {
        let program = moving(dtype);
        let expected = twice(Device::Interpreter, &program, dtype);
        assert_eq!(expected.len(), 8);
        assert_eq!(expected[0].dtype(), dtype);
        assert_eq!(expected[0].bitcast(DType::U8).unwrap(), expected[2]);
        assert_ne!(expected[0], expected[4]);
        for device in [Device::Cpu, Device::Emulator] {
            assert_eq!(twice(device, &program, dtype), expected, "{dtype} on {device}");
        }
    }
}

#[test]
fn files_keep_the_dtype() {
    let folder = tempfile::tempdir().unwrap();
    for dtype in FORMATS {
        let program = moving(dtype);
        let path = folder.path().join("f.graph");
        program.save(&path).unwrap();
        let loaded = GraphFile::read(&path).unwrap().program;
        assert_eq!(twice(Device::Cpu, &loaded, dtype), twice(Device::Interpreter, &program, dtype));
        let options = Options::default();
        let compiled = compile(&program, "f", &bind!(), &Target::cpu(), &options).unwrap();
        assert!(compiled.inputs.iter().any(|input| input.name == "x"));
        let path = folder.path().join("f.plan");
        plan::write(&path, &compiled).unwrap();
        assert_eq!(plan::read(&path).unwrap(), compiled);
        let path = folder.path().join("x.safetensors");
        let x = numbers(&[4, 6], 3).convert(dtype);
        write_all(&path, [("x", &x)]).unwrap();
        assert_eq!(read_all(&path).unwrap(), [("x".to_owned(), x)].into());
    }
}

#[test]
fn arithmetic_is_refused_with_the_remedy() {
    let x = || TensorType::new(DType::F8E4M3FN, [2usize, 3]);
    let ops: [Method; 6] = [
        |x| x + x,
        |x| x.exp(),
        |x| x.sum(),
        |x| x.lt(x).convert(DType::F32),
        |x| x.dot(&x.matrix_transpose()),
        |x| x.argsort(1),
    ];
    for op in ops {
        let error = refused(|f| {
            let x = f.input("x", x());
            f.output("y", op(&x));
        });
        assert!(error.contains("there is no arithmetic in f8e4m3fn"), "{error}");
        assert!(error.contains("convert the operand to bf16 or f32"), "{error}");
        assert!(error.contains("float8.rs"), "{error}");
    }
}

#[test]
fn wrong_operands_of_quantized_products_are_errors() {
    let cases: [(&str, Method); 6] = [
        ("f16 is no 8-bit float", |x| x.quantize(DType::F16, ..).0),
        ("has no axis", |x| x.quantize(DType::F8E5M2, 7).1),
        ("is not of floats", |x| x.convert(DType::I32).quantize(DType::F8E5M2, ..).0),
        ("f32 is no 8-bit float", |x| x.dequantize(&x.sum())),
        ("is not constant along axis 1", |x| {
            let (q, scale) = x.quantize(DType::F8E4M3FN, 0);
            q.scaled_matmul(&scale, &q.matrix_transpose(), &Tensor::constant(1.0f32))
        }),
        ("has extent 3, axis 0", |x| {
            let (q, scale) = x.quantize(DType::F8E4M3FN, ..);
            q.scaled_matmul(&scale, &q, &scale)
        }),
    ];
    for (message, op) in cases {
        let error = refused(|f| {
            let x = f.input("x", f32("2,3"));
            f.output("y", op(&x));
        });
        assert!(error.contains(message), "{error}");
        assert!(error.contains("float8.rs"), "{error}");
    }
}

#[test]
fn a_conversion_has_no_derivative_and_the_difference_trains() {
    let rounded = |x: &Tensor| x.convert(DType::F8E4M3FN).convert(DType::F32);
    let error = refused(|f| {
        let x = f.input("x", f32("3"));
        f.output("d", grad(&x, |x| rounded(x).square().sum()));
    });
    assert!(
        error.contains("`convert_element_type` has no derivative: it results in f8e4m3fn"),
        "{error}"
    );
    assert!(error.contains("stop_gradient"), "{error}");
    let program = program(|f| {
        let x = f.input("x", f32("3"));
        f.output("d", grad(&x, |x| (x + (rounded(x) - x).stop_gradient()).square().sum()));
    });
    let x = Literal::from_vec(&[3], vec![1.03f32, -0.77, 3.2]).unwrap();
    for device in DEVICES {
        let d = run(device, program.as_ref().unwrap(), &[("x", &x)]).swap_remove(0);
        assert_eq!(d.to_string(), "3xf32=2.0 -1.5 6.5");
    }
}
