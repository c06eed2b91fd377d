//! One model batch per group, and what the answers are worth.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use llm_batch::{Accounting, LlmBatch, Provider, Request, Status};

use super::board::{Board, Failure, Standing};
use super::budget::Budget;
use super::prompts::Study;
use super::state::RunState;
use crate::answer::{self, Unusable};
use crate::cli::Session;
use crate::collect::collect;
use crate::exit::{Exit, Stop, not_run};
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
    /// Takes the counts of a pass, which asks all that was asked so far; its calls are its own.
    fn take(&mut self, pass: &Accounting) {
        *self = Asked {
            requests: pass.requests,
            batches: pass.batches,
            submissions: pass.submissions,
            http_calls: self.http_calls + pass.http_calls,
            input_tokens: pass.input_tokens,
            output_tokens: pass.output_tokens,
            cost: pass.cost,
        };
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
/// Status 2 if nothing was asked, because it may cost more than it must; 3 if the provider has not
/// answered all, or the next wave may cost too much: the state has what is needed to go on.
pub(crate) fn ask(
    session: &Session,
    board: &mut Board<'_>,
    study: &Study,
    budget: &Budget,
    provider: &Arc<dyn Provider>,
    state: &RunState,
) -> Result<Asked, Stop> {
    if state.is_new() {
        // Of a run that goes on only what is left is to be paid, which each pass looks at.
        budget.check(board.plan, study)?;
    }
    let mut calls = Asked::default();
    let mut so_far = Vec::new();
    for (number, wave) in board.plan.waves.iter().enumerate() {
        session.interrupt.check()?;
        // Once something is paid for, that is to be gone on with.
        let is_begun = !state.is_new() || !so_far.is_empty();
        let mut asker = Asker { session, study, budget, provider, state, so_far: &mut so_far };
        let pass = asker.ask_wave(board, number, wave);
        let pass = pass.map_err(|stop| if is_begun { stop.once_begun() } else { stop })?;
        if let Some(accounting) = pass {
            calls.take(&accounting);
        }
    }
    Ok(calls)
}

/// What it takes to ask one wave.
struct Asker<'a> {
    session: &'a Session,
    study: &'a Study,
    budget: &'a Budget,
    provider: &'a Arc<dyn Provider>,
    state: &'a RunState,
    /// The requests of the waves before: they are part of each pass, so that its limit to the cost and
    /// its counts are those of the run.
    so_far: &'a mut Vec<Request>,
}

impl Asker<'_> {
    /// Asks for the answers of one wave; nothing is asked where no task is left in it.
    fn ask_wave(
        &mut self,
        board: &mut Board<'_>,
        number: usize,
        wave: &[usize],
    ) -> Result<Option<Accounting>, Stop> {
        let ready = board.ready(wave);
        if ready.is_empty() {
            return Ok(None);
        }
        let (session, state) = (self.session, self.state);
        let recalled = state.recall(number)?;
        let is_new = recalled.is_none();
        let mut requests = recalled.unwrap_or_default();
        let ids: HashSet<&str> = requests.iter().map(|request| request.id.as_str()).collect();
        let is_asked = |at: &usize| ids.contains(board.plan.tasks[*at].id.as_str());
        let (mut asked, left): (Vec<usize>, Vec<usize>) = ready.iter().partition(|at| is_asked(at));
        let known = asked.len();
        for (at, rendered) in left.iter().zip(self.study.requests(board, &left)?) {
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
        self.so_far.append(&mut requests);
        let results = Found::look(&state.results()).map_err(in_state)?.begin()?;
        let llm =
            self.budget.limit(LlmBatch::builder(Arc::clone(self.provider)).state(state.llm()));
        let ended = collect(session, llm, self.so_far.iter().cloned(), results)?;
        let run = ended.map_err(|error| not_run(&error))?;
        let results = read_all(&state.results()).map_err(|stop| in_state(stop).once_begun())?;
        read_answers(board, &asked, results);
        Ok(Some(run.accounting))
    }
}

/// Says what helps where the results of a state are damaged: the provider's side of it knows them too. What has
/// no advice of its own is another fault, such as a missing right.
fn in_state(stop: Stop) -> Stop {
    if stop.exit == Exit::Unfinished {
        return stop;
    }
    if !stop.has_help() {
        return stop.kept();
    }
    stop.help(
        "move that file away and run again: what it held comes again, and nothing is paid twice",
    )
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
