//! Scenarios measured side by side.
