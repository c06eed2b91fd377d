//! `run`: a plan of agent tasks from prompts to one push.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use git_batch::{GitBatch, Settings};
use llm_batch::Provider;

use super::{git_apply, lessons, prompt};
use crate::cli::{Session, dollars, resume_command};
use crate::demo::{self, OneByOne, Scratch};
use crate::exit::{Exit, Stop};
use crate::gate;
use crate::output::complain;
use crate::pipeline::{
    self, Asked, Board, Budget, Content, Landing, Page, Place, RunState, Started, Study, Summary,
};
use crate::plan::{Gate, Plan, ProviderName, Push, Task};
use crate::provider;
use crate::repository::{Clash, Repository};
use crate::wire::{ops, requests};

/// A plan in short; `examples/fleet/fleet.toml` is the long form.
const PLAN: &str = r#"A plan is TOML; paths in it are relative to its folder:

    provider = "anthropic"        # or "openai", "offline"; keys: ANTHROPIC_API_KEY, OPENAI_API_KEY
    prompts = "prompts"           # folder of templates, NAME.prompt.md
    lessons = "lessons.jsonl"     # made at the first failure
    repo = "."                    # by default the folder of the plan

    [[task]]
    id = "a"                      # the branch is batchyard/a
    kind = "implementer"          # lessons are found by it
    model = "the-model"           # one submission per kind and model
    template = "do"               # prompts/do.prompt.md
    data = { goal = "..." }       # values for the template

Left out here: base_url, remote, answers, state, allow, max_cost, prices; onto and push in [land];
run and env in [gate]; max_tokens, after and expect of a task. "offline" takes the answer to a task
from ID.json, ID.md or ID.txt in the folder `answers`, and stops before the push.

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
    /// What the run must cost at most, in dollars, in place of the plan's `max_cost`; one that may
    /// cost more is refused before anything is sent
    #[arg(long, value_name = "USD", value_parser = dollars)]
    max_cost: Option<f64>,
    /// Write what became of the tasks to a page for browsers, in place of an earlier one
    #[arg(long, value_name = "FILE.html", conflicts_with = "dry_run")]
    report: Option<PathBuf>,
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
    let folder = plan.state.clone().unwrap_or_else(|| plan.default_state());
    let is_begun = plan.demo.is_none() && !options.dry_run && RunState::is_begun(&folder);
    // What was paid for before is there still, whatever is in the way now.
    let in_the_way = |stop: Stop| {
        if is_begun { stop.once_begun().kept() } else { stop.also(Stop::NOTHING_PAID) }
    };
    if let Some(Gate { argv, .. }) = &plan.gate {
        gate::refuse_missing(argv.first().map_or("", String::as_str)).map_err(in_the_way)?;
    }
    let budget = Budget::new(&plan, options.max_cost).map_err(in_the_way)?;
    let work = Work { plan: &plan, provider: &provider, study: &study, budget: &budget };
    if options.dry_run {
        return dry_run(session, &work, name);
    }
    let page = options.report.as_deref().map(Page::at).transpose().map_err(in_the_way)?;
    let started = Started::new(&plan, &*provider);
    let may_push = plan.demo.is_some() || name != ProviderName::Offline;
    let Some(demo) = &plan.demo else {
        // Failures become lessons, after all has been paid for.
        lessons::writable(&plan.lessons).map_err(in_the_way)?;
        let (git, repository) = open(session, &plan, repository_of(&plan)).map_err(in_the_way)?;
        let onto = can_land(&plan, &repository, may_push).map_err(in_the_way)?;
        repository.check_writable().map_err(in_the_way)?;
        let state = RunState::open(&folder, started)?;
        let lessons = plan.lessons.as_path();
        let site = Site { git, repository, onto, lessons, may_push, scratch: None, page };
        return journey(session, &work, &site, state);
    };
    let scratch = Scratch::take(&plan, demo)?;
    // What an unfinished run has left there is that of its plan.
    let state = RunState::open(&plan.state.clone().unwrap_or_else(|| scratch.state()), started)?;
    let opened = scratch.build(&plan, demo, &session.output).and_then(|()| {
        session.output.note(format!("scratch remote: {}", scratch.remote().display()));
        open(session, &plan, &scratch.repository())
    });
    let (git, repository) = match opened {
        Ok(opened) => opened,
        Err(stop) => return Err(abandon(state, stop)),
    };
    let lessons = &scratch.lessons();
    let onto = scratch.base().to_owned();
    let is_compared = name == ProviderName::Offline && demo.one_by_one;
    let compared = is_compared.then_some(&scratch);
    let site = Site { git, repository, onto, lessons, may_push, scratch: compared, page };
    journey(session, &work, &site, state)
}

/// What is done, and by whom.
struct Work<'a> {
    plan: &'a Plan,
    provider: &'a Arc<dyn Provider>,
    study: &'a Study,
    budget: &'a Budget,
}

