//! The parts together, with real counterparts.
#![cfg(test)]

mod channels;
