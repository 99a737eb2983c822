//! A curve of any number of values in a few lines of text.

/// Most points that are kept. Further values are averaged.
const MOST: usize = 512;

/// A sequence of values, averaged in groups of equal size.
#[derive(Debug)]
pub struct Curve {
    points: Vec<f64>,
    /// Values in each point.
    group: usize,
    /// Sum and number of the values that are no point yet.
    open: (f64, usize),
}

impl Default for Curve {
    fn default() -> Curve {
        Curve { points: Vec::new(), group: 1, open: (0.0, 0) }
    }
}

/// Parts of a cell, from the bottom.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

impl Curve {
    /// Adds a value.
    pub fn push(&mut self, value: f64) {
        self.open = (self.open.0 + value, self.open.1 + 1);
        if self.open.1 < self.group {
            return;
        }
        self.points.push(self.open.0 / self.open.1 as f64);
        self.open = (0.0, 0);
        if self.points.len() == MOST {
            self.points = self.points.chunks(2).map(mean).collect();
            self.group *= 2;
        }
    }

    /// The least and the greatest point.
    pub fn range(&self) -> Option<(f64, f64)> {
        let least = self.points.iter().copied().min_by(f64::total_cmp)?;
        Some((least, self.points.iter().copied().max_by(f64::total_cmp)?))
    }

    /// The curve in `rows` lines of at most `columns` characters, the top line first. Heights are
    /// logarithmic if the values are positive and range over a factor of 10.
    pub fn lines(&self, rows: usize, columns: usize) -> Vec<String> {
        let Some((least, greatest)) = self.range() else { return vec![String::new(); rows] };
        let is_wide = least > 0.0 && greatest > 10.0 * least;
        let scale = |value: f64| if is_wide { value.ln() } else { value };
        let (low, high) = (scale(least), scale(greatest));
        let cells = 8 * rows;
        // The lowest point has a line, so that it is seen.
        let height = |value: f64| {
            let share = if high > low { (scale(value) - low) / (high - low) } else { 0.5 };
            1 + (share * (cells - 1) as f64).round() as usize
        };
        let heights: Vec<usize> = self.columns(columns).into_iter().map(height).collect();
        let line = |row: usize| {
            let below = 8 * (rows - 1 - row);
            heights.iter().map(|height| EIGHTHS[height.saturating_sub(below).min(8)]).collect()
        };
        (0..rows).map(line).collect()
    }

    /// At most `columns` values: the points, or means of neighbours if there are more.
    fn columns(&self, columns: usize) -> Vec<f64> {
        let (n, columns) = (self.points.len(), columns.min(self.points.len()));
        (0..columns)
            .map(|at| mean(&self.points[at * n / columns..(at + 1) * n / columns]))
            .collect()
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(values: impl IntoIterator<Item = f64>) -> Curve {
        let mut curve = Curve::default();
        values.into_iter().for_each(|value| curve.push(value));
        curve
    }

    #[test]
    fn heights_follow_the_values() {
        assert_eq!(curve([1.0, 8.0, 4.0]).lines(1, 10), ["▁█▄"]);
        assert_eq!(curve([0.0, 15.0, 7.0]).lines(2, 10), [" █ ", "▁██"]);
        assert_eq!(curve([5.0, 5.0]).lines(1, 10), ["▅▅"]);
        assert_eq!(curve([]).lines(2, 10), ["", ""]);
        // Each tenth is as far below as the one before.
        assert_eq!(curve([1.0, 0.1, 0.01]).lines(1, 10), ["█▅▁"]);
    }

    #[test]
    fn many_values_are_averaged() {
        let long = curve((0..100_000).map(|i| 1e6 + f64::from(i)));
        assert!(long.points.len() < MOST && long.group == 256, "{}", long.group);
        let [line] = &long.lines(1, 8)[..] else { panic!("a line") };
        assert_eq!(line, "▁▂▃▄▅▆▇█");
        assert_eq!(curve([1.0, 3.0, 7.0, 9.0]).columns(2), [2.0, 8.0]);
        assert_eq!(long.lines(3, 40)[2].chars().count(), 40);
    }
}
