//! Several nodes on one store.

mod cost;
mod fanout;
mod letters;
mod pauses;
mod processes;
mod seeds;
mod streams;
mod tables;
mod together;
mod witness;
