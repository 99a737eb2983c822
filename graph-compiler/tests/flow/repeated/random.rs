//! Random nests of loops and branches that pass and return the same value several times.

use std::fmt::Write;
use wengert_testing::Random;

/// A value: its name and its rank. All extents are 2.
type Value = (String, usize);

fn ty(rank: usize) -> String {
    format!("f64[{}]", vec!["2"; rank].join(","))
}

struct Writer {
    random: Random,
    text: String,
    next: usize,
}

/// The text of a function.
pub fn nest(seed: u64) -> String {
    let mut writer = Writer { random: Random(seed), text: String::new(), next: 0 };
    writer.text += "func @f(%x: f64[2,2,2], %p: bool[], %n: i32[]) -> (";
    let at = writer.text.len();
    let outputs = writer.body(vec![("%x".into(), 3)], 3);
    let types: Vec<String> = outputs.iter().map(|(_, rank)| ty(*rank)).collect();
    writer.give(&outputs);
    writer.text.insert_str(at, &format!("{}) {{\n", types.join(", ")));
    writer.text
}

impl Writer {
    fn name(&mut self) -> String {
        self.next += 1;
        format!("%v{}", self.next)
    }

    /// Several values, with repetitions.
    fn some(&mut self, of: &[Value], most: usize) -> Vec<Value> {
        (0..self.random.below(most + 1)).map(|_| of[self.random.below(of.len())].clone()).collect()
    }

    fn give(&mut self, outputs: &[Value]) {
        let names: Vec<&str> = outputs.iter().map(|(name, _)| name.as_str()).collect();
        writeln!(self.text, "return {}\n}}", names.join(", ")).unwrap();
    }

    /// Writes the equations of a body. Returns values for its outputs.
    fn body(&mut self, mut values: Vec<Value>, depth: usize) -> Vec<Value> {
        for _ in 0..2 + self.random.below(4) {
            match self.random.below(6) {
                0 | 1 if depth > 0 => self.scan(&mut values, depth),
                2 if depth > 0 => self.branch(&mut values, depth),
                3 => {
                    let (a, rank) = values[self.random.below(values.len())].clone();
                    let same: Vec<Value> =
                        values.iter().filter(|(_, r)| *r == rank).cloned().collect();
                    let (b, _) = same[self.random.below(same.len())].clone();
                    let name = self.name();
                    writeln!(self.text, "{name}: {} = mul {a}, {b}", ty(rank)).unwrap();
                    values.push((name, rank));
                }
                _ => {
                    let (a, rank) = values[self.random.below(values.len())].clone();
                    let op = ["sin", "cos"][self.random.below(2)];
                    // Written twice, it gives two equal values.
                    for _ in 0..1 + self.random.below(2) {
                        let name = self.name();
                        writeln!(self.text, "{name}: {} = {op} {a}", ty(rank)).unwrap();
                        values.push((name, rank));
                    }
                }
            }
        }
        let mut outputs = self.some(&values, 3);
        outputs.extend(values.last().cloned());
        outputs
    }

    /// Declares results and returns their text.
    fn results(&mut self, ranks: &[usize], values: &mut Vec<Value>) -> String {
        let mut list = Vec::new();
        for rank in ranks {
            let name = self.name();
            list.push(format!("{name}: {}", ty(*rank)));
            values.push((name, *rank));
        }
        list.join(", ")
    }

    /// New inputs of a region for these ranks.
    fn region(&mut self, ranks: &[usize]) -> Vec<Value> {
        let inputs: Vec<Value> = ranks.iter().map(|rank| (self.name(), *rank)).collect();
        let list: Vec<String> =
            inputs.iter().map(|(n, rank)| format!("{n}: {}", ty(*rank))).collect();
        writeln!(self.text, "region ({}) {{", list.join(", ")).unwrap();
        inputs
    }

    fn scan(&mut self, values: &mut Vec<Value>, depth: usize) {
        let sliceable: Vec<Value> = values.iter().filter(|(_, rank)| *rank > 0).cloned().collect();
        let carries = self.some(values, 2);
        let slices = if sliceable.is_empty() { Vec::new() } else { self.some(&sliceable, 3) };
        let captures = self.some(values, 2);
        let inputs: Vec<usize> = (carries.iter().map(|(_, rank)| *rank))
            .chain(slices.iter().map(|(_, rank)| rank - 1))
            .chain(captures.iter().map(|(_, rank)| *rank))
            .collect();
        if inputs.is_empty() {
            return;
        }
        // The region is written first, since its outputs determine the results.
        let before = std::mem::take(&mut self.text);
        let given = self.region(&inputs);
        let made = self.body(given.clone(), depth - 1);
        let mut outputs: Vec<Value> = Vec::new();
        for (n, (_, rank)) in carries.iter().enumerate() {
            let same: Vec<&Value> = made.iter().filter(|(_, r)| r == rank).collect();
            outputs.push(if same.is_empty() {
                given[n].clone()
            } else {
                same[self.random.below(same.len())].clone()
            });
        }
        outputs.extend(made.into_iter().filter(|(_, rank)| *rank < 3));
        if outputs.is_empty() {
            outputs.push(given[0].clone());
        }
        if outputs.iter().skip(carries.len()).any(|(_, rank)| *rank >= 3) {
            outputs.truncate(carries.len());
        }
        self.give(&outputs);
        let region = std::mem::replace(&mut self.text, before);
        let ranks: Vec<usize> = outputs
            .iter()
            .enumerate()
            .map(|(n, (_, r))| r + usize::from(n >= carries.len()))
            .collect();
        if ranks.is_empty() {
            return;
        }
        let counted = self.random.below(4) == 0;
        let operands: Vec<String> = counted
            .then(|| "%n".to_owned())
            .into_iter()
            .chain(carries.iter().chain(&slices).chain(&captures).map(|(name, _)| name.clone()))
            .collect();
        // The count is not in scope within regions.
        if counted && depth < 3 {
            return;
        }
        let results = self.results(&ranks, values);
        let (reverse, n, c) = (self.random.below(3) == 0, carries.len(), captures.len());
        writeln!(
            self.text,
            "{results} = scan {} {{captures={c}, carries={n}, counted={counted}, length=2, \
             reverse={reverse}}}",
            operands.join(", ")
        )
        .unwrap();
        self.text += &region;
    }

    fn branch(&mut self, values: &mut Vec<Value>, depth: usize) {
        // The predicate is not in scope within regions.
        let captures = self.some(values, 3);
        if captures.is_empty() || depth < 3 {
            return;
        }
        let ranks: Vec<usize> = captures.iter().map(|(_, rank)| *rank).collect();
        let before = std::mem::take(&mut self.text);
        let given = self.region(&ranks);
        let outputs = self.body(given, depth - 1);
        self.give(&outputs);
        let given = self.region(&ranks);
        let mut made = self.body(given.clone(), depth - 1);
        made.extend(given);
        let result_ranks: Vec<usize> = outputs.iter().map(|(_, rank)| *rank).collect();
        let mut others = Vec::new();
        for rank in &result_ranks {
            match made.iter().find(|(_, r)| r == rank) {
                Some(value) => others.push(value.clone()),
                None => {
                    self.text = before;
                    return;
                }
            }
        }
        self.give(&others);
        let regions = std::mem::replace(&mut self.text, before);
        let results = self.results(&result_ranks, values);
        let names: Vec<&str> = captures.iter().map(|(name, _)| name.as_str()).collect();
        writeln!(self.text, "{results} = cond %p, {}", names.join(", ")).unwrap();
        self.text += &regions;
    }
}
