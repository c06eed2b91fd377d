//! How what is public and what gix has is written down.

use gix::index::entry::stat::Time;
use gix::index::entry::{Mode, Stat};

use super::{Wire, wire_enum, wire_struct};
use crate::{Class, LeftOut, Omission, OnMoved, OpError, OpErrorKind, Outcome};

wire_enum!(Class { 0 => Transient, 1 => Permanent });
wire_enum!(OnMoved { 0 => Merge, 1 => Rebase, 2 => Fail });
wire_enum!(Omission { 0 => Secret, 1 => TooLarge, 2 => Ignored, 3 => Submodule, 4 => Special });
wire_struct!(LeftOut { path, why });
wire_struct!(OpError { kind, message });
wire_struct!(Time { secs, nsecs });
wire_struct!(Stat { mtime, ctime, dev, ino, uid, gid, size });

impl Wire for OpErrorKind {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_str().to_owned().put(out);
    }
    fn take(input: &mut &[u8]) -> Option<OpErrorKind> {
        OpErrorKind::from_name(&String::take(input)?)
    }
}

impl Wire for Mode {
    fn put(&self, out: &mut Vec<u8>) {
        self.bits().put(out);
    }
    fn take(input: &mut &[u8]) -> Option<Mode> {
        Mode::from_bits(u32::take(input)?)
    }
}

impl Wire for Outcome {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Outcome::Landed { commit, left_out } => {
                out.push(0);
                commit.put(out);
                left_out.put(out);
            }
            Outcome::NoChange { commit, left_out } => {
                out.push(1);
                commit.put(out);
                left_out.put(out);
            }
            Outcome::Conflict { paths, with } => {
                out.push(2);
                paths.put(out);
                with.put(out);
            }
            Outcome::Rejected { class, reason } => {
                out.push(3);
                class.put(out);
                reason.put(out);
            }
            Outcome::Superseded => out.push(4),
            Outcome::Skipped { because } => {
                out.push(5);
                because.put(out);
            }
            Outcome::Failed(error) => {
                out.push(6);
                error.put(out);
            }
        }
    }
    fn take(input: &mut &[u8]) -> Option<Outcome> {
        Some(match u8::take(input)? {
            0 => Outcome::Landed { commit: Wire::take(input)?, left_out: Wire::take(input)? },
            1 => Outcome::NoChange { commit: Wire::take(input)?, left_out: Wire::take(input)? },
            2 => Outcome::Conflict { paths: Wire::take(input)?, with: Wire::take(input)? },
            3 => Outcome::Rejected { class: Wire::take(input)?, reason: Wire::take(input)? },
            4 => Outcome::Superseded,
            5 => Outcome::Skipped { because: Wire::take(input)? },
            6 => Outcome::Failed(Wire::take(input)?),
            _ => return None,
        })
    }
}
