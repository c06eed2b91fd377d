//! `run`: a plan of agent tasks from prompts to one push.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use git_batch::Settings;
use llm_batch::Provider;

use super::llm_run::resume_command;
use super::{git_apply, lessons, prompt};
use crate::cli::Session;
use crate::demo::{self, OneByOne, Scratch};
use crate::exit::{Exit, Stop};
use crate::gate;
use crate::output::complain;
use crate::pipeline::{self, Asked, Board, Landing, Place, RunState, Started, Study, Summary};
use crate::plan::{Plan, ProviderName};
use crate::provider;
use crate::repository::Repository;
use crate::wire::{ops, requests};

/// A plan in short; `examples/fleet/fleet.toml` is the long form.
const PLAN: &str = r#"A plan is TOML; paths in it are relative to its folder:

    provider = "anthropic"        # the key is read from ANTHROPIC_API_KEY; or "offline"
    prompts = "prompts"           # folder of templates, NAME.prompt.md
    lessons = "lessons.jsonl"     # made at the first failure
    repo = "."                    # by default the folder of the plan

    [[task]]
    id = "a"                      # the branch is batchyard/a
    kind = "implementer"          # lessons are found by it
    model = "the-model"           # one submission per kind and model
    template = "do"               # prompts/do.prompt.md
    data = { goal = "..." }       # values for the template

Left out here: base_url, remote, answers, state, allow; onto and push in [land]; run in [gate];
max_tokens, after and expect of a task. "offline" takes the answer to a task from ID.json, ID.md or
ID.txt in the folder `answers`, and stops before the push.

A run that did not end (status 3 or 130) keeps its state in PLAN.toml.state; the same command goes
on with it and pays for nothing twice."#;

#[derive(Debug, clap::Args)]
#[command(after_long_help = PLAN)]
pub(crate) struct Options {
    /// The plan
    #[arg(value_name = "PLAN.toml")]
    plan: PathBuf,
    /// Who answers, in place of the plan's provider
    #[arg(long, value_enum)]
    provider: Option<ProviderName>,
    /// Print the operations; commit nothing, push nothing, pay nothing
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(session: &Session, options: &Options) -> Result<Exit, Stop> {
    let plan = Plan::load(&options.plan)?;
    let name = provider_of(&plan, options)?;
    let provider = open_provider(&plan, name)?;
    let prompts = prompt::load(&plan.prompts)?;
    // Lessons are read before a demo copies them, so that a dry run writes nothing at all.
    let index = lessons::open(&plan.lessons)?;
    lessons::say_faults(session, &plan.lessons, &index.report());
    let study = Study::new(prompts, index.snapshot());
    study.check(&plan)?;
    if options.dry_run {
        return dry_run(session, &plan, name, &provider, &study);
    }
    let Some(demo) = &plan.demo else {
        let repository = repository_of(&plan);
        let site = Site {
            repository,
            onto: plan.land.onto.clone(),
            lessons: &plan.lessons,
            state: &plan.state.clone().unwrap_or_else(|| plan.default_state()),
            may_push: name != ProviderName::Offline,
            scratch: None,
        };
        return journey(session, &plan, &provider, &study, &site);
    };
    let scratch = Scratch::take(&plan, demo)?;
    scratch.build(&plan, demo, &session.output)?;
    session.output.note(format!("scratch remote: {}", scratch.remote().display()));
    let site = Site {
        repository: &scratch.repository(),
        onto: Some(scratch.base().to_owned()),
        lessons: &scratch.lessons(),
        state: &plan.state.clone().unwrap_or_else(|| scratch.state()),
        may_push: true,
        scratch: (name == ProviderName::Offline && demo.one_by_one).then_some(&scratch),
    };
    journey(session, &plan, &provider, &study, &site)
}

/// Where a run takes place.
struct Site<'a> {
    repository: &'a Path,
    /// The base branch, if the plan names it.
    onto: Option<String>,
    lessons: &'a Path,
    state: &'a Path,
    may_push: bool,
    /// Where to run the same tasks one by one afterwards.
    scratch: Option<&'a Scratch>,
}

