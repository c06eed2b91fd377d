//! A progress bar on stderr, where stderr is a terminal and nobody asked for quiet.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::Output;

/// Shows how many of some items are done; removed from the screen when it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(crate) fn start(output: &Output, total: usize, what: &'static str) -> Progress {
        if !output.draws_progress() {
            return Progress { bar: ProgressBar::hidden() };
        }
        let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{spinner} {msg} {pos}/{len}  {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what);
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress { bar }
    }

    /// Counts so many items as done.
    pub(crate) fn advance(&self, items: usize) {
        self.bar.inc(items as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
