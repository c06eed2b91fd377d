//! The order of tasks that need each other's answers.

use super::Task;

/// Sorts tasks into waves: a task is in the first wave after those of all it needs, and a wave
/// keeps the order of the plan.
///
/// # Errors
///
/// The ids of the tasks that wait for each other.
pub(super) fn order(tasks: &[Task]) -> Result<Vec<Vec<usize>>, String> {
    let mut wave_of: Vec<Option<usize>> = vec![None; tasks.len()];
    let mut waves: Vec<Vec<usize>> = Vec::new();
    let mut placed = 0;
    while placed < tasks.len() {
        let number = waves.len();
        let ready = |task: &Task| {
            task.after.iter().all(|at| wave_of[*at].is_some_and(|before| before < number))
        };
        let wave: Vec<usize> =
            (0..tasks.len()).filter(|at| wave_of[*at].is_none() && ready(&tasks[*at])).collect();
        if wave.is_empty() {
            let stuck = tasks.iter().zip(&wave_of).filter(|(_, wave)| wave.is_none());
            let ids: Vec<&str> = stuck.map(|(task, _)| task.id.as_str()).collect();
            return Err(ids.join(", "));
        }
        for at in &wave {
            wave_of[*at] = Some(number);
        }
        placed += wave.len();
        waves.push(wave);
    }
    Ok(waves)
}
