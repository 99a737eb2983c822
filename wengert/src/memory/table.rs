//! Memory problems and their solutions as CSV.
//!
//! The first line names the columns, in any order: `id`, `lower`, `upper` (exclusive: the first
//! moment after the buffer's live range) and `size`, and, if needed, `alignment` (of the offset),
//! `offset` (a fixed offset) and `alias` (the id of a buffer that shares its bytes, as for an
//! operation in place). Fields of the last three may be empty. A solution has the column `offset`
//! last, with a number in every line. Read again as a problem, it has only this solution.

use crate::atomic;
use crate::data::csv::{Records, line_at, mistake};
use crate::data::inflate::InflateLimit;
use crate::data::text;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;
use wengert_compiler::memory::assign::problem::{Buffer, Problem, Solution};
use wengert_core::{Diagnostic, Result, diagnostic};

/// The known columns.
const COLUMNS: [&str; 7] = ["id", "lower", "upper", "size", "alignment", "offset", "alias"];
/// Number of required columns.
const NEEDED: usize = 4;

/// A memory problem with the names of its buffers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    rows: Vec<Row>,
    problem: Problem,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Row {
    id: String,
    /// [lower, upper, size] of the line, and the constraints on its offset.
    numbers: [u64; 3],
    alignment: u64,
    alias: Option<String>,
    /// The problem's buffer that contains it.
    buffer: usize,
}

impl Table {
    /// Reads a file, gzipped or not.
    ///
    /// Errors: the file cannot be read; those of [`parse`](Self::parse).
    pub fn read(path: impl AsRef<Path>) -> Result<Table> {
        Table::read_within(path, InflateLimit::default())
    }

    /// [`read`](Self::read), where a gzipped file may inflate to `limit`.
    pub fn read_within(path: impl AsRef<Path>, limit: InflateLimit) -> Result<Table> {
        let path = path.as_ref();
        Table::parse(path, &text::read_within(path, limit)?)
    }

    /// Reads a text; `path` is for messages. Lines that share bytes become one buffer of the
    /// problem, whose live range spans theirs.
    ///
    /// Errors, with the line: a column is missing or unknown; a field is no number, or one too
    /// many; two lines have an id; a lifespan is empty; an alias names no buffer; buffers that
    /// share bytes have different offsets; two fixed buffers overlap; all sizes together are
    /// beyond 2⁶³ bytes.
    pub fn parse(path: &Path, text: &str) -> Result<Table> {
        Reader { path, text }.table()
    }

    /// A table of a problem's buffers with these names. Repeated names get numbers.
    ///
    /// # Panics
    ///
    /// If there are fewer names than buffers.
    pub fn new(problem: Problem, names: &[String]) -> Table {
        let mut used: BTreeMap<&str, usize> = BTreeMap::new();
        let row = |(n, buffer): (usize, &Buffer)| {
            let count = used.entry(&names[n]).and_modify(|count| *count += 1).or_insert(0);
            let id = if *count == 0 { names[n].clone() } else { format!("{}#{count}", names[n]) };
            let numbers = [buffer.lower, buffer.upper, buffer.size];
            Row { id, numbers, alignment: buffer.alignment, alias: None, buffer: n }
        };
        let rows = problem.buffers.iter().enumerate().map(row).collect();
        Table { rows, problem }
    }

    /// The problem. Its buffers are the lines, in order, unless lines share bytes.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Names of the problem's buffers: each joins the ids of the lines that share its bytes.
    pub fn names(&self) -> Vec<String> {
        let mut names = vec![String::new(); self.problem.buffers.len()];
        for row in &self.rows {
            let name = &mut names[row.buffer];
            *name += if name.is_empty() { "" } else { " = " };
            *name += &row.id;
        }
        names
    }

    /// The table with the offsets of a solution.
    ///
    /// # Panics
    ///
    /// If it has fewer offsets than the problem has buffers.
    pub fn print(&self, solution: &Solution) -> String {
        let aligned = self.rows.iter().any(|row| row.alignment != 1);
        let aliases = self.rows.iter().any(|row| row.alias.is_some());
        let mut writer = csv::Writer::from_writer(Vec::new());
        let mut write = |fields: [&str; 4], alignment: &str, alias: &str, offset: &str| {
            let optional = [aligned.then_some(alignment), aliases.then_some(alias), Some(offset)];
            writer.write_record(fields.into_iter().chain(optional.into_iter().flatten()))
        };
        let header = write(["id", "lower", "upper", "size"], "alignment", "alias", "offset");
        let mut rows = self.rows.iter().map(|row| {
            let [lower, upper, size] = row.numbers.map(|number| number.to_string());
            let offset = solution.offsets[row.buffer].to_string();
            let alias = row.alias.as_deref().unwrap_or("");
            write([&row.id, &lower, &upper, &size], &row.alignment.to_string(), alias, &offset)
        });
        header.and_then(|()| rows.try_for_each(|row| row)).expect("vectors take everything");
        let text = writer.into_inner().expect("vectors take everything");
        String::from_utf8(text).expect("the fields are texts")
    }

