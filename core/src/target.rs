//! Targets: properties of a kind of device that affect results and layouts, and the calls that
//! its back end executes. A target is a value, so plans can be made for devices that are not
//! present. The numbers of a device and their reasons are in the crate of its kernels; here are
//! those of CPUs, whose target the interpreters have too.

use crate::call::Call;
use crate::diagnostic::{Diagnostic, Result, bail, ensure};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::nest::Tree;
use crate::nest::verify::MAX_LANES;
use crate::op::attribute::{Attribute, Attributes, take};
use crate::text::is_sigil_name;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;

/// Greatest alignment of buffers.
const MAX_ALIGNMENT: u64 = 1 << 20;
/// Number of results that keeps the threads of a CPU busy.
const BUSY: u32 = 64;
/// Traffic of followers on a CPU.
const FOLLOWER_TRAFFIC: u32 = 2;

/// A kind of device.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    /// `cpu`, `sm_90` and the like.
    pub name: String,
    /// Most lanes of a reduction whose last axis is contiguous in memory; a power of two. It is
    /// the same for every instruction set of the device, so that the bits are the same too.
    pub reduction_lanes: u32,
    /// Fewest lanes of such a reduction, even if it has fewer elements; a power of two up to
    /// `reduction_lanes`.
    pub least_lanes: u32,
    /// Most lanes of a reduction whose adjacent elements in memory belong to different results; a
    /// power of two.
    pub column_lanes: u32,
    /// Elements of a block of a reduction ([`Tree::block`]); a multiple of the lanes.
    pub reduction_block: u32,
    /// A long reduction along the contiguous axis is split into parts if it has fewer results
    /// than this, so that there is enough parallelism.
    pub busy_rows: u32,
    /// The same bound for a reduction along other axes.
    pub busy_columns: u32,
    /// Fewest elements of such a part.
    pub least_part: u32,
    /// Results of a reduction along other axes that keep every processor busy with one thread for a
    /// vector of them; 0 if the target has no such bound. Such a *wide* reduction has one lane,
    /// and its loop also computes elementwise operands for other readers. A long reduction is
    /// split until it is wide.
    pub wide_columns: u32,
    /// Rows of a [band](crate::nest::Total); 0 if the target has none. A sum over many rows of few
    /// columns is split into bands, so that the nest that computes the rows may add them up.
    pub band_rows: u32,
    /// Alignment of buffers in bytes; a power of two.
    pub alignment: u64,
    /// Alignment in bytes that rows of large temporaries get by a [pitch](crate::pitch), where
    /// their extent does not give it; a power of two. 1 leaves every value dense.
    pub row_alignment: u64,
    /// Bytes of row storage that a nest may use for one row.
    pub row_storage: u64,
    /// Most bytes that a row of a fused nest may span, if it is to stay in the cache between
    /// passes.
    pub row_bytes: u64,
    /// Names of the calls that the back end executes; others are decomposed. The next two fields
    /// restrict attention further.
    pub calls: Vec<&'static str>,
    /// Whether the back end executes attention on halves.
    pub half_attention: bool,
    /// Whether the backward pass of attention may be given the forward result in place of sums of
    /// it ([`out_given`](crate::call::Attention::out_given)).
    pub attention_out: bool,
    /// Most bytes of a head at one position, in the dtype of its sums, for which the back end
    /// executes attention.
    pub attention_row: u64,
    /// Whether a GEMM call adds its [addends](crate::call::Addends); in text `gemm_epilogue`.
    pub addends: bool,
    /// Whether the back end multiplies 8-bit floats; if not, they become products of bf16.
    pub float8_products: bool,
    /// Whether a GEMM call takes a residual only if it takes it before a bias, as BLAS libraries
    /// do. If so, a residual that is added after a bias is a nest.
    pub residual_first: bool,
    /// Whether a nest that follows a product ([`crate::nest::follows`]) runs on each part of the
    /// product as soon as the part is computed.
    pub followers: bool,
    /// Bytes of memory traffic that take as long as a library gains on the back end's kernels in a
    /// product of 2²⁰ pairs of halves; 0 if there is no library. See
    /// [`runs_follower`](Target::runs_follower).
    pub library_lead: u32,
    /// Most traffic of a follower besides the product, in sizes of the product.
    ///
    /// A CPU keeps panels of the product's operands in caches. The follower's data would evict
    /// them, which costs more than one saved read of the product. A GPU has its tiles in shared
    /// memory. There the limit keeps the product from waiting for operands of a long update.
    pub follower_traffic: u32,
    /// Whether a product of few rows is slower if the columns of its rhs are not adjacent in
    /// memory. If so, an rhs that a loop captures is transposed once, before the loop.
    pub lays_out: bool,
    /// Whether memory is scarcer than bandwidth. If so, a large and short function of one tensor
    /// is recomputed for consumers far behind, instead of being kept.
    pub rematerializes: bool,
    /// Whether kernels that do not depend on each other share a launch, if they are small or have
    /// one code. If so, the bytes of a small buffer are not used again at once, since the next
    /// kernel would then depend on its readers, and small updates of variables run at the end,
    /// since they are then neighbours. Both cost memory, so a plan with a budget does neither.
    pub shares_launches: bool,
    /// Whether collectives may be started and waited for later
    /// ([`Step::Start`](crate::plan::Step::Start)). If not, they are calls. In text
    /// `blocking_collectives`, for targets that claim `collective` and do not overlap it.
    pub overlaps_collectives: bool,
    /// Whether the bits of a row do not depend on the number of rows that are computed with it
    /// ([`Target::with_batch_invariance`]).
    pub batch_invariant: bool,
    /// The [approximate instructions](crate::nest::approximate) of the back end.
    pub approximations: Approximations,
    /// The workspace that calls get in the arena while they run.
    pub workspace: Workspace,
}

