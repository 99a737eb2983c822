//! Tables of aligned columns for a terminal.

use std::fmt;

/// Rows under a header. The first columns are texts, aligned left; the others are numbers, aligned
/// right.
pub struct Table {
    texts: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table of these columns, of which the first `texts` are aligned left.
    pub fn new<'a>(texts: usize, header: impl IntoIterator<Item = &'a str>) -> Table {
        Table { texts, rows: vec![header.into_iter().map(str::to_owned).collect()] }
    }

    /// Adds a row with a cell for each column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    /// One line for each row, with its line break.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths = vec![0; self.rows[0].len()];
        for (width, cell) in self.rows.iter().flat_map(|row| widths_of(row)) {
            widths[width] = widths[width].max(cell);
        }
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                line += match (column < self.texts, column) {
                    (true, 0) => format!("{cell:<width$}"),
                    (true, _) => format!("  {cell:<width$}"),
                    (false, _) => format!("  {cell:>width$}"),
                }
                .as_str();
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn widths_of(row: &[String]) -> impl Iterator<Item = (usize, usize)> + '_ {
    row.iter().map(|cell| cell.chars().count()).enumerate()
}

/// A number of things.
pub fn counted(count: usize, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{} {what}{s}", grouped(count as u64))
}

/// A count with its digits in groups of three: `1,234,567`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(2, ["name", "type", "count"]);
        table.row(["größe", "f32[2]", "7"].map(String::from));
        table.row(["b", "", "1,234"].map(String::from));
        assert_eq!(
            table.to_string(),
            "name   type    count\ngröße  f32[2]      7\nb              1,234\n"
        );
    }

    #[test]
    fn digits_are_grouped() {
        for (count, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (12345678, "12,345,678")] {
            assert_eq!(grouped(count), text);
        }
    }
}