/// Where a run takes place.
struct Site<'a> {
    /// With the gate of the plan.
    git: GitBatch,
    repository: Repository,
    /// The base branch.
    onto: String,
    lessons: &'a Path,
    may_push: bool,
    /// Where to run the same tasks one by one afterwards.
    scratch: Option<&'a Scratch>,
    /// Where to tell what became of the tasks.
    page: Option<Page>,
}

/// Opens the repository in `folder`, with the gate of the plan.
fn open(session: &Session, plan: &Plan, folder: &Path) -> Result<(GitBatch, Repository), Stop> {
    let mut settings = Settings::default().with_remote(&plan.remote);
    if let Some(Gate { argv, env }) = &plan.gate
        && let Some(gate) = gate::of(session, argv, env)
    {
        // What made it fail in an earlier run may have been outside of the trees, such as a database.
        settings = settings.with_gate(gate.afresh());
    }
    let git = git_apply::open(folder, settings)?;
    Ok((git, Repository::open(folder, &plan.remote)?))
}

/// Leaves nothing behind of a run in which nothing was asked.
fn abandon(state: RunState, stop: Stop) -> Stop {
    if stop.exit == Exit::NotStarted && state.is_new() {
        let _ = state.remove();
    }
    stop
}

fn journey(
    session: &Session,
    work: &Work<'_>,
    site: &Site<'_>,
    state: RunState,
) -> Result<Exit, Stop> {
    let (output, plan) = (&session.output, work.plan);
    session.interrupt.resume_with(Some(resume_command()));

    let begun = Instant::now();
    let mut board = Board::new(plan);
    let asked = pipeline::ask(session, &mut board, work.study, work.budget, work.provider, &state);
    let calls = match asked {
        Ok(calls) => calls,
        Err(stop) => return Err(abandon(state, stop)),
    };
    session.interrupt.check()?;
    let place = Place {
        git: &site.git,
        repository: &site.repository,
        onto: &site.onto,
        may_push: site.may_push,
        state: &state,
    };
    let landing = pipeline::land(session, &mut board, &place)?;
    let summary = Summary::new(&board, &calls, &landing, begun.elapsed().as_secs_f64());
    pipeline::tasks(output, &board);
    let tell = |one_by_one: Option<&OneByOne>, notes: &[String]| -> Result<(), String> {
        let Some(page) = &site.page else { return Ok(()) };
        let content = Content { board: &board, summary: &summary, one_by_one, notes };
        let name = page.path().display();
        page.write(&content).map_err(|error| format!("cannot write the report {name}: {error}"))?;
        output.note(format!("the report is in {name}"));
        Ok(())
    };
    if let Some(fault) = &landing.fault {
        // Nothing is learned from what is no fault of a task.
        pipeline::savings(output, &summary, None, plan.demo.is_some());
        let stop = pipeline::unlanded(&landing, fault, plan.land.push, &state);
        if let Err(why) = tell(None, &[stop.message().to_owned()]) {
            complain(Stop::failed(why).to_string());
        }
        return Err(stop);
    }
    // The work is done and pushed: what goes wrong from here on is told, and takes nothing back.
    let mut faults = Vec::new();
    let folder = state.folder().display().to_string();
    let learned = session.interrupt.shielded(|| {
        let learned = pipeline::learn(session, &board, site.lessons, &state);
        let learned = learned.unwrap_or_else(|stop| {
            faults.push(format!("the lessons are not recorded: {}", stop.message()));
            0
        });
        if let Err(error) = state.remove() {
            faults.push(format!("the state {folder} is over and cannot be removed: {error}"));
        }
        learned
    });
    session.interrupt.finish();

    let one_by_one = site.scratch.and_then(|scratch| compare(session, scratch, &board, work));
    pipeline::savings(output, &summary, one_by_one.as_ref(), plan.demo.is_some());
    let mut notes = Vec::new();
    if learned > 0 {
        let lessons = if learned == 1 { "lesson" } else { "lessons" };
        notes.push(format!("{learned} {lessons} recorded in {}", site.lessons.display()));
    }
    if let Some(why) = landing.held_back {
        notes.push(format!("note: stopped before the push: {why}"));
    }
    for note in &notes {
        output.note(note);
    }
    notes.extend_from_slice(&faults);
    faults.extend(tell(one_by_one.as_ref(), &notes).err());
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
    board: &Board<'_>,
    Work { study, provider, .. }: &Work<'_>,
) -> Option<OneByOne> {
    session.output.note("running the same tasks one by one, for comparison");
    let compared =
        session.interrupt.shielded(|| demo::compare(session, scratch, board, study, provider));
    match compared {
        Ok(compared) => Some(compared),
        Err(why) => {
            session.output.note(format!("note: no comparison: {why}"));
            None
        }
    }
}

