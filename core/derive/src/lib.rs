//! core/derive
