//! Several nodes on one store.

mod away;
mod cost;
mod fanout;
mod letters;
mod order;
mod pauses;
mod processes;
mod seeds;
mod streams;
mod tables;
mod together;
mod witness;
