//! What became of the tasks of a run, as it is kept until lessons are recorded of it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::board::{Board, Failure, Standing};

/// How a run ended; one that was cut off behind it takes this in place of another landing.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct End {
    /// When its failures are recorded to have been, by which they are known in the file of lessons.
    at: String,
    tasks: Vec<(usize, Ended)>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Ended {
    Landed { commit: String },
    Failed(Failure),
}

impl End {
    /// Returns the end of the tasks of a board.
    pub(super) fn of(board: &Board<'_>, at: Timestamp) -> End {
        let ended = board.iter().filter_map(|(number, _, standing)| match standing {
            Standing::Landed { commit } => Some((number, Ended::Landed { commit: commit.clone() })),
            Standing::Failed(failure) => Some((number, Ended::Failed(failure.clone()))),
            _ => None,
        });
        End { at: at.to_string(), tasks: ended.collect() }
    }

    /// Returns when its failures were.
    pub(super) fn at(&self) -> Option<Timestamp> {
        self.at.parse().ok()
    }

    /// Puts the tasks of a board where they were at the end.
    pub(super) fn put(self, board: &mut Board<'_>) {
        for (number, ended) in self.tasks {
            board.set(
                number,
                match ended {
                    Ended::Landed { commit } => Standing::Landed { commit },
                    Ended::Failed(failure) => Standing::Failed(failure),
                },
            );
        }
    }
}