/// Whether a back end has approximate instructions of its own, and whether nests use them. In text
/// `approximate_functions`.
#[derive(Clone, Copy, Debug)]
pub enum Approximations {
    /// It has none: it computes the exact functions. A target that was read from a plan has this
    /// one, unless it uses approximate instructions.
    None,
    /// It has some. Nests use the exact functions.
    Available,
    /// Nests use them for functions of f32.
    Used,
}

impl Approximations {
    /// Whether nests use approximate instructions: what the text of a target says.
    pub const fn are_used(self) -> bool {
        matches!(self, Approximations::Used)
    }
}

/// Targets are equal if their texts are.
impl PartialEq for Approximations {
    fn eq(&self, other: &Self) -> bool {
        self.are_used() == other.are_used()
    }
}

impl Eq for Approximations {}

impl Hash for Approximations {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.are_used().hash(state);
    }
}

/// Upper bound of the arena bytes that a call may use while it runs. The back end promises it
/// before it chooses an algorithm.
#[derive(Clone, Copy, Debug)]
pub enum Workspace {
    /// Calls get none.
    None,
    /// Bytes for a call; saturates.
    Promised(fn(&Call) -> u64),
    /// The target was read from a plan, which states the workspace of each call.
    Stated,
}

impl Workspace {
    /// Whether calls get workspace: what the text of a target says.
    const fn is_some(self) -> bool {
        !matches!(self, Workspace::None)
    }
}

/// Targets are equal if their texts are.
impl PartialEq for Workspace {
    fn eq(&self, other: &Self) -> bool {
        self.is_some() == other.is_some()
    }
}

impl Eq for Workspace {}

impl Hash for Workspace {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.is_some().hash(state);
    }
}

/// Fewest elements of a part of a reduction that is split to be wide. The sum of a part is stored
/// and loaded.
const WIDE_PART: usize = 64;
/// Columns of the rows of a band.
const BAND_COLUMNS: RangeInclusive<usize> = 128..=1024;
/// Most lanes of a band.
const BAND_LANES: u32 = 4;
/// Fewest elements of a product that fills a GPU.
const FULL_PRODUCT: usize = 1 << 22;
/// No limit.
const ANY: u64 = i64::MAX as u64;
impl Target {
    /// CPU threads with SIMD. 16 lanes of f32 fill one AVX-512 register or two AVX2 registers.
    pub fn cpu() -> Self {
        Target {
            name: "cpu".into(),
            reduction_lanes: 16,
            least_lanes: 16,
            column_lanes: 1,
            reduction_block: 4096,
            busy_rows: BUSY,
            busy_columns: BUSY,
            least_part: 4096,
            wide_columns: 0,
            band_rows: 0,
            alignment: 64,
            row_alignment: 1,
            row_storage: 256 << 10,
            row_bytes: 1 << 20,
            calls: Call::names(),
            half_attention: true,
            attention_out: false,
            attention_row: ANY,
            addends: true,
            float8_products: false,
            residual_first: false,
            followers: true,
            library_lead: 0,
            follower_traffic: FOLLOWER_TRAFFIC,
            lays_out: true,
            rematerializes: false,
            shares_launches: false,
            overlaps_collectives: true,
            batch_invariant: false,
            approximations: Approximations::None,
            workspace: Workspace::None,
        }
    }

