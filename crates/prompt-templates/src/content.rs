use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The text of a message.
///
/// A message without tags is the same in every render; its text is shared with the prompt and not
/// copied.
#[derive(Clone)]
pub struct Content(Repr);

#[derive(Clone)]
enum Repr {
    Owned(String),
    Shared(Arc<str>),
}

impl Content {
    pub(crate) fn shared(text: &Arc<str>) -> Self {
        Self(Repr::Shared(Arc::clone(text)))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Repr::Owned(text) => text,
            Repr::Shared(text) => text,
        }
    }

    /// Returns the text as a string of its own; copies a shared one.
    pub fn into_string(self) -> String {
        match self.0 {
            Repr::Owned(text) => text,
            Repr::Shared(text) => String::from(&*text),
        }
    }

    /// Returns whether the text is shared with the prompt.
    pub fn is_shared(&self) -> bool {
        matches!(self.0, Repr::Shared(_))
    }
}

impl Deref for Content {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Content {
    fn as_ref(&self) -> &str {
        self
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self(Repr::Owned(text))
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<Content> for String {
    fn from(content: Content) -> Self {
        content.into_string()
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Content {}

impl PartialEq<str> for Content {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for Content {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl PartialEq<String> for Content {
    fn eq(&self, other: &String) -> bool {
        **self == **other
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl serde::Serialize for Content {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}
