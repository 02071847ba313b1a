//! Tidings: turns events into the right notice to the right person, and can prove what became of every event.
//!
//! An event walks forward through the folders: `ingest`, then `rules`, then what follows from it, then out.
//! `app` puts the parts together; `http` is what every call has in common; `cli` is the command line.

pub mod admin;
mod alarm;
pub mod alerts;
pub mod app;
pub mod archive;
pub mod audit;
pub mod aws;
pub mod bench;
pub mod bus;
pub mod business;
pub mod centre;
pub mod channel;
pub mod cli;
pub mod clock;
pub mod config;
pub mod demo;
pub mod engine;
pub mod events;
pub mod figures;
pub mod http;
pub mod inbox;
pub mod incidents;
pub mod ingest;
pub mod mask;
pub mod messages;
pub mod nodes;
pub mod origin;
pub mod outbound;
pub mod push;
pub mod reload;
pub mod rules;
pub mod schedules;
pub mod secrets;
pub mod sources;
pub mod tickets;
pub mod tokens;
pub mod trace;
pub mod ui;
pub mod workers;
