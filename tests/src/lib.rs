//! Tests of several rooms together, and of the source itself. The tests are in the folders beside
//! this one; black-box tests of the built program are in `blackbox/`.