    /// Whether the back end exchanges data with other ranks.
    pub fn joins_ranks(&self) -> bool {
        self.calls.contains(&"collective")
    }

    /// Checks the numbers, which may come from an untrusted file.
    pub fn verify(&self) -> Result<()> {
        self.check().map_err(|d| d.context(format_args!("target {}", self.name)))
    }

    fn check(&self) -> Result<()> {
        let (lanes, block) = (self.reduction_lanes, self.reduction_block);
        ensure!(is_sigil_name(&self.name), "its name is no name");
        ensure!(
            lanes.is_power_of_two() && lanes <= MAX_LANES && block.is_multiple_of(lanes),
            "{lanes} lanes and blocks of {block} make no reduction tree"
        );
        let (least, column) = (self.least_lanes, self.column_lanes);
        let fits = |n: u32| n.is_power_of_two() && (block == 0 || block.is_multiple_of(n));
        ensure!(
            fits(least) && least <= lanes && fits(column) && column <= MAX_LANES,
            "{least} lanes at least and {column} in columns make no reduction tree"
        );
        ensure!(
            self.alignment.is_power_of_two() && self.alignment <= MAX_ALIGNMENT,
            "alignment {} is no power of two up to {MAX_ALIGNMENT}",
            self.alignment
        );
        ensure!(
            self.row_alignment.is_power_of_two() && self.row_alignment <= self.alignment,
            "rows aligned to {} bytes: not a power of two up to the alignment of buffers",
            self.row_alignment
        );
        let row = self.row_storage.max(self.row_bytes).max(self.attention_row);
        ensure!(row <= i64::MAX as u64, "rows are larger than any memory");
        let mut claims = self.calls.iter().enumerate();
        ensure!(claims.all(|(n, call)| !self.calls[..n].contains(call)), "it claims a call twice");
        Ok(())
    }

    /// All fields except the name, for text and files.
    pub fn attributes(&self) -> Attributes {
        // `verify` refuses numbers beyond 2^63. Here they must only not panic.
        let number = |n: u64| Attribute::Dim(Dim::constant(i64::try_from(n).unwrap_or(i64::MAX)));
        let mut attributes = Attributes::from([
            ("alignment", number(self.alignment)),
            ("gemm_epilogue", Attribute::Bool(self.addends)),
            ("reduction_block", number(self.reduction_block.into())),
            ("reduction_lanes", number(self.reduction_lanes.into())),
            ("row_bytes", number(self.row_bytes)),
            ("row_storage", number(self.row_storage)),
        ]);
        // Omitted if it has every call, so that a new call changes the text of no target.
        if self.calls != Call::names() {
            let calls = self.calls.iter().map(|name| Attribute::Text((*name).into())).collect();
            attributes.insert("calls", Attribute::List(calls));
        }
        // Omitted if they have the value that was implied before the attribute existed.
        for (name, value, usual) in [
            ("busy_columns", self.busy_columns, BUSY),
            ("busy_rows", self.busy_rows, BUSY),
            ("column_lanes", self.column_lanes, 1),
            ("least_lanes", self.least_lanes, self.reduction_lanes),
            ("least_part", self.least_part, self.reduction_block),
            ("wide_columns", self.wide_columns, 0),
            ("band_rows", self.band_rows, 0),
            ("library_lead", self.library_lead, 0),
            ("follower_traffic", self.follower_traffic, FOLLOWER_TRAFFIC),
        ] {
            if value != usual {
                attributes.insert(name, number(value.into()));
            }
        }
        if self.row_alignment != 1 {
            attributes.insert("row_alignment", number(self.row_alignment));
        }
        if self.attention_row != ANY {
            attributes.insert("attention_row", number(self.attention_row));
        }
        for (name, value) in [
            ("half_attention", self.half_attention),
            ("attention_out", self.attention_out),
            ("float8_products", self.float8_products),
            ("followers", self.followers),
            ("lays_out", self.lays_out),
            ("residual_first", self.residual_first),
            ("rematerializes", self.rematerializes),
            ("shares_launches", self.shares_launches),
            ("blocking_collectives", self.joins_ranks() && !self.overlaps_collectives),
            ("batch_invariant", self.batch_invariant),
            ("approximate_functions", self.approximations.are_used()),
            ("workspace", self.workspace.is_some()),
        ] {
            if value {
                attributes.insert(name, Attribute::Bool(true));
            }
        }
        attributes
    }

