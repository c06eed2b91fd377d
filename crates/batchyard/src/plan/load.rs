//! Reads a plan file and checks it whole; each fault is named with its line.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use toml::Spanned;

use super::schema::{DemoTable, Expect, PlanFile, TaskTable};
use super::{Allow, Demo, Gate, Land, Plan, ProviderName, Push, Task, branch_of, waves};
use crate::exit::Stop;
use crate::gate::variable;
use crate::input::{Input, existing_folder};
use crate::suggest;

/// Names that the program itself gives to templates.
const RESERVED: [&str; 3] = ["task", "lessons", "after"];

/// The plan file while it is checked.
struct Source<'a> {
    path: &'a Path,
    text: &'a str,
    folder: PathBuf,
}

pub(super) fn load(path: &Path) -> Result<Plan, Stop> {
    let text = Input::File(path.to_owned()).read_text()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.map_or_else(|| PathBuf::from("."), Path::to_owned);
    let source = Source { path, text: &text, folder };
    let file: PlanFile = toml::from_str(&text).map_err(|error| source.syntax(&error))?;

    for (key, path) in [
        ("prompts", Some(&file.prompts)),
        ("lessons", Some(&file.lessons)),
        ("answers", file.answers.as_ref()),
        ("repo", file.repo.as_ref()),
        ("state", file.state.as_ref()),
        ("prices", file.prices.as_ref()),
    ] {
        source.refuse_empty(key, path)?;
    }
    let prompts = source.resolve(file.prompts.get_ref());
    existing_folder(&prompts, "the prompts folder")
        .map_err(|stop| source.wrap(&file.prompts, &stop))?;
    let answers = match &file.answers {
        Some(answers) => {
            let folder = source.resolve(answers.get_ref());
            existing_folder(&folder, "the answers folder")
                .map_err(|stop| source.wrap(answers, &stop))?;
            Some(folder)
        }
        None => None,
    };
    let max_cost = source.dollars(file.max_cost.as_ref())?;
    let allow = source.allow(file.allow.as_ref())?;
    let gate = match file.gate {
        Some(gate) if gate.run.get_ref().first().is_none_or(String::is_empty) => {
            return Err(source.fault(gate.run.span(), "\"run\" names no program"));
        }
        Some(gate) => {
            for name in &gate.env {
                variable(name.get_ref())
                    .map_err(|why| source.fault(name.span(), &format!("\"env\": {why}")))?;
            }
            let env = gate.env.into_iter().map(Spanned::into_inner).collect();
            Some((gate.run.span(), Gate { argv: gate.run.into_inner(), env }))
        }
        None => None,
    };
    let push = file.land.push.unwrap_or(Push::Both);
    if let (Some((span, _)), Push::Branches) = (&gate, push) {
        return Err(source
            .fault(span.clone(), "a gate runs on the merged tree, and push = \"branches\" has none")
            .help("set push to \"base\" or \"both\", or leave the gate out"));
    }
    let (repo, demo) = match (file.repo, file.demo) {
        (Some(repo), Some(_)) => {
            return Err(source
                .fault(repo.span(), "\"repo\" and [demo] exclude each other")
                .help("[demo] makes a scratch repository of its own"));
        }
        (_, Some(demo)) => {
            let DemoTable { source: checkout, one_by_one } = demo.into_inner();
            source.refuse_empty("source", Some(&checkout))?;
            let folder = source.resolve(checkout.get_ref());
            existing_folder(&folder, "the source").map_err(|stop| source.wrap(&checkout, &stop))?;
            (None, Some(Demo { source: folder, one_by_one: one_by_one.unwrap_or(true) }))
        }
        (Some(repo), None) => (Some(source.resolve(repo.get_ref())), None),
        (None, None) => (Some(source.folder.clone()), None),
    };
    if let Some(onto) = &file.land.onto {
        git_batch::guard::refname::branch(onto.get_ref())
            .map_err(|error| source.fault(onto.span(), &format!("\"onto\": {error}")))?;
    }
    let onto = file.land.onto.map(Spanned::into_inner);
    let remote = source.not_empty("remote", file.remote)?.unwrap_or_else(|| "origin".to_owned());
    if let (Some(url), Some(ProviderName::Offline)) = (&file.base_url, file.provider) {
        let what = "\"base_url\" does not belong to the provider \"offline\"";
        return Err(source.fault(url.span(), what));
    }
    let base_url = source.not_empty("base_url", file.base_url)?;
    let tasks = source.tasks(file.task)?;
    let waves = waves::order(&tasks).map_err(|ids| {
        Stop::refused(format_args!("{}: tasks wait for each other: {ids}", path.display()))
            .help("take one of them out of \"after\"")
    })?;
    Ok(Plan {
        file: path.to_owned(),
        provider: file.provider,
        base_url,
        repo,
        remote,
        prompts,
        lessons: source.resolve(file.lessons.get_ref()),
        answers,
        state: file.state.map(|state| source.resolve(state.get_ref())),
        max_cost,
        prices: file.prices.map(|prices| source.resolve(prices.get_ref())),
        land: Land { onto, push },
        gate: gate.map(|(_, gate)| gate),
        allow,
        demo,
        tasks,
        waves,
    })
}

