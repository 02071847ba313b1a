//! Messages by the clock.

mod api;
mod firing;
