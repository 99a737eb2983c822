//! Training in f16 with a scaled loss: skipped steps, the least scale, resuming.

use super::*;
use wengert::optim::LossScale;
use wengert::precision::Precision;

/// Linear regression in f16, whose first steps are skipped. Its loss is multiplied by `factor`.
pub(super) fn program(scale: LossScale, factor: f32) -> Program {
    let w = Tensor::variable(TensorType::new(DType::F32, [3usize]), Initializer::Zeros);
    let mut program = wengert::Program::new();
    let x = || TensorType::new(DType::F32, [Dim::from("B"), Dim::from(3usize)]);
    let y = || TensorType::new(DType::F32, [Dim::from("B")]);
    program
        .function("step", |f| {
            let (x, y) = (f.input("x", x()), f.input("y", y()));
            let w = f.state("w", w.clone());
            let scaled = scale.clone().begin(f);
            let (loss, gradient) = scaled.value_and_grad(&w, |w: &Tensor| {
                // Twice a product, so that a cotangent is an operand.
                ((&x.dot(&(w * 1.0)) - &y).square() * factor).sum()
            });
            Sgd::new(0.05 / f64::from(factor)).momentum(0.5).step(f, &w, &gradient);
            scaled.finish(f, &gradient);
            f.output("loss", loss);
        })
        .unwrap();
    program
        .function("evaluate", |f| {
            let (x, y) = (f.input("x", x()), f.input("y", y()));
            let w = f.param("w", w.clone());
            f.output("squares", (&x.dot(&w) - &y).square().sum());
        })
        .unwrap();
    program.precision(&Precision::f16()).unwrap();
    assert!(program.get("step").unwrap().to_string().contains("f16"));
    program.into_inner()
}

/// A scale that is doubled often, so that later steps are skipped, too.
pub(super) fn often() -> LossScale {
    LossScale::dynamic().interval(4)
}

#[test]
fn a_run_in_f16_learns_and_logs_its_skipped_steps() {
    let folder = tempfile::tempdir().unwrap();
    let (mut scales, mut skipped) = (Vec::new(), Vec::new());
    let options = Options { folder: Some(folder.path()), ..Options::default() };
    let (report, session) = run(&recipe(), &program(often(), 256.0), options, &mut |event| {
        if let Event::Step(record) = event {
            assert!(record.metrics.is_empty(), "{record:?}");
            scales.push(record.loss_scale.unwrap());
            skipped.push(record.skipped);
        }
    })
    .unwrap();
    assert_eq!((scales[0], skipped[0]), (65536.0, true));
    for (n, skip) in skipped.iter().enumerate().take(279) {
        let next = scales[n + 1];
        assert!(next == scales[n] / if *skip { 2.0 } else { 1.0 } || next == scales[n] * 2.0);
    }
    let all = skipped.iter().filter(|skip| **skip).count();
    assert!(all > 10 && all < 90, "{all} steps were skipped");
    assert!(report.metrics[0].1 < 1e-3, "{report:?}");
    let w = session.variable("w").unwrap();
    for (w, wanted) in w.as_slice::<f32>().unwrap().iter().zip([1.0, -2.0, 0.5]) {
        assert!((w - wanted).abs() < 0.1, "{w} is not {wanted}");
    }
    let log = std::fs::read_to_string(folder.path().join("log.jsonl")).unwrap();
    let first = log.lines().next().unwrap();
    assert!(first.contains("\"loss_scale\":65536.0,\"skipped\":true,"), "{first}");
    assert_eq!(log.matches("\"skipped\":true").count(), skipped.iter().filter(|s| **s).count());
}

#[test]
fn a_gradient_that_the_least_scale_does_not_save_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { folder: Some(folder.path()), ..Options::default() };
    let recipe = Recipe { checkpoint: Cadence::Steps(1), ..recipe() };
    let program = program(LossScale::dynamic().initial(4.0), 1e6);
    let error = run(&recipe, &program, options, &mut |_| {}).unwrap_err();
    let TrainError::Diverged(diagnostic) = &error else { panic!("{error}") };
    let text = diagnostic.to_string();
    for wanted in ["not finite at step 3, with the least loss scale", "after step 2 is kept"] {
        assert!(text.contains(wanted), "{text}");
    }
    let kept = checkpoint::read(folder.path()).unwrap().unwrap();
    assert_eq!(kept.progress.step, 2);
    assert_eq!(kept.variables["loss_scale.scale"].get(0), Scalar::of(1.0f32));
    assert_eq!(kept.variables["w"].as_slice::<f32>().unwrap(), [0.0; 3]);
}
