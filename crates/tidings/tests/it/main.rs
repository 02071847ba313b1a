//! Tidings through its public interface: HTTP, and the program itself.
//!
//! Every test starts its own server on a free port with a clock of its own, so that all can run at once.

#![cfg(test)]

mod alerts;
mod audit;
mod auth;
mod batches;
mod bodies;
mod bus;
mod business;
mod channels;
mod cli;
mod cli_files;
mod cloudevents;
mod connections;
mod correlated;
mod correlation;
mod crash;
mod cursors;
mod demo;
mod duplicates;
mod engines;
mod envelopes;
mod faults;
mod formats;
mod gone;
mod idempotency;
mod inbox;
mod incidents;
mod keys;
mod lists;
mod long_keys;
mod messages;
mod nodes;
mod observability;
mod offsets;
mod openapi;
mod processes;
mod push;
mod reload;
mod requests;
mod retention;
mod rules;
mod schedules;
mod secrets;
mod sources;
mod streams;
mod support;
mod tickets;
mod tokens;
mod traces;
mod ui;
