//! The program's tests from outside: one binary, one module for each subject.

mod crash;
