//! Who makes a commit, and when.

use bstr::BString;
use gix::actor::Signature;
use gix::date::Time;

use super::Store;
use crate::{Author, OpError, OpErrorKind, stops};

/// The people of one batch, read once; one moment counts for all its commits.
#[derive(Debug, Clone)]
pub(crate) struct Signer {
    author: Option<Signature>,
    committer: Option<Signature>,
    time: Time,
}

impl Signer {
    /// Reads the configuration of the user and the repository; `fallback` counts where they name
    /// nobody.
    pub(crate) fn of(store: &Store, fallback: Option<&Author>) -> Signer {
        let config = store.repo.config_snapshot();
        let time = stops::now();
        let fallback = fallback.and_then(|author| signature(author, time).ok());
        let read = |role: &str| {
            let get = |field: &str| {
                config
                    .string(format!("{role}.{field}").as_str())
                    .or_else(|| config.string(format!("user.{field}").as_str()))
            };
            let (name, email) = (clean(&get("name")?)?, clean(&get("email")?)?);
            (!name.is_empty()).then_some(Signature { name, email, time })
        };
        let author = read("author").or_else(|| fallback.clone());
        let committer = read("committer").or(fallback);
        Signer { author, committer, time }
    }

    /// The author and the committer of a commit that may name its author.
    pub(crate) fn sign(&self, author: Option<&Author>) -> Result<(Signature, Signature), OpError> {
        let given = author.map(|author| signature(author, self.time)).transpose()?;
        let author = given.or_else(|| self.author.clone()).ok_or_else(|| missing("an author"))?;
        let committer = self.committer.clone().unwrap_or_else(|| author.clone());
        Ok((author, committer))
    }

    /// Who stands in the reflog, and when, as it is written there.
    pub(super) fn reflog_bytes(&self) -> Vec<u8> {
        let (name, email, time) = self.reflog_parts();
        format!("{name} <{email}> {time}").into_bytes()
    }

    /// The name, the address and the time of that.
    pub(super) fn reflog_parts(&self) -> (String, String, String) {
        let who = self.committer.clone().or_else(|| self.author.clone());
        let who = who.unwrap_or_else(|| Signature {
            name: "git-batch".into(),
            email: "git-batch@localhost".into(),
            time: self.time,
        });
        let mut time = gix::date::parse::TimeBuf::default();
        let time = who.time.to_str(&mut time);
        (who.name.to_string(), who.email.to_string(), time.to_string())
    }
}

fn signature(author: &Author, time: Time) -> Result<Signature, OpError> {
    let refuse = |what: &str, value: &str| {
        OpError::new(
            OpErrorKind::InvalidIdentity,
            format!("{what} {value:?} is empty or holds one of < > or a line end"),
        )
    };
    let name = clean(author.name.as_bytes())
        .filter(|name| !name.is_empty())
        .ok_or_else(|| refuse("the author's name", &author.name))?;
    let email = clean(author.email.as_bytes())
        .ok_or_else(|| refuse("the author's address", &author.email))?;
    Ok(Signature { name, email, time })
}

/// The text without blanks around it; `None` if a commit cannot hold it.
fn clean(text: &[u8]) -> Option<BString> {
    let bad = |byte: &u8| matches!(byte, b'<' | b'>' | b'\n' | b'\r' | 0);
    if text.iter().any(bad) {
        return None;
    }
    Some(text.trim_ascii().into())
}

fn missing(who: &str) -> OpError {
    OpError::new(
        OpErrorKind::MissingIdentity,
        format!("{who} is missing: give one, or set user.name and user.email in the git config"),
    )
}