    /// The target with that name and these attributes.
    pub fn from_attributes(
        name: &str,
        mut attributes: BTreeMap<String, Attribute>,
    ) -> Result<Target> {
        let map = &mut attributes;
        let mut number = |key: &str, usual: Option<u32>| {
            let n: usize = take(map, key, usual.map(|n| n as usize))?;
            Ok(n as u64)
        };
        let narrow =
            |n: u64| u32::try_from(n).map_err(|_| Diagnostic::new(format!("{n} is too large")));
        let alignment = number("alignment", None)?;
        let reduction_block = narrow(number("reduction_block", None)?)?;
        let reduction_lanes = narrow(number("reduction_lanes", None)?)?;
        let least_lanes = narrow(number("least_lanes", Some(reduction_lanes))?)?;
        let column_lanes = narrow(number("column_lanes", Some(1))?)?;
        let busy_rows = narrow(number("busy_rows", Some(BUSY))?)?;
        let busy_columns = narrow(number("busy_columns", Some(BUSY))?)?;
        let least_part = narrow(number("least_part", Some(reduction_block))?)?;
        let wide_columns = narrow(number("wide_columns", Some(0))?)?;
        let band_rows = narrow(number("band_rows", Some(0))?)?;
        let library_lead = narrow(number("library_lead", Some(0))?)?;
        let follower_traffic = narrow(number("follower_traffic", Some(FOLLOWER_TRAFFIC))?)?;
        let (row_bytes, row_storage) = (number("row_bytes", None)?, number("row_storage", None)?);
        let row_alignment = take(map, "row_alignment", Some(1usize))? as u64;
        let attention_row = take(map, "attention_row", Some(ANY as usize))? as u64;
        let half_attention = take(map, "half_attention", Some(false))?;
        let attention_out = take(map, "attention_out", Some(false))?;
        let workspace = match take(map, "workspace", Some(false))? {
            true => Workspace::Stated,
            false => Workspace::None,
        };
        // The second is the name in older plans.
        let followers = take(map, "followers", Some(false))? | take(map, "joins", Some(false))?;
        let float8_products = take(map, "float8_products", Some(false))?;
        let lays_out = take(map, "lays_out", Some(false))?;
        let residual_first = take(map, "residual_first", Some(false))?;
        let rematerializes = take(map, "rematerializes", Some(false))?;
        let shares_launches = take(map, "shares_launches", Some(false))?;
        let blocking_collectives = take(map, "blocking_collectives", Some(false))?;
        let batch_invariant = take(map, "batch_invariant", Some(false))?;
        let approximations = match take(map, "approximate_functions", Some(false))? {
            true => Approximations::Used,
            false => Approximations::None,
        };
        let addends = take(map, "gemm_epilogue", None)?;
        let known = |call: Attribute| {
            let found =
                Call::names().into_iter().find(|name| call == Attribute::Text((*name).into()));
            found.ok_or_else(|| Diagnostic::new("attribute `calls` names a call that is unknown"))
        };
        let calls = match map.remove("calls") {
            None => Call::names(),
            Some(Attribute::List(calls)) => calls.into_iter().map(known).collect::<Result<_>>()?,
            Some(_) => {
                bail!("attribute `calls` is a list of names of calls");
            }
        };
        if let Some(extra) = attributes.into_keys().next() {
            bail!("a target has no attribute `{extra}`");
        }
        let overlaps_collectives = calls.contains(&"collective") && !blocking_collectives;
        Ok(Target {
            name: name.into(),
            reduction_lanes,
            least_lanes,
            column_lanes,
            reduction_block,
            busy_rows,
            busy_columns,
            least_part,
            wide_columns,
            band_rows,
            alignment,
            row_alignment,
            row_storage,
            row_bytes,
            calls,
            half_attention,
            attention_out,
            attention_row,
            addends,
            float8_products,
            residual_first,
            followers,
            library_lead,
            follower_traffic,
            lays_out,
            rematerializes,
            shares_launches,
            overlaps_collectives,
            batch_invariant,
            approximations,
            workspace,
        })
    }

