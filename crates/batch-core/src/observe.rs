//! Observers that tell others what a batcher does.

#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod tracing;

#[cfg(feature = "metrics")]
pub use metrics::MetricsObserver;
#[cfg(feature = "tracing")]
pub use tracing::TracingObserver;
