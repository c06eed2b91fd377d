//! The seed's index as it would be written here: one lesson, and lists of pointers by value.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;

/// Is a lesson with every field decoded.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub struct Lesson {
    /// The id.
    pub id: String,
    /// The type of the task.
    pub task_type: String,
    /// The activity.
    pub activity_type: String,
    /// The type of the failure.
    pub failure_type: String,
    /// What it said.
    pub failure_msg: String,
    /// What helped.
    pub resolution: String,
    /// The pattern.
    pub pattern: String,
    /// How often.
    pub times_seen: u64,
    /// When last, as text.
    pub last_seen: String,
    /// When first, as text.
    pub first_seen: String,
    /// The rest.
    pub metadata: serde_json::Map<String, serde_json::Value>,
}

impl Default for Lesson {
    fn default() -> Self {
        Self {
            id: String::new(),
            task_type: String::new(),
            activity_type: String::new(),
            failure_type: String::new(),
            failure_msg: String::new(),
            resolution: String::new(),
            pattern: String::new(),
            times_seen: 0,
            last_seen: String::new(),
            first_seen: String::new(),
            metadata: serde_json::Map::new(),
        }
    }
}

type Lists = HashMap<String, Vec<Arc<Lesson>>>;

/// Is that index.
#[derive(Debug, Default)]
pub struct Port {
    /// By id.
    pub by_id: HashMap<String, Arc<Lesson>>,
    /// By type of task.
    pub by_task: Lists,
    /// By activity.
    pub by_activity: Lists,
    /// By type of failure.
    pub by_failure: Lists,
    /// By pattern.
    pub by_pattern: Lists,
}

impl Port {
    /// Reads a file of lessons.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the first broken line.
    pub fn load(text: &str) -> serde_json::Result<Self> {
        let mut port = Self::default();
        for line in text.lines() {
            let lesson: Arc<Lesson> = Arc::new(serde_json::from_str(line)?);
            let lists = [
                (&mut port.by_task, &lesson.task_type),
                (&mut port.by_activity, &lesson.activity_type),
                (&mut port.by_failure, &lesson.failure_type),
                (&mut port.by_pattern, &lesson.pattern),
            ];
            for (list, value) in lists {
                list.entry(value.clone()).or_default().push(Arc::clone(&lesson));
            }
            port.by_id.insert(lesson.id.clone(), lesson);
        }
        Ok(port)
    }

    /// Returns the ids of the newest lessons with these values.
    pub fn newest(&self, task: &str, activity: &str, failure: &str, limit: usize) -> Vec<&str> {
        let list = self.by_task.get(task).map_or(&[][..], Vec::as_slice);
        let mut found: Vec<&Lesson> = list
            .iter()
            .map(|lesson| &**lesson)
            .filter(|lesson| lesson.activity_type == activity && lesson.failure_type == failure)
            .collect();
        found.sort_by(|a, b| b.last_seen.cmp(&a.last_seen).then_with(|| a.id.cmp(&b.id)));
        found.into_iter().take(limit).map(|lesson| lesson.id.as_str()).collect()
    }
}
