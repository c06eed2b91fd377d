//! One command from the prompts of a fleet of agents to one push.

fn main() {}
