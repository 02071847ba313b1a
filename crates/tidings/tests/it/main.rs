//! The parts together, with real counterparts.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod channels;
