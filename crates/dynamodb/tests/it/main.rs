//! The store on DynamoDB: the conformance suite and what only this engine does, on DynamoDB Local.

mod conformance;
mod faults;
mod model;
mod reading;
mod support;
mod tables;