fn journey(
    session: &Session,
    plan: &Plan,
    provider: &Arc<dyn Provider>,
    study: &Study,
    site: &Site<'_>,
) -> Result<Exit, Stop> {
    let output = &session.output;
    let mut settings = Settings::default().with_remote(&plan.remote);
    if let Some(gate) = gate::of(session, plan.gate.as_deref().unwrap_or_default()) {
        settings = settings.with_gate(gate);
    }
    let git = git_apply::open(site.repository, settings)?;
    let repository = Repository::open(site.repository, &plan.remote)?;
    let onto = match (&site.onto, &plan.demo) {
        (Some(made), Some(_)) => made.clone(),
        (named, _) => {
            repository.remote_branches().map_err(Stop::refused)?.base(named.as_deref())?
        }
    };
    let started = Started {
        plan: plan.text.clone(),
        provider: provider.name().to_owned(),
        endpoint: provider.endpoint().to_owned(),
    };
    let state = RunState::open(site.state, started)?;
    session.interrupt.resume_with(Some(resume_command()));

    let begun = Instant::now();
    let mut board = Board::new(plan);
    let calls = pipeline::ask(session, &mut board, study, provider, &state)?;
    session.interrupt.check()?;
    let may_push = site.may_push;
    let place = Place { git: &git, repository: &repository, onto: &onto, may_push, state: &state };
    let landing = pipeline::land(session, &mut board, &place)?;
    let summary = Summary::new(&board, &calls, &landing, begun.elapsed().as_secs_f64());
    // The work is done and pushed: what goes wrong from here on is told, and takes nothing back.
    let mut faults = Vec::new();
    let learned = pipeline::learn(session, &board, site.lessons).unwrap_or_else(|stop| {
        faults.push(format!("the lessons are not recorded: {}", stop.message()));
        0
    });
    if let Err(error) = state.remove() {
        let state = site.state.display();
        faults.push(format!("the state {state} is over and cannot be removed: {error}"));
    }
    session.interrupt.resume_with(None);

    let one_by_one = match site.scratch {
        Some(scratch) if !session.interrupt.seen() => {
            compare(session, scratch, plan, study, provider)
        }
        _ => None,
    };
    pipeline::tasks(output, &board);
    pipeline::savings(output, &summary, one_by_one.as_ref(), plan.demo.is_some());
    if learned > 0 {
        let lessons = if learned == 1 { "lesson" } else { "lessons" };
        output.note(format!("{learned} {lessons} recorded in {}", site.lessons.display()));
    }
    if let Some(why) = landing.held_back {
        output.note(format!("note: stopped before the push: {why}"));
    }
    for fault in &faults {
        complain(Stop::failed(fault).to_string());
    }
    let (_, as_expected) = board.verdict();
    let is_well = as_expected && faults.is_empty();
    Ok(if is_well { Exit::Done } else { Exit::SomeFailed })
}

/// The comparison is an extra: that it cannot be made is no fault of the run.
fn compare(
    session: &Session,
    scratch: &Scratch,
    plan: &Plan,
    study: &Study,
    provider: &Arc<dyn Provider>,
) -> Option<OneByOne> {
    session.output.note("running the same tasks one by one, for comparison");
    match demo::compare(scratch, plan, study, provider) {
        Ok(compared) => Some(compared),
        Err(why) => {
            session.output.note(format!("note: no comparison: {why}"));
            None
        }
    }
}

/// Prints what would be done. Recorded answers are read; a provider that costs money is not asked.
fn dry_run(
    session: &Session,
    plan: &Plan,
    name: ProviderName,
    provider: &Arc<dyn Provider>,
    study: &Study,
) -> Result<Exit, Stop> {
    let output = &session.output;
    let begun = Instant::now();
    let onto = base_of(plan)?;
    let onto = onto.as_str();
    let mut board = Board::new(plan);
    let mut calls = Asked::default();
    if name == ProviderName::Offline {
        let folder = tempfile::tempdir()
            .map_err(|error| Stop::refused(format_args!("cannot make a folder: {error}")))?;
        let started = Started {
            plan: plan.text.clone(),
            provider: provider.name().to_owned(),
            endpoint: provider.endpoint().to_owned(),
        };
        let state = RunState::open(&folder.path().join("state"), started)?;
        calls = pipeline::ask(session, &mut board, study, provider, &state)?;
        let base = |_: &str| Some(onto.to_owned());
        for operation in pipeline::operations(&board, onto, base).all() {
            if output.json {
                output.object(&ops::to_json(operation));
            } else {
                output.human(ops::describe(operation));
            }
        }
    } else {
        for request in study.requests(&board, &plan.waves[0])? {
            let line = requests::to_json(&request).map_err(Stop::failed)?;
            if output.json {
                output.object(&line);
            } else {
                output.human(format!("ask     {}  {} {}", request.id, request.kind, request.model));
            }
        }
        output.note("note: nothing was sent, so what the answers would change is not known");
    }
    let landing = Landing::default();
    let summary = Summary::new(&board, &calls, &landing, begun.elapsed().as_secs_f64());
    if !output.json {
        output.line("");
        pipeline::tasks(output, &board);
    }
    pipeline::savings(output, &summary, None, true);
    output.note("note: dry run; nothing was committed and nothing was pushed");
    let (_, as_expected) = board.verdict();
    let is_fine = as_expected || name != ProviderName::Offline;
    Ok(if is_fine { Exit::Done } else { Exit::SomeFailed })
}

/// Finds the branch that a run would land on, and what is wrong with the repository or its remote.
fn base_of(plan: &Plan) -> Result<String, Stop> {
    if plan.demo.is_some() {
        return Ok(plan.land.onto.as_deref().unwrap_or(demo::DEFAULT_BASE).to_owned());
    }
    let folder = repository_of(plan);
    git_apply::open(folder, Settings::default().with_remote(&plan.remote))?;
    let remote = Repository::open(folder, &plan.remote)?.remote_branches();
    remote.map_err(Stop::refused)?.base(plan.land.onto.as_deref())
}

fn repository_of(plan: &Plan) -> &Path {
    plan.repo.as_deref().unwrap_or(Path::new("."))
}

fn provider_of(plan: &Plan, options: &Options) -> Result<ProviderName, Stop> {
    options.provider.or(plan.provider).ok_or_else(|| {
        Stop::refused(format_args!("{}: no provider is named", plan.file.display()))
            .help("set `provider` in the plan, or give --provider: anthropic or offline")
    })
}

fn open_provider(plan: &Plan, name: ProviderName) -> Result<Arc<dyn Provider>, Stop> {
    let place =
        provider::Place { base_url: plan.base_url.as_deref(), answers: plan.answers.as_deref() };
    provider::open(name, place)
}