    /// The target with the promise that the bits of a row do not depend on the number of rows that
    /// are computed with it: of examples of a batch, of tokens of a prompt. Reductions are not
    /// split for more parallelism, and calls do not choose kernels by the number of rows. This
    /// costs time where there are few rows.
    pub fn with_batch_invariance(self) -> Target {
        Target { batch_invariant: true, ..self }
    }

    /// The target on which nests compute functions of f32 by
    /// [approximate instructions](crate::nest::approximate). A target that has none, such as a
    /// CPU's, stays as it is.
    pub fn with_approximate_functions(self) -> Target {
        match self.approximations {
            Approximations::None => self,
            _ => Target { approximations: Approximations::Used, ..self },
        }
    }

    /// True if the back end executes this call.
    pub fn claims(&self, call: &Call) -> bool {
        self.calls.contains(&call.name()) && call.claimed_by(self)
    }

    /// Bytes of workspace that a plan has to give a call.
    ///
    /// # Panics
    ///
    /// If the target was read from a plan, since that plan is already made.
    pub fn workspace(&self, call: &Call) -> u64 {
        match self.workspace {
            Workspace::None => 0,
            Workspace::Promised(bytes) => bytes(call),
            Workspace::Stated => panic!("a plan is made for the target of a back end"),
        }
    }

    /// Whether adjacent elements in memory belong to one result of a reduction: whether the
    /// operand's last axis (of extent above 1) is reduced.
    fn is_contiguous(extents: &[usize], axes: &[usize]) -> bool {
        let last = extents.iter().rposition(|e| *e > 1);
        last.is_some_and(|axis| axes.contains(&axis))
    }

    /// The tree of a reduction of an operand. It depends on the extents and the reduced axes
    /// alone, never on fusion.
    ///
    /// If adjacent elements belong to one result, they go to different lanes. If not, each result
    /// adds its elements sequentially in blocks, or in few lanes, if it is not wide.
    pub fn reduction_tree(&self, _dtype: DType, extents: &[usize], axes: &[usize]) -> Tree {
        let count = axes.iter().fold(1usize, |n, axis| n.saturating_mul(extents[*axis]));
        let block = if count > self.reduction_block as usize { self.reduction_block } else { 0 };
        let (least, most) = match Target::is_contiguous(extents, axes) {
            true => (self.least_lanes, self.reduction_lanes),
            false => {
                let kept = (0..extents.len()).filter(|axis| !axes.contains(axis));
                let results = kept.fold(1usize, |n, axis| n.saturating_mul(extents[axis]));
                let lanes = match () {
                    () if self.is_band(extents, axes) => self.column_lanes.min(BAND_LANES),
                    () if self.is_wide(results) => 1,
                    () => self.column_lanes,
                };
                (1, lanes)
            }
        };
        // Further lanes would hold identities only.
        let wanted = u32::try_from(count.max(1).checked_next_power_of_two().unwrap_or(1 << 31))
            .unwrap_or(1 << 31);
        Tree { lanes: wanted.clamp(least, most), block }
    }

