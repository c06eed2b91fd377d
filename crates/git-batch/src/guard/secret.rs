//! Which files look like secrets that were never meant to be committed.

use bstr::{BStr, ByteSlice};

/// How files are called that hold nothing but secrets.
const NAMES: [&str; 9] = [
    ".netrc",
    "_netrc",
    ".pgpass",
    ".git-credentials",
    ".pypirc",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
];

/// How the names of key stores end.
const ENDINGS: [&str; 6] = [".p12", ".pfx", ".jks", ".keystore", ".ppk", ".kdbx"];

/// What may follow `.env.` in a file that is there to be shared.
const SHARED: [&str; 6] = ["example", "sample", "template", "dist", "defaults", "schema"];

/// Returns true if a file of that name holds secrets by custom: `.env` and `.env.*` (but not
/// `.env.example` and its like), private keys of SSH, key stores, stored passwords.
///
/// # Examples
/// ```
/// use git_batch::guard::secret::is_secret_path;
///
/// assert!(is_secret_path("app/.env".into()));
/// assert!(is_secret_path(".env.production".into()));
/// assert!(!is_secret_path(".env.example".into()));
/// assert!(!is_secret_path("keys/id_rsa.pub".into()));
/// ```
pub fn is_secret_path(path: &BStr) -> bool {
    let start = path.rfind_byte(b'/').map_or(0, |slash| slash + 1);
    let name = path[start..].to_ascii_lowercase();
    let is_env = name
        .strip_prefix(b".env")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b".") && !is_shared(rest));
    is_env
        || NAMES.iter().any(|secret| name == secret.as_bytes())
        || ENDINGS.iter().any(|ending| name.ends_with(ending.as_bytes()))
}

fn is_shared(rest: &[u8]) -> bool {
    rest.split(|byte| *byte == b'.').any(|part| SHARED.iter().any(|word| part == word.as_bytes()))
}

/// How much of a file is searched for a key, in bytes.
const SEARCHED: usize = 64 << 10;

/// Returns true if a line of the first 64 KiB begins a private key (`-----BEGIN ... PRIVATE
/// KEY-----`), whatever the file is called.
pub fn holds_private_key(content: &[u8]) -> bool {
    let start = &content[..content.len().min(SEARCHED)];
    start.find_iter("-----BEGIN ").any(|at| {
        let is_line_start = at == 0 || start[at - 1] == b'\n';
        let line = start[at..].lines().next().unwrap_or_default();
        is_line_start
            && (line.ends_with(b"PRIVATE KEY-----") || line.ends_with(b"PRIVATE KEY BLOCK-----"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_by_their_first_line() {
        for key in [
            "-----BEGIN PRIVATE KEY-----\nMIIE",
            "Comment\n-----BEGIN RSA PRIVATE KEY-----\r\nMIIE",
            "-----BEGIN OPENSSH PRIVATE KEY-----\n",
            "-----BEGIN PGP PRIVATE KEY BLOCK-----\n",
        ] {
            assert!(holds_private_key(key.as_bytes()), "{key}");
        }
        for text in [
            "",
            "-----BEGIN CERTIFICATE-----\n",
            "-----BEGIN PUBLIC KEY-----\n",
            "const START: &str = \"-----BEGIN PRIVATE KEY-----\";\n",
            "-----BEGIN PRIVATE KEY----- is how it starts\n",
        ] {
            assert!(!holds_private_key(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn names_count_in_any_case_and_folder() {
        for secret in [".env", "a/.ENV", ".env.local", "id_ed25519", "x/store.JKS", ".netrc"] {
            assert!(is_secret_path(secret.into()), "{secret}");
        }
        for plain in ["env", ".envrc", ".env.example", ".env.production.sample", "id_rsa.pub", ""] {
            assert!(!is_secret_path(plain.into()), "{plain}");
        }
    }
}
