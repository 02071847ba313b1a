//! The store's tests: the conformance suite on each engine, and engines compared with the model.

#![cfg(test)]

mod damage;
mod embedded;
mod faults;
mod lists;
mod log;
mod memory;
mod model;
mod sheaves;
mod support;