    /// Whether the back end computes a product, whose follower runs on its tiles, faster than a
    /// library that leaves the follower to a kernel of its own. The latter moves `saved` bytes
    /// more: the product is stored and loaded again.
    ///
    /// Without a library it does. Otherwise only products of halves and of 8-bit floats are
    /// compared, and of these the ones that fill a GPU. A product of few tiles, or of other dtypes,
    /// is the library's.
    pub fn runs_follower(&self, product: &Call, saved: u64) -> bool {
        let Call::Gemm(gemm) = product else { return self.followers };
        if !self.has_library() || self.batch_invariant {
            return self.followers;
        }
        let elements = gemm.batch.saturating_mul(gemm.m).saturating_mul(gemm.n);
        let pairs = elements.saturating_mul(gemm.k) as u128;
        // Tensor cores multiply 8-bit floats twice as fast.
        let lead = (pairs * u128::from(self.library_lead) * gemm.operand.size() as u128) >> 21;
        let compared = gemm.operand.is_half() || gemm.operand.is_float8();
        self.followers && compared && elements >= FULL_PRODUCT && u128::from(saved) > lead
    }

    /// Whether a library computes some products, and leaves their followers to kernels.
    pub fn has_library(&self) -> bool {
        self.library_lead > 0
    }

    /// Whether a reduction along other axes with so many results is [wide](Target::wide_columns).
    /// This depends on the number of rows, so no reduction is wide if that must not change bits.
    pub fn is_wide(&self, results: usize) -> bool {
        self.wide_columns > 0 && results >= self.wide_columns as usize && !self.batch_invariant
    }

    /// Whether a reduction is of bands of rows. This depends on the number of rows, so there are no
    /// bands if that must not change bits.
    pub fn is_band(&self, extents: &[usize], axes: &[usize]) -> bool {
        let Some(last) = axes.last() else { return false };
        let rows = axes.iter().fold(1usize, |n, axis| n.saturating_mul(extents[*axis]));
        let of = |extents: &[usize]| extents.iter().fold(1usize, |n, e| n.saturating_mul(*e));
        let (bands, columns) = (of(&extents[..axes[0]]), of(&extents[last + 1..]));
        self.band_rows > 0
            && !self.batch_invariant
            && last + 1 - axes[0] == axes.len()
            && rows == self.band_rows as usize
            && BAND_COLUMNS.contains(&columns)
            && bands >= self.busy_rows as usize
    }

    /// Number of bands of a sum of `count` rows of so many columns, if it is to have some.
    fn bands(&self, columns: usize, count: usize) -> Option<usize> {
        let rows = self.band_rows as usize;
        let fits = rows > 0 && BAND_COLUMNS.contains(&columns) && count.is_multiple_of(rows);
        fits.then(|| count / rows).filter(|bands| *bands >= self.busy_rows as usize)
    }

