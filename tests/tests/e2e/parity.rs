//! What a controller of Flux and a hub tell of the same object, side by side.

pub(crate) mod difference;
pub(crate) mod told;

pub(crate) use difference::{Difference, Finding, judge};
pub(crate) use told::{Names, Told, told};
