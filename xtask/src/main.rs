//! Checks, tests and gates of the workspace.

fn main() {}