/// Prints what would be done. Recorded answers are read; a provider that costs money is not asked.
fn dry_run(session: &Session, work: &Work<'_>, name: ProviderName) -> Result<Exit, Stop> {
    let &Work { plan, provider, study, budget } = work;
    let output = &session.output;
    let begun = Instant::now();
    let onto = base_of(plan, name != ProviderName::Offline)?;
    budget.check(plan, study)?;
    let onto = onto.as_str();
    let mut board = Board::new(plan);
    let mut calls = Asked::default();
    if name == ProviderName::Offline {
        let folder = tempfile::tempdir()
            .map_err(|error| Stop::refused(format_args!("cannot make a folder: {error}")))?;
        let started = Started::new(plan, &**provider);
        let state = RunState::open(&folder.path().join("state"), started)?;
        calls = pipeline::ask(session, &mut board, study, budget, provider, &state)?;
        let base = |_: &str| Some(onto.to_owned());
        for operation in pipeline::operations(&board, onto, base).all() {
            if output.json {
                output.object(&ops::to_json(operation));
            } else {
                output.human(ops::describe(operation));
            }
        }
    } else {
        for rendered in study.requests(&board, &plan.waves[0])? {
            let request = rendered.map_err(|failure| Stop::failed(failure.message))?;
            let line = requests::to_json(&request).map_err(Stop::failed)?;
            if output.json {
                output.object(&line);
            } else {
                output.human(format!("ask     {}  {} {}", request.id, request.kind, request.model));
            }
        }
        if let Ok(dollars) = budget.estimate(plan, study) {
            output.note(format!("note: the run may cost {dollars:.4} USD, rather less"));
        }
        output.note("note: nothing was sent, so what the answers would change is not known");
    }
    let landing = Landing::default();
    let summary = Summary::new(&board, &calls, &landing, begun.elapsed().as_secs_f64());
    if !output.json {
        output.human("");
        pipeline::tasks(output, &board);
    }
    pipeline::savings(output, &summary, None, true);
    output.note("note: dry run; nothing was committed and nothing was pushed");
    let (_, as_expected) = board.verdict();
    let is_fine = as_expected || name != ProviderName::Offline;
    Ok(if is_fine { Exit::Done } else { Exit::SomeFailed })
}

/// Finds the branch that a run would land on, and what is wrong with the repository or its remote.
fn base_of(plan: &Plan, may_push: bool) -> Result<String, Stop> {
    if plan.demo.is_some() {
        return Ok(plan.land.onto.as_deref().unwrap_or(demo::DEFAULT_BASE).to_owned());
    }
    let folder = repository_of(plan);
    git_apply::open(folder, Settings::default().with_remote(&plan.remote))?;
    can_land(plan, &Repository::open(folder, &plan.remote)?, may_push)
}

/// Finds the branch to land on, and what is known beforehand to keep all answers from landing.
fn can_land(plan: &Plan, repository: &Repository, may_push: bool) -> Result<String, Stop> {
    let remote = repository.remote_branches().map_err(|why| {
        let name = &plan.remote;
        Stop::refused(why).help(format_args!("git ls-remote {name} has to work in the repository"))
    })?;
    let onto = remote.base(plan.land.onto.as_deref())?;
    let wanted: Vec<String> = plan.tasks.iter().map(Task::branch).collect();
    let pushed = (may_push && plan.land.push != Push::Base).then_some(&remote);
    let clash = repository.clash(&wanted, pushed).map_err(Stop::refused)?;
    if let Some(Clash { name, is_remote, wanted }) = clash {
        let place = if is_remote { "the remote" } else { "the repository" };
        return Err(Stop::refused(format_args!(
            "{place} has a branch \"{name}\", beside which there can be no branch \"{wanted}\""
        ))
        .help("rename or delete that branch, or give the task another id"));
    }
    Ok(onto)
}

fn repository_of(plan: &Plan) -> &Path {
    plan.repo.as_deref().unwrap_or(Path::new("."))
}

fn provider_of(plan: &Plan, options: &Options) -> Result<ProviderName, Stop> {
    options.provider.or(plan.provider).ok_or_else(|| {
        Stop::refused(format_args!("{}: no provider is named", plan.file.display()))
            .help("set `provider` in the plan, or give --provider: anthropic, openai or offline")
    })
}

fn open_provider(plan: &Plan, name: ProviderName) -> Result<Arc<dyn Provider>, Stop> {
    let place =
        provider::Place { base_url: plan.base_url.as_deref(), answers: plan.answers.as_deref() };
    let opened = provider::open(name, place);
    opened.map_err(|stop| match (name, &plan.answers) {
        (ProviderName::Offline, None) => stop.help("name it with `answers` in the plan"),
        _ => stop,
    })
}
