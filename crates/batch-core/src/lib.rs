//! The batching engine: many small jobs in, few expensive calls out.
