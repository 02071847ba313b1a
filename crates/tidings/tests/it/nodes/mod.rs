//! Several nodes on one store.

mod pauses;
mod processes;
mod together;
mod witness;
