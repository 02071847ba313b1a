//! Messages: every notice that leaves, with the seed's attribute names and forward-only states (seed 002).

pub mod record;

pub use record::{Message, NewMessage, Status};