    /// Number of parts into which a reduction of `count` elements to each of `results` is split;
    /// 1 means no split.
    ///
    /// A part is at most a block, so that it is one tree. Parts are shorter if there would be too
    /// little parallelism.
    pub fn reduction_parts(
        &self,
        extents: &[usize],
        axes: &[usize],
        results: usize,
        count: usize,
    ) -> usize {
        let is_contiguous = Target::is_contiguous(extents, axes);
        let busy = if is_contiguous { self.busy_rows } else { self.busy_columns } as usize;
        if results == 0 || self.batch_invariant {
            return 1;
        }
        if !is_contiguous && let Some(bands) = self.bands(results, count) {
            return bands;
        }
        if !is_contiguous && !self.is_wide(results) {
            let parts = (self.wide_columns as usize).div_ceil(results);
            if parts > 0 && count / parts >= WIDE_PART {
                return parts;
            }
        }
        if results >= busy {
            return 1;
        }
        let blocks = count.div_ceil((self.reduction_block as usize).max(2));
        let busy = busy.div_ceil(results).min(count.div_ceil((self.least_part as usize).max(2)));
        blocks.max(busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn followers_are_worth_the_librarys_lead_or_not() {
        use crate::call::{Gemm, Matrix};
        let product = |m: usize, k: usize, operand| {
            let matrix = |row| Matrix { batch: 0, row, column: 1 };
            Call::Gemm(Gemm {
                batch: 1,
                m,
                n: 4096,
                k,
                lhs: matrix(k),
                rhs: matrix(4096),
                operand,
                rhs_operand: None,
                scales: None,
                accumulate: DType::F32,
                result: DType::BF16,
                addends: Default::default(),
                pitch: None,
            })
        };
        let target = Target { library_lead: 2500, ..Target::cpu() };
        let tile = 4096 * 4096 * 2;
        let runs = |k, operand, saved| target.runs_follower(&product(4096, k, operand), saved);
        // 2500 bytes for 2²⁰ pairs: 32 MiB are worth 838 terms of each sum.
        assert!(runs(838, DType::BF16, tile) && !runs(839, DType::BF16, tile));
        assert!(runs(1677, DType::F16, 2 * tile) && !runs(1678, DType::F16, 2 * tile));
        assert!(runs(1677, DType::F8E4M3FN, tile) && !runs(1678, DType::F8E4M3FN, tile));
        assert!(!runs(8, DType::F32, tile), "products of f32 are the library's");
        assert!(!target.runs_follower(&product(1000, 8, DType::BF16), tile), "few tiles");
        let lead = |library_lead| Target { library_lead, ..target.clone() };
        assert!(lead(0).runs_follower(&product(4096, 4096, DType::F32), 0));
        assert!(
            !Target { followers: false, ..lead(0) }.runs_follower(&product(9, 9, DType::F32), 9)
        );
        let invariant = target.clone().with_batch_invariance();
        assert!(invariant.runs_follower(&product(4096, 4096, DType::F32), 0));
    }

    #[test]
    fn only_a_target_with_approximate_instructions_uses_them() {
        let cpu = Target::cpu();
        let approximate = cpu.clone().with_approximate_functions();
        assert_eq!(approximate.attributes(), cpu.attributes());
        let gpu = Target { approximations: Approximations::Available, ..cpu.clone() };
        assert_eq!(gpu, cpu);
        let approximate = gpu.with_approximate_functions();
        assert_ne!(approximate, cpu);
        let has = |target: &Target| target.attributes().contains_key("approximate_functions");
        assert!(has(&approximate) && !has(&cpu));
    }

    #[test]
    fn text_round_trips_and_bad_numbers_are_refused() {
        let cpu = Target::cpu();
        cpu.verify().unwrap();
        let other = Target {
            name: "sm_90".into(),
            reduction_lanes: 1024,
            least_lanes: 1,
            column_lanes: 32,
            reduction_block: 1 << 16,
            busy_rows: 256,
            row_alignment: 16,
            attention_row: 1 << 10,
            half_attention: false,
            followers: false,
            library_lead: 2500,
            follower_traffic: 4,
            approximations: Approximations::Used,
            workspace: Workspace::Promised(|_| 8),
            ..cpu.clone()
        };
        other.verify().unwrap();
        let owned =
            |t: &Target| t.attributes().into_iter().map(|(k, v)| (k.to_string(), v)).collect();
        assert_eq!(Target::from_attributes("cpu", owned(&cpu)).unwrap(), cpu);
        assert_eq!(Target::from_attributes("sm_90", owned(&other)).unwrap(), other);
        for bad in [
            Target { alignment: 0, ..cpu.clone() },
            Target { alignment: 48, ..cpu.clone() },
            Target { alignment: 1 << 40, ..cpu.clone() },
            Target { row_alignment: 0, ..cpu.clone() },
            Target { row_alignment: 24, ..cpu.clone() },
            Target { row_alignment: 128, ..cpu.clone() },
            Target { reduction_lanes: 0, ..cpu.clone() },
            Target { reduction_lanes: 12, ..cpu.clone() },
            Target { reduction_block: 17, ..cpu.clone() },
            Target { least_lanes: 32, ..cpu.clone() },
            Target { least_lanes: 3, ..other.clone() },
            Target { column_lanes: 0, ..other.clone() },
            Target { name: "a b".into(), ..cpu.clone() },
            Target { attention_row: u64::MAX, ..other.clone() },
            Target { calls: vec!["gemm", "gemm"], ..cpu.clone() },
        ] {
            assert!(bad.verify().is_err(), "{bad:?}");
        }
        let mut map: BTreeMap<String, Attribute> = owned(&cpu);
        map.insert("calls".into(), Attribute::List(vec![Attribute::Text("fft".into())]));
        assert!(Target::from_attributes("cpu", map).is_err());
    }
}
