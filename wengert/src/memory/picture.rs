//! The arena over time, as SVG: moments on the x axis, bytes on the y axis, a rectangle for each
//! buffer.

use std::fmt::{self, Write};
use wengert_compiler::memory::assign::bound::load;
use wengert_compiler::memory::assign::problem::{Problem, Solution};

/// Extent of the drawing, without its margins.
const SIZE: [f64; 2] = [1200.0, 600.0];
const MARGIN: f64 = 70.0;

/// Draws a solution, and the load as a line. A tooltip shows a buffer's name, bytes and moments.
///
/// `names` are the names of the buffers.
///
/// # Panics
///
/// If there are fewer names or offsets than buffers.
pub fn picture(problem: &Problem, solution: &Solution, names: &[String]) -> String {
    let mut text = String::new();
    draw(&mut text, problem, solution, names).expect("strings take everything");
    text
}

/// Begins a drawing of this extent within margins, on white.
pub(super) fn begin(to: &mut String, [width, height]: [f64; 2], margin: f64) -> fmt::Result {
    writeln!(
        to,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" \
         font-family=\"sans-serif\" font-size=\"13\">",
        width + 2.0 * margin,
        height + 2.0 * margin
    )?;
    writeln!(to, "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>")
}

fn draw(to: &mut String, problem: &Problem, solution: &Solution, names: &[String]) -> fmt::Result {
    let [width, height] = SIZE;
    let living = || problem.buffers.iter().enumerate().filter(|(_, b)| b.lives());
    let first = living().map(|(_, b)| b.lower).min().unwrap_or(0);
    let last = living().map(|(_, b)| b.upper).max().unwrap_or(1).max(first + 1);
    let x = |moment: u64| MARGIN + width * (moment - first) as f64 / (last - first) as f64;
    let y = |bytes: u64| MARGIN + height - height * bytes as f64 / solution.height.max(1) as f64;
    begin(to, SIZE, MARGIN)?;
    for (n, buffer) in living() {
        let offset = solution.offsets[n];
        let (left, right, top, bottom) =
            (x(buffer.lower), x(buffer.upper), y(offset + buffer.size), y(offset));
        // Consecutive numbers get distant hues.
        let hue = (n as f64 * 137.508) % 360.0;
        writeln!(
            to,
            "<rect x=\"{left:.2}\" y=\"{top:.2}\" width=\"{:.2}\" height=\"{:.2}\" \
             fill=\"hsl({hue:.0},55%,72%)\" stroke=\"#444444\" stroke-width=\"0.3\">\
             <title>{}: bytes {} to {}, moments {} to {}</title></rect>",
            right - left,
            bottom - top,
            escaped(&names[n]),
            offset,
            offset + buffer.size,
            buffer.lower,
            buffer.upper
        )?;
    }
    let mut line = String::new();
    let mut now = 0;
    for (moment, load) in load(problem) {
        let at = x(moment.clamp(first, last));
        write!(
            line,
            "{at:.2},{:.2} {at:.2},{:.2} ",
            y(now.min(solution.height)),
            y(load.min(solution.height))
        )?;
        now = load;
    }
    writeln!(
        to,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"#000000\" stroke-width=\"1.2\"/>",
        line.trim_end()
    )?;
    let (left, bottom, top) = (MARGIN, MARGIN + height, MARGIN);
    writeln!(
        to,
        "<path d=\"M{left} {top}V{bottom}H{}\" fill=\"none\" stroke=\"#000000\"/>",
        left + width
    )?;
    writeln!(to, "<text x=\"{left}\" y=\"{:.1}\">{} bytes</text>", top - 8.0, solution.height)?;
    writeln!(to, "<text x=\"{left}\" y=\"{:.1}\">moment {first}</text>", bottom + 20.0)?;
    writeln!(
        to,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{last}</text>",
        left + width,
        bottom + 20.0
    )?;
    writeln!(to, "</svg>")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_compiler::memory::assign::problem::Buffer;

    #[test]
    fn every_buffer_is_drawn_and_named() {
        let problem = Problem { buffers: vec![Buffer::new(3, 5, 10), Buffer::new(4, 9, 20)] };
        let solution = Solution { offsets: vec![20, 0], height: 30 };
        let text = picture(&problem, &solution, &["<a>".into(), "b".into()]);
        assert_eq!(text.matches("<title>").count(), 2);
        assert!(
            text.contains("<title>&lt;a&gt;: bytes 20 to 30, moments 3 to 5</title>"),
            "{text}"
        );
        assert!(text.contains("moment 3") && text.contains(">9<") && text.contains("30 bytes"));
        assert!(text.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn nothing_is_a_picture_too() {
        assert!(picture(&Problem::default(), &Solution::default(), &[]).contains("</svg>"));
    }
}
