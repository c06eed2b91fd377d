//! Prompts compiled once and rendered strictly.
