//! What is written down of one create.

use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::answer::RequestError;
use crate::digest::to_hex;
use crate::lane::Lane;
use crate::provider::Provider;
use crate::table::{Group, Table};

/// What is known of a create before it is sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Intent {
    pub(crate) nonce: String,
    pub(crate) provider: String,
    pub(crate) endpoint: String,
    pub(crate) kind: String,
    pub(crate) model: String,
    /// What the provider finds it by.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) anchor: String,
    /// Which account it goes to, as the provider's digest with the nonce for salt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) account: Option<String>,
    /// In which folder it was written down: a copy of the folder is another one.
    #[serde(rename = "folder", default, skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<String>,
    /// The same in files of before. There it may have been made in another way: then it is like that of
    /// no folder, and does not tell that this is another one.
    #[serde(rename = "place", default, skip_serializing)]
    pub(crate) place_of_before: Option<String>,
    #[serde(default)]
    pub(crate) lane: Lane,
    /// The numbers of the records whose requests are sent again here. Where there are several, none
    /// of them may have been paid for.
    #[serde(default, deserialize_with = "one_or_more", skip_serializing_if = "Vec::is_empty")]
    pub(crate) replaces: Vec<u64>,
    /// How often these requests were sent before and came back without an answer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) resent: u32,
    /// Whether the provider has those that are replaced still, and may have run them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) may_be_paid: bool,
    /// Whether it was written before it was prepared: as long as there is no status, nothing but
    /// that was done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) preparing: bool,
}

impl Intent {
    /// Returns the intent to send requests of a group once, for the first time.
    pub(crate) fn new(provider: &dyn Provider, group: &Group, nonce: String, lane: Lane) -> Intent {
        Intent {
            account: provider.account(&nonce),
            nonce,
            provider: provider.name().to_owned(),
            endpoint: provider.endpoint().to_owned(),
            kind: group.kind.to_string(),
            model: group.model.clone(),
            anchor: String::new(),
            place: None,
            place_of_before: None,
            lane,
            replaces: Vec::new(),
            resent: 0,
            may_be_paid: false,
            preparing: false,
        }
    }

    /// Returns which key it was written for.
    pub(crate) fn key(&self) -> Account {
        Account { nonce: self.nonce.clone(), digest: self.account.clone() }
    }
}

/// Which key a create was sent with.
#[derive(Debug)]
pub(crate) struct Account {
    nonce: String,
    digest: Option<String>,
}

impl Account {
    /// Tells whether it is the key that goes with the provider's calls now; nobody knows where the
    /// intent was written before that was told apart. Asks the provider, so without a lock.
    pub(crate) fn is_same(&self, provider: &dyn Provider) -> Option<bool> {
        match (&self.digest, provider.account(&self.nonce)) {
            (None, Some(_)) => None,
            (then, now) => Some(*then == now),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Reads a list of numbers, or the one number that stood there in its place at first.
fn one_or_more<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Numbers {
        One(u64),
        More(Vec<u64>),
    }
    Numbers::deserialize(deserializer).map(|numbers| match numbers {
        Numbers::One(number) => vec![number],
        Numbers::More(numbers) => numbers,
    })
}

/// The requests of a create, as they are written and read.
#[derive(Deserialize)]
pub(crate) struct IntentFile {
    #[serde(flatten)]
    pub(crate) intent: Intent,
    /// Id and digest of each; the position is its number on the wire.
    pub(crate) requests: Vec<(String, String)>,
}

#[derive(Serialize)]
pub(crate) struct IntentToWrite<'a> {
    #[serde(flatten)]
    pub(crate) intent: &'a Intent,
    pub(crate) requests: Members<'a>,
}

pub(crate) struct Members<'a>(pub(crate) &'a [u32], pub(crate) &'a Table);

impl Serialize for Members<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Members(members, table) = *self;
        let mut list = serializer.serialize_seq(Some(members.len()))?;
        for &member in members {
            let item = &table.items()[member as usize];
            list.serialize_element(&(&*item.id, to_hex(item.digest)))?;
        }
        list.end()
    }
}

/// What became of a create.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub(crate) enum Fate {
    /// Nothing was created; what comes before a create may be done or not.
    Preparing,
    /// It is on its way.
    Sending,
    /// Nothing was created, and it can be sent again.
    Unsent { reason: String },
    /// The provider took it.
    Submitted { batch_id: String },
    /// Nothing was created, or nothing of it was run.
    Refused { code: Option<u16>, kind: String, message: String, retryable: bool },
    /// It may exist or not.
    Ambiguous { reason: String },
    /// Given up: its requests went elsewhere. It may have been paid for only where it says so.
    Void { reason: String, may_be_paid: bool },
}

#[derive(Serialize, Deserialize)]
pub(crate) struct StatusFile {
    #[serde(flatten)]
    pub(crate) fate: Fate,
    /// How often it was sent.
    #[serde(default = "once")]
    pub(crate) attempts: u64,
    /// What it is found by, where the intent was written before that was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) anchor: Option<String>,
}

fn once() -> u64 {
    1
}

#[derive(Serialize, Deserialize)]
pub(crate) struct AnswerFile<R> {
    pub(crate) response: R,
}

impl Fate {
    /// Returns the outcome that a refusal is for each of its requests.
    pub(crate) fn refusal(&self) -> Option<RequestError> {
        match self {
            Fate::Refused { code, kind, message, retryable } => Some(RequestError::Refused {
                status: *code,
                kind: kind.clone(),
                message: message.clone(),
                retryable: *retryable,
            }),
            _ => None,
        }
    }
}

/// One create with what is known of it. No fate: the process ended before it was known.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) number: u64,
    pub(crate) intent: Intent,
    /// How many requests it carries.
    pub(crate) size: usize,
    pub(crate) fate: Option<Fate>,
    /// How often it was sent.
    pub(crate) attempts: u64,
}

impl Record {
    /// Tells whether nobody knows what became of the create.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.fate, None | Some(Fate::Sending | Fate::Ambiguous { .. }))
    }

    /// Tells whether its requests are yet to be sent, or to be sent once more.
    pub(crate) fn is_unsent(&self) -> bool {
        let fate = self.fate.as_ref();
        fate.is_some_and(|f| matches!(f, Fate::Preparing | Fate::Unsent { .. } | Fate::Void { .. }))
    }

    /// Tells whether it was given up although it may have been paid for.
    pub(crate) fn is_doubted(&self) -> bool {
        matches!(self.fate, Some(Fate::Void { may_be_paid: true, .. }))
    }

    pub(crate) fn ambiguity(&self) -> &str {
        match &self.fate {
            Some(Fate::Ambiguous { reason }) => reason,
            _ => "the process ended while the create was on its way",
        }
    }
}
