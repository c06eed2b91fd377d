//! Commits, merges and pushes of many tasks in one push.
