//! Lessons and prompts of the tasks.

use lessons_index::{Snapshot, Sort};
use llm_batch::{Body, Kind, Message, Request, Role};
use prompt_templates::{Context, Prompts};
use serde_json::{Value, json};
use task_dispatch::{CancelToken, Dispatcher, Outcome, Task as Job};

use super::board::{Board, Failure, Standing};
use crate::commands::prompt::find;
use crate::exit::Stop;
use crate::plan::{Plan, Task};

/// Lessons that one prompt is given at most, the most frequent first.
const MAX_LESSONS: usize = 5;

/// Everything that prompts are made of.
#[derive(Debug)]
pub(crate) struct Study {
    prompts: Prompts,
    lessons: Snapshot,
}

impl Study {
    pub(crate) fn new(prompts: Prompts, lessons: Snapshot) -> Study {
        Study { prompts, lessons }
    }

    /// Renders every prompt with stand-ins for answers, empty ones and others, so that what is wrong
    /// with a template or its values is known before anything is sent, as far as it does not depend on
    /// what the answers say.
    pub(crate) fn check(&self, plan: &Plan) -> Result<(), Stop> {
        for task in &plan.tasks {
            for stand_in in ["", "{\"files\":[{\"path\":\"a\",\"content\":\"\"}]}"] {
                let answers = task.after.iter().map(|at| (plan.tasks[*at].id.as_str(), stand_in));
                self.request(task, answers).map_err(|why| {
                    let (file, id) = (plan.file.display(), &task.id);
                    Stop::refused(format_args!("{file}: task \"{id}\": {why}"))
                })?;
                if task.after.is_empty() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Makes the requests of some tasks of the board, on several threads, in their order: of each the
    /// request, or what is wrong with its template.
    pub(crate) fn requests(
        &self,
        board: &Board<'_>,
        tasks: &[usize],
    ) -> Result<Vec<Result<Request, Failure>>, Stop> {
        let jobs = tasks.iter().map(|&at| {
            let task = &board.plan.tasks[at];
            let answers: Vec<(&str, &str)> = task
                .after
                .iter()
                .filter_map(|&before| match board.get(before) {
                    Standing::Answered { text, .. } => {
                        Some((board.plan.tasks[before].id.as_str(), text.as_str()))
                    }
                    _ => None,
                })
                .collect();
            Job::new(&task.id, move |_| self.request(task, answers.iter().copied()))
        });
        let report = Dispatcher::builder()
            .max_concurrency(std::thread::available_parallelism().map_or(1, Into::into))
            .build()
            .run(jobs.collect(), &CancelToken::new())
            .map_err(|error| Stop::refused(error.to_string()))?;
        let rendered = report.into_records().into_iter().map(|record| match record.outcome {
            Outcome::Ok(request) => Ok(request),
            Outcome::Err(why) => Err(Failure::new(Failure::PROMPT, why)),
            Outcome::Panicked(why) => {
                Err(Failure::new(Failure::PROMPT, format!("the template panics: {why}")))
            }
            other => Err(Failure::new(Failure::PROMPT, format!("it was not rendered: {other:?}"))),
        });
        Ok(rendered.collect())
    }

    /// Makes the request of a task whose prompt is given those answers.
    ///
    /// # Errors
    ///
    /// What is wrong with its template.
    pub(super) fn request<'a>(
        &self,
        task: &Task,
        answers: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Request, String> {
        let prompt = find(&self.prompts, &task.template)?;
        let mut values = task.data.clone();
        let facts = json!({ "id": task.id, "kind": task.kind, "model": task.model });
        values.insert("task".to_owned(), facts);
        values.insert("lessons".to_owned(), Value::Array(self.lessons_for(task)));
        let after = answers.map(|(id, answer)| json!({ "id": id, "answer": answer })).collect();
        values.insert("after".to_owned(), Value::Array(after));
        let context = Context::from_serialize(&values).map_err(|error| error.to_string())?;
        let messages = prompt.messages(&context).map_err(|error| error.to_string())?;
        let messages = messages
            .into_iter()
            .map(|message| Message::new(role(message.role), message.content))
            .collect();
        let Ok(kind) = task.kind.parse::<Kind>();
        Ok(Request::new(&task.id, &task.model, Body::Messages(messages))
            .with_kind(kind)
            .with_max_tokens(task.max_tokens))
    }

    fn lessons_for(&self, task: &Task) -> Vec<Value> {
        let query = self.lessons.query().task_type(&task.kind).sort(Sort::Frequent);
        let found = query.limit(MAX_LESSONS).run();
        let value = |lesson: &lessons_index::Lesson| {
            json!({
                "id": lesson.id,
                "activity_type": lesson.activity_type,
                "failure_type": lesson.failure_type,
                "failure_msg": lesson.failure_msg,
                "resolution": lesson.resolution,
                "pattern": lesson.pattern,
                "times_seen": lesson.times_seen,
            })
        };
        found.iter().map(|lesson| value(lesson)).collect()
    }
}

fn role(role: prompt_templates::Role) -> Role {
    match role {
        prompt_templates::Role::System => Role::System,
        prompt_templates::Role::Assistant => Role::Assistant,
        _ => Role::User,
    }
}
