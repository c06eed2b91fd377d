//! One model batch per group, and what the answers are worth.

use std::collections::HashMap;
use std::sync::Arc;

use llm_batch::{Accounting, LlmBatch, Provider, Status};

use super::board::{Board, Failure, Standing};
use super::prompts::Study;
use super::state::RunState;
use crate::answer::{self, Unusable};
use crate::cli::Session;
use crate::collect::collect;
use crate::exit::{Stop, not_run};
use crate::results::{Found, Recorded, read_all};

/// Counts of model calls over all waves.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) requests: u64,
    pub(crate) batches: u64,
    pub(crate) submissions: u64,
    pub(crate) http_calls: u64,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) cost: Option<f64>,
}

impl Asked {
    fn add(&mut self, accounting: &Accounting) {
        self.requests += accounting.requests;
        self.batches += accounting.batches;
        self.submissions += accounting.submissions;
        self.http_calls += accounting.http_calls;
        self.input_tokens += accounting.input_tokens;
        self.output_tokens += accounting.output_tokens;
        if let Some(cost) = accounting.cost {
            *self.cost.get_or_insert(0.0) += cost;
        }
    }

    /// Returns requests less submissions.
    pub(crate) fn saved(&self) -> i64 {
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        signed(self.requests) - signed(self.submissions)
    }
}

/// Asks for the answers of all tasks, wave by wave, and reads them.
///
/// # Errors
///
/// Status 3 if the provider has not answered all; the state has what is needed to go on.
pub(crate) fn ask(
    session: &Session,
    board: &mut Board<'_>,
    study: &Study,
    provider: &Arc<dyn Provider>,
    state: &RunState,
) -> Result<Asked, Stop> {
    let mut calls = Asked::default();
    for (number, wave) in board.plan.waves.iter().enumerate() {
        session.interrupt.check()?;
        // Once something is paid for, that is to be gone on with.
        let is_begun = calls.requests > 0;
        let run = ask_wave(session, board, study, provider, state, (number, wave));
        let run = run.map_err(|stop| if is_begun { stop.once_begun() } else { stop })?;
        if let Some(accounting) = run {
            calls.add(&accounting);
        }
    }
    Ok(calls)
}

/// Asks for the answers of one wave; nothing is asked where no task is left in it.
fn ask_wave(
    session: &Session,
    board: &mut Board<'_>,
    study: &Study,
    provider: &Arc<dyn Provider>,
    state: &RunState,
    (number, wave): (usize, &[usize]),
) -> Result<Option<Accounting>, Stop> {
    let ready = board.ready(wave);
    if ready.is_empty() {
        return Ok(None);
    }
    let recalled = state.recall(number)?;
    let is_new = recalled.is_none();
    let mut requests = recalled.unwrap_or_default();
    let is_asked = |at: &usize| requests.iter().any(|r| r.id == board.plan.tasks[*at].id);
    let (mut asked, left): (Vec<usize>, Vec<usize>) = ready.iter().partition(|at| is_asked(at));
    let known = asked.len();
    for (at, rendered) in left.iter().zip(study.requests(board, &left)?) {
        match rendered {
            Ok(request) => {
                requests.push(request);
                asked.push(*at);
            }
            Err(failure) => board.set(*at, Standing::Failed(failure)),
        }
    }
    if is_new || asked.len() > known {
        state.remember(number, &requests)?;
    }
    if requests.is_empty() {
        return Ok(None);
    }
    session.output.detail(format!("wave {}: {} requests", number + 1, requests.len()));
    let results = Found::look(&state.results())?.begin()?;
    let llm = LlmBatch::builder(Arc::clone(provider)).state(state.llm());
    let ended = collect(session, llm, requests, results)?;
    let run = ended.map_err(|error| not_run(&error))?;
    let results = read_all(&state.results()).map_err(Stop::once_begun)?;
    read_answers(board, &asked, results);
    Ok(Some(run.accounting))
}

fn read_answers(board: &mut Board<'_>, asked: &[usize], results: Vec<Recorded>) {
    let mut by_id: HashMap<String, Recorded> =
        results.into_iter().map(|recorded| (recorded.id.clone(), recorded)).collect();
    for &at in asked {
        let standing = match by_id.remove(&board.plan.tasks[at].id) {
            Some(recorded) => standing(board, recorded),
            None => Standing::Failed(Failure::new("missing_result", "the provider has no result")),
        };
        board.set(at, standing);
    }
}

fn standing(board: &Board<'_>, recorded: Recorded) -> Standing {
    if recorded.status != Status::Succeeded {
        let (kind, message) = recorded
            .error
            .unwrap_or_else(|| (recorded.status.to_string(), "the provider has no answer".into()));
        return Standing::Failed(Failure::new(kind, message));
    }
    let Some(text) = recorded.text else {
        return Standing::Failed(Failure::new("unusable_answer", "the answer has no text"));
    };
    match answer::read(&text, &board.plan.allow) {
        Ok(edit) => Standing::Answered { text, edit },
        Err(Unusable::Shape(why)) => Standing::Failed(Failure::new("unusable_answer", why)),
        Err(Unusable::Path(why)) => Standing::Failed(Failure::new("path_not_allowed", why)),
    }
}
