//! A closure as a Wengert list: traced, printed, differentiated, compiled and called. Also a
//! computation that records its list as it runs.

use wengert::prelude::*;

/// xⁿ. The loop runs in Rust, so a list contains only the products.
fn pow(x: &Tensor, n: usize) -> Tensor {
    (1..n).fold(x.clone(), |y, _| y * x)
}

/// √x by Newton's method until the last step is small. The number of steps depends on x.
fn newton(x: &Tensor) -> Result<(Tensor, usize)> {
    let mut root = x * 0.5;
    for steps in 1.. {
        let next = (&root + x / &root) * 0.5;
        let change = (&next - &root).abs().item()?;
        root = next;
        if change < 1e-12 {
            return Ok((root, steps));
        }
    }
    unreachable!("there are as many steps as it takes")
}

/// The text that the example prints.
///
/// # Errors
///
/// If a step of the example fails.
pub fn report() -> Result<String> {
    let mut out = String::new();
    let mut say = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    let number = |x: f64| Tensor::constant(x);

    // Define, then run: the closure runs once on a tensor without a value, and its operations are
    // recorded.
    let cube = trace(&number(0.0), |x| pow(x, 3))?;
    let dcube = cube.grad()?;
    say(format!("x³:\n{cube}"));
    say(format!("its derivative:\n{dcube}"));
    let mut session = Session::open(Device::Cpu)?;
    let mut compiled = session.compile_list(&dcube)?;
    for x in [5.0, 2.0] {
        say(format!("at {x}: {}", compiled.call(&number(x))?.item()?));
    }
    say(format!("its own derivative, at 5: {}\n", dcube.grad()?.evaluate(&number(5.0))?.item()?));

    // Define by run: every operation is computed at once, so the loop can read its results.
    let x = Tracked::new(&number(2.0));
    let (root, steps) = newton(&x)?;
    let slope = x.gradient(&root);
    say(format!("√2 = {:.12} after {steps} steps, with slope {:.12}", root.item()?, slope.item()?));
    let list = x.list(&root)?;
    say(format!("what was done:\n{list}"));
    // The list of these steps is a program that is valid for nearby numbers.
    say(format!("at 2.25: {:.12}", list.evaluate(&number(2.25))?.item()?));
    Ok(out)
}
