//! Several nodes on one store.

mod away;
mod cost;
mod fanout;
mod first;
mod letters;
mod moody;
mod moving;
mod order;
mod pauses;
mod processes;
mod seeds;
mod streams;
mod tables;
mod together;
mod unanswered;
mod witness;

pub use together::store;
