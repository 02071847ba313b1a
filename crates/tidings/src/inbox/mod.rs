//! The inbox: what each user has been told, and who is told of what (seed 001).

pub mod map;
pub mod record;

pub use record::{Entry, Kind, Status};