    /// Writes the table with the offsets of a solution, atomically.
    ///
    /// Error: the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>, solution: &Solution) -> Result<()> {
        atomic::write_bytes(path.as_ref(), self.print(solution).as_bytes())
    }
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
}

/// A parsed line.
struct Line {
    /// The byte where it begins.
    start: usize,
    row: Row,
    offset: Option<u64>,
}

impl Reader<'_> {
    fn table(&self) -> Result<Table> {
        let mut records = Records::new(self.path, self.text);
        let mut columns: Option<Vec<usize>> = None;
        let mut lines: Vec<Line> = Vec::new();
        let mut record = csv::StringRecord::new();
        while let Some(start) = records.read(&mut record)? {
            match &columns {
                None => columns = Some(self.columns(start, &record)?),
                Some(columns) => lines.push(self.line(start, columns, &record)?),
            }
        }
        if columns.is_none() {
            return Err(diagnostic!("`{}` holds no table: it has no line", self.path.display())
                .help("the first line names the columns: id,lower,upper,size"));
        }
        self.assemble(lines)
    }

    /// The column of each field.
    fn columns(&self, start: usize, record: &csv::StringRecord) -> Result<Vec<usize>> {
        let mut columns = Vec::new();
        for field in record {
            let Some(column) = COLUMNS.iter().position(|name| *name == field) else {
                return Err(self
                    .mistake(start, format!("`{field}` is no column"))
                    .help(format!("columns are {}", COLUMNS.join(", "))));
            };
            if columns.contains(&column) {
                return Err(self.mistake(start, format!("there are two columns `{field}`")));
            }
            columns.push(column);
        }
        match COLUMNS[..NEEDED].iter().enumerate().find(|(n, _)| !columns.contains(n)) {
            None => Ok(columns),
            Some((_, missing)) => Err(self
                .mistake(start, format!("there is no column `{missing}`"))
                .help("the first line names the columns: id,lower,upper,size")),
        }
    }

    fn line(&self, start: usize, columns: &[usize], record: &csv::StringRecord) -> Result<Line> {
        if record.len() != columns.len() {
            let what = format!("{} fields here, {} in the first line", record.len(), columns.len());
            return Err(self.mistake(start, what));
        }
        let field = |column: usize| {
            let at = columns.iter().position(|c| *c == column)?;
            record.get(at).filter(|text| !text.is_empty())
        };
        let value = |column: usize| -> Result<Option<u64>> {
            let Some(text) = field(column) else { return Ok(None) };
            let wrong = |_| {
                self.mistake(
                    start,
                    format!("`{text}` is no `{}`: it must be a whole number", COLUMNS[column]),
                )
            };
            text.parse().map(Some).map_err(wrong)
        };
        let needed = |column: usize| -> Result<u64> {
            value(column)?
                .ok_or_else(|| self.mistake(start, format!("the `{}` is missing", COLUMNS[column])))
        };
        let id = field(0).ok_or_else(|| self.mistake(start, "the `id` is missing"))?.to_owned();
        let numbers = [needed(1)?, needed(2)?, needed(3)?];
        if numbers[0] >= numbers[1] {
            let what =
                format!("`{id}` lives at no moment: lower is {}, upper {}", numbers[0], numbers[1]);
            return Err(self
                .mistake(start, what)
                .help("upper is the first moment at which it lives no more"));
        }
        let alignment = value(4)?.unwrap_or(1);
        if alignment == 0 {
            return Err(self
                .mistake(start, format!("the alignment of `{id}` is 0"))
                .help("leave it empty, or write 1"));
        }
        let alias = field(6).map(str::to_owned);
        let row = Row { id, numbers, alignment, alias, buffer: 0 };
        Ok(Line { start, row, offset: value(5)? })
    }

    fn assemble(&self, mut lines: Vec<Line>) -> Result<Table> {
        let mut of_id: HashMap<&str, usize> = HashMap::new();
        for (n, line) in lines.iter().enumerate() {
            if let Some(first) = of_id.insert(&line.row.id, n) {
                let what = format!(
                    "the id `{}` is that of line {}, too",
                    line.row.id,
                    line_at(self.text, lines[first].start)
                );
                return Err(self.mistake(line.start, what));
            }
        }
        // The first line of the lines that share bytes, found by a disjoint-set forest.
        let mut first: Vec<usize> = (0..lines.len()).collect();
        fn root(first: &mut [usize], mut n: usize) -> usize {
            while first[n] != n {
                first[n] = first[first[n]];
                n = first[n];
            }
            n
        }
        for (n, line) in lines.iter().enumerate() {
            let Some(alias) = &line.row.alias else { continue };
            let Some(other) = of_id.get(alias.as_str()) else {
                return Err(
                    self.mistake(line.start, format!("the alias `{alias}` is the id of no line"))
                );
            };
            let (a, b) = (root(&mut first, n), root(&mut first, *other));
            first[a.max(b)] = a.min(b);
        }
        let mut problem = Problem::default();
        let mut buffer_of: Vec<Option<usize>> = vec![None; lines.len()];
        for (n, line) in lines.iter_mut().enumerate() {
            let Line { start, row, offset: fixed } = line;
            let (start, id) = (*start, &row.id);
            let ([lower, upper, size], alignment, fixed) = (row.numbers, row.alignment, *fixed);
            let made = Buffer { lower, upper, size, alignment, fixed };
            if fixed.is_some_and(|offset| !offset.is_multiple_of(alignment)) {
                return Err(self.mistake(
                    start,
                    format!("the offset of `{id}` is no multiple of its alignment"),
                ));
            }
            let root = root(&mut first, n);
            let Some(buffer) = buffer_of[root] else {
                buffer_of[root] = Some(problem.push(made));
                row.buffer = problem.buffers.len() - 1;
                continue;
            };
            let shared = &mut problem.buffers[buffer];
            if let (Some(a), Some(b)) = (shared.fixed, made.fixed)
                && a != b
            {
                let what = format!(
                    "`{id}` shares the bytes of a buffer at offset {a}, and has offset {b}"
                );
                return Err(self.mistake(start, what));
            }
            let alignment = shared
                .alignment
                .checked_mul(made.alignment / gcd(shared.alignment, made.alignment));
            let alignment =
                alignment.ok_or_else(|| self.mistake(start, "there is no such alignment"))?;
            *shared = Buffer {
                lower: shared.lower.min(made.lower),
                upper: shared.upper.max(made.upper),
                size: shared.size.max(made.size),
                alignment,
                fixed: shared.fixed.or(made.fixed),
            };
            row.buffer = buffer;
        }
        self.check(&lines, &problem)?;
        Ok(Table { rows: lines.into_iter().map(|line| line.row).collect(), problem })
    }

    /// Checks that involve more than one line.
    fn check(&self, lines: &[Line], problem: &Problem) -> Result<()> {
        let line_of = |buffer: usize| lines.iter().find(|line| line.row.buffer == buffer);
        let start = |buffer: usize| line_of(buffer).map_or(0, |line| line.start);
        // An upper bound of the size: all buffers one after another, each aligned.
        let mut total = 0u64;
        for (n, buffer) in problem.buffers.iter().enumerate() {
            let end = buffer
                .fixed
                .unwrap_or(0)
                .checked_add(buffer.size)
                .and_then(|end| end.checked_add(buffer.alignment));
            total = end
                .and_then(|end| total.checked_add(end))
                .filter(|total| i64::try_from(*total).is_ok())
                .ok_or_else(|| {
                    self.mistake(
                        start(n),
                        "up to this line, the buffers are beyond 2^63 bytes together",
                    )
                })?;
        }
        let fixed: Vec<usize> =
            (0..problem.buffers.len()).filter(|n| problem.buffers[*n].fixed.is_some()).collect();
        let alone = Problem { buffers: fixed.iter().map(|n| problem.buffers[*n]).collect() };
        let offsets = alone.buffers.iter().map(|b| b.fixed.unwrap_or(0)).collect();
        match alone.conflict(&Solution { offsets, height: u64::MAX }) {
            None => Ok(()),
            Some((a, b)) if a == b => Err(self.mistake(
                start(fixed[a]),
                "the offset is no multiple of the alignment of all that share it",
            )),
            Some((a, b)) => {
                let [a, b] =
                    [a, b].map(|n| line_of(fixed[n]).map_or("?", |line| line.row.id.as_str()));
                let what = format!(
                    "`{a}` and `{b}` live at one moment and overlap where their offsets put them"
                );
                Err(self.mistake(start(fixed[0]), what))
            }
        }
    }

    fn mistake(&self, start: usize, what: impl fmt::Display) -> Diagnostic {
        mistake(self.path, self.text, (start, 1), format_args!(": {what}"))
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_compiler::memory::assign::minimize;

    fn parse(text: &str) -> Result<Table> {
        Table::parse(Path::new("buffers.csv"), text)
    }

    fn wrong(text: &str) -> String {
        parse(text).expect_err("this is wrong").to_string()
    }

    #[test]
    fn a_problem_becomes_a_solution() {
        let table =
            parse("id,lower,upper,size\na,0,2,4\nb,1,3,4\n\"c,d\",2,5,4\n").expect("a table");
        let least = minimize(table.problem(), 1000);
        assert!(least.is_least());
        let text = table.print(&least.solution);
        assert!(
            text.starts_with("id,lower,upper,size,offset\na,0,2,4,")
                && text.contains("\n\"c,d\",2,5,4,"),
            "{text}"
        );
        // Read again, it is the problem with only this solution.
        let again = parse(&text).expect("a table");
        assert!(again.problem().buffers.iter().all(|b| b.fixed.is_some()));
        assert_eq!(minimize(again.problem(), 0).solution, least.solution);
        assert_eq!(again.print(&least.solution), text);
    }

    #[test]
    fn aliases_share_bytes() {
        let text =
            "size,id,upper,lower,alias,alignment\n8,a,2,0,,\n4,b,4,2,a,16\n8,c,5,1,,\n4,d,6,4,b,\n";
        let table = parse(text).expect("a table");
        let [shared, other] = table.problem().buffers[..] else { panic!("two buffers") };
        assert_eq!((shared.lower, shared.upper, shared.size, shared.alignment), (0, 6, 8, 16));
        assert_eq!((other.lower, other.upper), (1, 5));
        let solution = minimize(table.problem(), 1000).solution;
        let printed = table.print(&solution);
        let offsets: Vec<&str> =
            printed.lines().skip(1).filter_map(|line| line.rsplit(',').next()).collect();
        assert!(
            offsets[0] == offsets[1] && offsets[1] == offsets[3] && offsets[0] != offsets[2],
            "{printed}"
        );
    }

    #[test]
    fn mistakes_are_named_with_their_lines() {
        assert!(wrong("").contains("no line"));
        assert!(wrong("id,lower,upper\n").contains("line 1: there is no column `size`"));
        assert!(wrong("id,lower,upper,size,colour\n").contains("`colour` is no column"));
        assert!(wrong("id,lower,upper,size,size\n").contains("two columns `size`"));
        let lines = |rest: &str| {
            wrong(&format!("id,lower,upper,size,offset,alias,alignment\n# a comment\n{rest}"))
        };
        assert!(
            lines("a,0,1,4,,,\na,0,1,4,,,\n").contains("line 4: the id `a` is that of line 3, too")
        );
        assert!(lines("a,0,1\n").contains("line 3: 3 fields here, 7 in the first line"));
        assert!(lines("a,0,x,4,,,\n").contains("`x` is no `upper`"));
        assert!(lines("a,0,-1,4,,,\n").contains("`-1` is no `upper`"));
        assert!(lines("a,0,,4,,,\n").contains("the `upper` is missing"));
        assert!(lines("a,3,3,4,,,\n").contains("lives at no moment"));
        assert!(lines("a,0,1,4,,b,\n").contains("the alias `b` is the id of no line"));
        assert!(lines("a,0,1,4,,,0\n").contains("the alignment of `a` is 0"));
        assert!(lines("a,0,1,4,6,,4\n").contains("no multiple of its alignment"));
        assert!(
            lines("a,0,1,4,6,,\nb,0,1,4,7,a,\n")
                .contains("`b` shares the bytes of a buffer at offset 6")
        );
        assert!(
            lines("a,0,1,4,6,,\nb,0,1,4,7,,\n")
                .contains("`a` and `b` live at one moment and overlap")
        );
        assert!(lines("a,0,1,4,6,,\nb,0,1,4,,a,4\n").contains("alignment of all that share it"));
        assert!(lines("a,0,1,18446744073709551615,,,\n").contains("beyond 2^63 bytes"));
        assert!(lines("a,0,1,4,18446744073709551615,,\n").contains("beyond 2^63 bytes"));
    }
}
