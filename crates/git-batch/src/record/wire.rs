//! Values to bytes and back: numbers of fixed size, lengths before what has one.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use bstr::BString;
use gix::ObjectId;
use gix::refs::FullName;

/// A value that a record can hold.
pub(crate) trait Wire: Sized {
    /// Appends the bytes of the value.
    fn put(&self, out: &mut Vec<u8>);
    /// Takes the value from the front; `None` if the bytes are those of none.
    fn take(input: &mut &[u8]) -> Option<Self>;
}

/// Implements [`Wire`] for a struct, field by field in the order given.
macro_rules! wire_struct {
    ($type:ty { $($field:ident),* $(,)? }) => {
        impl $crate::record::Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }
            fn take(input: &mut &[u8]) -> Option<Self> {
                $(let $field = $crate::record::Wire::take(input)?;)*
                Some(Self { $($field),* })
            }
        }
    };
}

/// Implements [`Wire`] for an enum without fields; each variant has a number for ever.
macro_rules! wire_enum {
    ($type:ident { $($number:literal => $variant:ident),* $(,)? }) => {
        impl $crate::record::Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.push(match self { $($type::$variant => $number),* });
            }
            fn take(input: &mut &[u8]) -> Option<Self> {
                match u8::take(input)? {
                    $($number => Some($type::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

pub(crate) use {wire_enum, wire_struct};

fn split<'a>(input: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (front, rest) = input.split_at_checked(len)?;
    *input = rest;
    Some(front)
}

impl Wire for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }
    fn take(input: &mut &[u8]) -> Option<u8> {
        split(input, 1).map(|bytes| bytes[0])
    }
}

impl Wire for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }
    fn take(input: &mut &[u8]) -> Option<u32> {
        split(input, 4)?.try_into().ok().map(u32::from_be_bytes)
    }
}

impl Wire for usize {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(*self as u64).to_be_bytes());
    }
    fn take(input: &mut &[u8]) -> Option<usize> {
        let number = split(input, 8)?.try_into().ok().map(u64::from_be_bytes)?;
        usize::try_from(number).ok()
    }
}

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(input: &mut &[u8]) -> Option<bool> {
        match u8::take(input)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Wire for BString {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        out.extend_from_slice(self);
    }
    fn take(input: &mut &[u8]) -> Option<BString> {
        let len = usize::take(input)?;
        split(input, len).map(BString::from)
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        out.extend_from_slice(self.as_bytes());
    }
    fn take(input: &mut &[u8]) -> Option<String> {
        String::from_utf8(BString::take(input)?.into()).ok()
    }
}

impl Wire for PathBuf {
    fn put(&self, out: &mut Vec<u8>) {
        BString::from(self.as_os_str().as_bytes()).put(out);
    }
    fn take(input: &mut &[u8]) -> Option<PathBuf> {
        BString::take(input).map(|bytes| OsString::from_vec(bytes.into()).into())
    }
}

impl Wire for FullName {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_bstr().to_owned().put(out);
    }
    fn take(input: &mut &[u8]) -> Option<FullName> {
        FullName::try_from(BString::take(input)?).ok()
    }
}

impl Wire for ObjectId {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::try_from(self.as_bytes().len()).unwrap_or_default());
        out.extend_from_slice(self.as_bytes());
    }
    fn take(input: &mut &[u8]) -> Option<ObjectId> {
        let len = usize::from(u8::take(input)?);
        ObjectId::try_from(split(input, len)?).ok()
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(input: &mut &[u8]) -> Option<Option<T>> {
        if bool::take(input)? { T::take(input).map(Some) } else { Some(None) }
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        for value in self {
            value.put(out);
        }
    }
    fn take(input: &mut &[u8]) -> Option<Vec<T>> {
        // Not reserved at once: the length may be anything.
        (0..usize::take(input)?).map(|_| T::take(input)).collect()
    }
}

impl<K: Wire + Ord, V: Wire> Wire for BTreeMap<K, V> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        for (key, value) in self {
            key.put(out);
            value.put(out);
        }
    }
    fn take(input: &mut &[u8]) -> Option<BTreeMap<K, V>> {
        (0..usize::take(input)?).map(|_| Some((K::take(input)?, V::take(input)?))).collect()
    }
}

impl<T: Wire + Ord> Wire for BTreeSet<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        for value in self {
            value.put(out);
        }
    }
    fn take(input: &mut &[u8]) -> Option<BTreeSet<T>> {
        Vec::take(input).map(BTreeSet::from_iter)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(input: &mut &[u8]) -> Option<(A, B)> {
        Some((A::take(input)?, B::take(input)?))
    }
}
