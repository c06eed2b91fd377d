//! Model requests of many tasks in one provider batch.
