//! Bounded parallel execution of tasks, with one outcome for each.