impl Source<'_> {
    fn tasks(&self, tables: Vec<TaskTable>) -> Result<Vec<Task>, Stop> {
        if tables.is_empty() {
            return Err(Stop::refused(format_args!(
                "{}: the plan has no task",
                self.path.display()
            ))
            .help("add a [[task]] table with id, kind, model and template"));
        }
        let mut index: BTreeMap<String, usize> = BTreeMap::new();
        for (at, table) in tables.iter().enumerate() {
            let id = table.id.get_ref();
            if id.is_empty() {
                return Err(self.fault(table.id.span(), "\"id\" is empty"));
            }
            let branch = branch_of(id);
            if let Err(error) = git_batch::guard::refname::branch(&branch) {
                return Err(self.fault(table.id.span(), &format!("\"id\": {error}")));
            }
            if index.insert(id.clone(), at).is_some() {
                return Err(self
                    .fault(table.id.span(), &format!("a task with the id \"{id}\" exists already"))
                    .help("give each task an id of its own"));
            }
        }
        // A branch cannot be beside another that is a folder of it, nor, where the file system passes
        // over upper and lower case, beside one that differs by these only.
        let folded: BTreeMap<String, &String> =
            index.keys().map(|id| (id.to_lowercase(), id)).collect();
        for table in &tables {
            let id = table.id.get_ref();
            let low = id.to_lowercase();
            let outer = low.match_indices('/').find_map(|(at, _)| folded.get(&low[..at]));
            let what = match (outer, folded.get(&low)) {
                (Some(outer), _) => {
                    format!("the branch of \"{id}\" would be inside that of \"{outer}\"")
                }
                (None, Some(other)) if *other != id => {
                    format!("\"{id}\" and \"{other}\" differ by upper and lower case only")
                }
                _ => continue,
            };
            return Err(self.fault(table.id.span(), &what).help("give the task another id"));
        }
        tables.into_iter().map(|table| self.task(table, &index)).collect()
    }

    fn task(&self, table: TaskTable, index: &BTreeMap<String, usize>) -> Result<Task, Stop> {
        for (key, value) in
            [("kind", &table.kind), ("model", &table.model), ("template", &table.template)]
        {
            if value.get_ref().is_empty() {
                return Err(self.fault(value.span(), &format!("\"{key}\" is empty")));
            }
        }
        let max_tokens = match table.max_tokens {
            Some(tokens) if *tokens.get_ref() == 0 => {
                return Err(self.fault(tokens.span(), "\"max_tokens\" must be at least 1"));
            }
            Some(tokens) => tokens.into_inner(),
            None => 4096,
        };
        let mut after = BTreeSet::new();
        for name in &table.after {
            let known = index.get(name.get_ref()).ok_or_else(|| {
                let known: Vec<&str> = index.keys().map(String::as_str).collect();
                let hint = suggest::hint(name.get_ref(), &known);
                let (span, name) = (name.span(), name.get_ref());
                self.fault(span, &format!("\"after\": no task \"{name}\"{hint}"))
            })?;
            after.insert(*known);
        }
        let data = match table.data {
            Some(data) => self.data(&data)?,
            None => Map::new(),
        };
        Ok(Task {
            id: table.id.into_inner(),
            kind: table.kind.into_inner(),
            model: table.model.into_inner(),
            max_tokens,
            template: table.template.into_inner(),
            data,
            after: after.into_iter().collect(),
            expect_failure: table.expect == Some(Expect::Fail),
        })
    }

    fn data(&self, table: &Spanned<toml::Table>) -> Result<Map<String, Value>, Stop> {
        if let Some(name) = RESERVED.iter().find(|name| table.get_ref().contains_key(**name)) {
            let what = format!("\"data\": the name \"{name}\" belongs to the program");
            return Err(self.fault(table.span(), &what).help("give the value another name"));
        }
        object(table.get_ref())
            .ok_or_else(|| self.fault(table.span(), "\"data\" has a number that is not finite"))
    }

    fn allow(&self, globs: Option<&Spanned<Vec<Spanned<String>>>>) -> Result<Allow, Stop> {
        let Some(list) = globs else { return Ok(Allow::default()) };
        let globs = list.get_ref();
        if globs.is_empty() {
            let what = "\"allow\" is empty, so that no answer could be used";
            return Err(self.fault(list.span(), what).help(
                "name what answers may write, or leave it out to allow all that is not guarded",
            ));
        }
        let texts: Vec<&str> = globs.iter().map(|glob| glob.get_ref().as_str()).collect();
        Allow::new(&texts)
            .map_err(|(at, why)| self.fault(globs[at].span(), &format!("\"allow\": {why}")))
    }

    fn dollars(&self, amount: Option<&Spanned<f64>>) -> Result<Option<f64>, Stop> {
        let Some(amount) = amount else { return Ok(None) };
        let dollars = *amount.get_ref();
        if dollars.is_finite() && dollars >= 0.0 {
            return Ok(Some(dollars));
        }
        let what = "\"max_cost\": expected dollars, such as 2.50";
        Err(self.fault(amount.span(), what))
    }

    fn refuse_empty(&self, key: &str, value: Option<&Spanned<String>>) -> Result<(), Stop> {
        match value {
            Some(value) if value.get_ref().is_empty() => {
                Err(self.fault(value.span(), &format!("\"{key}\" is empty")))
            }
            _ => Ok(()),
        }
    }

    fn not_empty(&self, key: &str, value: Option<Spanned<String>>) -> Result<Option<String>, Stop> {
        self.refuse_empty(key, value.as_ref())?;
        Ok(value.map(Spanned::into_inner))
    }

    fn resolve(&self, path: &str) -> PathBuf {
        self.folder.join(path)
    }

    fn line(&self, at: usize) -> usize {
        1 + self.text.get(..at).unwrap_or(self.text).matches('\n').count()
    }

    fn fault(&self, span: Range<usize>, what: &str) -> Stop {
        Stop::refused(format_args!("{}:{}: {what}", self.path.display(), self.line(span.start)))
    }

    fn wrap(&self, place: &Spanned<String>, stop: &Stop) -> Stop {
        self.fault(place.span(), stop.message())
    }

    fn syntax(&self, error: &toml::de::Error) -> Stop {
        let place = self.path.display();
        let message = error.message().replace('\n', ", ");
        let hint = unknown_field(&message).unwrap_or_default();
        let stop = match error.span() {
            Some(span) => {
                Stop::refused(format_args!("{place}:{}: {message}{hint}", self.line(span.start)))
            }
            None => Stop::refused(format_args!("{place}: {message}{hint}")),
        };
        if message.starts_with("missing field") {
            return stop.help("batchyard run --help shows a plan with all that it needs");
        }
        stop
    }
}

/// Returns a table as JSON: a date or time is its text. `None` if a number is not finite, as JSON has no
/// such number.
fn object(table: &toml::Table) -> Option<Map<String, Value>> {
    table.iter().map(|(key, value)| Some((key.clone(), json(value)?))).collect()
}

fn json(value: &toml::Value) -> Option<Value> {
    Some(match value {
        toml::Value::String(text) => text.as_str().into(),
        toml::Value::Integer(number) => (*number).into(),
        toml::Value::Float(number) => Value::Number(serde_json::Number::from_f64(*number)?),
        toml::Value::Boolean(is_true) => (*is_true).into(),
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(items) => items.iter().map(json).collect::<Option<_>>()?,
        toml::Value::Table(table) => Value::Object(object(table)?),
    })
}

/// Adds a suggestion to serde's "unknown field `a`, expected one of `b`, `c`".
fn unknown_field(message: &str) -> Option<String> {
    let names = message.strip_prefix("unknown field ").or(message.strip_prefix("unknown variant "));
    let mut names = names?.split('`').skip(1).step_by(2);
    let found = names.next()?;
    let near = suggest::closest(found, names)?;
    Some(format!("; did you mean \"{near}\"?"))
}
