//! Measurement of run times: rounds, order statistics, comparisons, the machine's roofline.
//!
//! The time of a run on a quiet machine is a floor plus rare, large delays. The minimum is close to
//! the floor, the median resists delays, and the percentiles show how reliable both are
//! ([`Summary`]). The confidence interval of a median comes from order statistics: the number of
//! samples below the true median is binomial, whatever the distribution of times ([`Interval`]).
//! It assumes independent samples; a machine that slows down for seconds breaks this assumption.
//!
//! A **comparison** therefore takes the contenders in turns and looks at ratios within a round, so
//! a slowdown of a whole round cancels ([`in_turns`], [`Comparison`]). A third contender, the
//! **null contender**, is the first one again. Its true ratio is 1, so the ratio that is found for
//! it is the noise of the measurement. A difference that is not above this noise is not reported
//! as one ([`Verdict`]).
//!
//! [`Work`] and [`Peaks`] relate a time to the machine: its arithmetic and its memory traffic at
//! the measured peak rates are a lower bound of the time.

mod comparison;
mod roofline;
mod rounds;
mod summary;

pub use comparison::{Comparison, Verdict};
pub use roofline::{Peaks, Work};
pub use rounds::{Contender, Limits, in_turns, repeated};
pub use summary::{Interval, Summary};
