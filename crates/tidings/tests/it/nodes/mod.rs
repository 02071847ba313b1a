//! Several nodes on one store.

mod cost;
mod pauses;
mod processes;
mod seeds;
mod together;
mod witness;
