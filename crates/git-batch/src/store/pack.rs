//! Writes what is in memory as one pack with its index, and makes both durable.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use gix::ObjectId;
use gix::objs::Kind;
use gix::zlib::stream::deflate::{Compress, FlushCompress};
use gix::zlib::{Compression, Status};

use super::Store;
use super::unwritten::Unwritten;
use crate::{OpError, disk, stops};

/// What stands in the `.keep` file of a pack that no ref points into yet.
const MARK: &[u8] = b"git-batch\n";

/// How files begin that are not in place yet, the pack and its index. Not with `tmp_` as git's own,
/// which `git gc --prune=now` removes while they are being written.
const TEMPORARY: [&str; 2] = ["batchyard_pack_", "batchyard_idx_"];

/// Keeps `git gc` away from a new pack until refs point into it.
#[derive(Debug, Default)]
pub(crate) struct Keep {
    path: Option<PathBuf>,
    /// The folder in which the names of the pack are not durable yet.
    unsynced: Option<PathBuf>,
}

impl Keep {
    /// Where there is no new pack.
    pub(super) fn none() -> Keep {
        Keep::default()
    }

    /// Of a pack that git has made durable.
    pub(super) fn of(path: PathBuf) -> Keep {
        Keep { path: Some(path), unsynced: None }
    }

    /// Makes the names of the new pack durable. Before that nothing may point into it, here or at a remote.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.unsynced.as_deref().map_or(Ok(()), disk::sync_folder)
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            // A leftover costs space, not correctness.
            let _ = disk::remove(&path);
        }
    }
}

impl Store {
    /// Removes what an interrupted batch left: its mark on a pack, and files not yet in place.
    /// Only for the one writer, so that nothing of it is in use.
    pub(crate) fn sweep_packs(&self) {
        let entries = fs::read_dir(self.common_dir.join("objects/pack"));
        for path in entries.into_iter().flatten().flatten().map(|entry| entry.path()) {
            let name = path.file_name().map(OsStr::as_encoded_bytes).unwrap_or_default();
            let is_ours = TEMPORARY.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
                || name.ends_with(b".keep") && fs::read(&path).is_ok_and(|text| text == MARK);
            if is_ours {
                // It costs space, not correctness.
                let _ = fs::remove_file(&path);
            }
        }
    }

    /// Makes the names of all packs durable: those of a process, too, that was killed before it came to that.
    pub(crate) fn sync_packs(&mut self) -> io::Result<()> {
        match disk::sync_folder(&self.common_dir.join("objects/pack")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => {
                self.fsyncs += 1;
                other
            }
        }
    }

    /// Writes a pack and its index, durable but for their names.
    pub(super) fn write_pack(&mut self, objects: &[Unwritten]) -> Result<Keep, OpError> {
        let folder = self.common_dir.join("objects/pack");
        let pack = Pack::build(objects, self.repo.object_hash())
            .map_err(|error| OpError::repository("cannot build a pack", &error))?;
        let keep = pack.store(&folder).map_err(|error| {
            OpError::repository(&format!("cannot write a pack to {}", folder.display()), &error)
        })?;
        self.fsyncs += 3;
        self.bytes += pack.data.len() as u64;
        Ok(keep)
    }
}

/// A pack of whole objects, version 2, and its index, version 2.
pub(super) struct Pack {
    pub(super) data: Vec<u8>,
    index: Vec<u8>,
    checksum: ObjectId,
}

impl Pack {
    /// `objects` are sorted by id.
    pub(super) fn build(objects: &[Unwritten], hash: gix::hash::Kind) -> io::Result<Pack> {
        let header = [*b"PACK", 2_u32.to_be_bytes(), count(objects.len())?.to_be_bytes()].concat();
        let Part { mut data, entries } = Part::all(header, objects)?;
        let checksum = push_checksum(&mut data, hash)?;
        let index = build_index(&entries, checksum, hash)?;
        Ok(Pack { data, index, checksum })
    }

    /// Puts both files into `folder`, durable but for their names; the index last, because it makes the pack
    /// visible.
    fn store(&self, folder: &Path) -> io::Result<Keep> {
        let name = format!("pack-{}", self.new_name()?);
        let keep = folder.join(format!("{name}.keep"));
        disk::write(&keep, MARK)?;
        let keep = Keep { path: Some(keep), unsynced: Some(folder.to_owned()) };
        stops::reach("keep written");
        let temporary = TEMPORARY.map(|prefix| folder.join(format!("{prefix}{}", self.checksum)));
        disk::write_both_synced([(&temporary[0], &self.data), (&temporary[1], &self.index)])?;
        for (temporary, extension) in temporary.iter().zip(["pack", "idx"]) {
            let mut permissions = fs::metadata(temporary)?.permissions();
            permissions.set_readonly(true);
            fs::set_permissions(temporary, permissions)?;
            stops::reach("pack part written");
            disk::rename(temporary, &folder.join(format!("{name}.{extension}")))?;
        }
        stops::reach("pack in place");
        Ok(keep)
    }

    /// A name that no pack had before. Not the checksum, as git has it: a pack of the same content
    /// may be there, and `git gc` may be about to remove it by its name.
    fn new_name(&self) -> io::Result<ObjectId> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut hasher = gix::hash::hasher(self.checksum.kind());
        hasher.update(self.checksum.as_bytes());
        hasher.update(&now.as_nanos().to_be_bytes());
        hasher.update(&std::process::id().to_be_bytes());
        hasher.try_finalize().map_err(|error| io::Error::other(error.to_string()))
    }
}

/// Some objects of a pack, one behind the other.
struct Part {
    data: Vec<u8>,
    /// The id of each object, the checksum of its bytes, and where they begin.
    entries: Vec<(ObjectId, u32, u64)>,
}

impl Part {
    /// What is smaller is compressed before a thread has begun.
    const SMALL: usize = 64 << 10;

    /// All of `objects`, behind `start`; in two halves at once if they are many bytes.
    fn all(start: Vec<u8>, objects: &[Unwritten]) -> io::Result<Part> {
        let total: usize = objects.iter().map(|(.., content)| content.len()).sum();
        if total < Part::SMALL {
            return Part::of(start, objects);
        }
        let mut before = 0;
        let is_behind = |(.., content): &Unwritten| {
            before += content.len();
            before * 2 > total
        };
        let middle = objects.iter().position(is_behind).unwrap_or(objects.len());
        let (first, second) = objects.split_at(middle);
        let (second, first) =
            disk::together(|| Part::of(Vec::new(), second), || Part::of(start, first));
        let (mut part, second) = (first?, second?);
        let start = part.data.len() as u64;
        part.data.extend_from_slice(&second.data);
        part.entries.extend(second.entries.iter().map(|&(id, crc, at)| (id, crc, start + at)));
        Ok(part)
    }

    fn of(mut data: Vec<u8>, objects: &[Unwritten]) -> io::Result<Part> {
        let mut entries = Vec::with_capacity(objects.len());
        // One for all: to make one costs more than to compress a small object.
        let mut compress = Compress::new(Compression::BEST_SPEED);
        let mut buffer = Vec::new();
        for (id, kind, content) in objects {
            let offset = data.len();
            push_header(&mut data, *kind, content.len());
            push_compressed(&mut data, &mut compress, &mut buffer, content)?;
            entries.push((*id, crc32(&data[offset..]), offset as u64));
        }
        Ok(Part { data, entries })
    }
}

/// The entry header: the kind and the size, 4 bits and then 7 bits a byte.
fn push_header(data: &mut Vec<u8>, kind: Kind, size: usize) {
    let kind = match kind {
        Kind::Commit => 1,
        Kind::Tree => 2,
        Kind::Blob => 3,
        Kind::Tag => 4,
    };
    let low = |size: usize, mask: usize| u8::try_from(size & mask).unwrap_or(u8::MAX);
    let mut byte = (kind << 4) | low(size, 0x0f);
    let mut rest = size >> 4;
    while rest > 0 {
        data.push(byte | 0x80);
        byte = low(rest, 0x7f);
        rest >>= 7;
    }
    data.push(byte);
}

/// The content as one stream of zlib, made in `buffer`.
fn push_compressed(
    data: &mut Vec<u8>,
    compress: &mut Compress,
    buffer: &mut Vec<u8>,
    content: &[u8],
) -> io::Result<()> {
    let fault = |what: String| io::Error::other(format!("cannot compress an object: {what}"));
    compress.reset();
    // What it takes at most: content that cannot be made smaller, with what stands around it.
    let room = content.len() + content.len() / 1000 + 64;
    loop {
        let done = usize::try_from(compress.total_out()).unwrap_or(usize::MAX);
        let read = usize::try_from(compress.total_in()).unwrap_or(usize::MAX);
        if buffer.len() < done + room {
            buffer.resize(done + room, 0);
        }
        let status = compress
            .compress(&content[read..], &mut buffer[done..], FlushCompress::Finish)
            .map_err(|error| fault(error.to_string()))?;
        let written = usize::try_from(compress.total_out()).unwrap_or(usize::MAX);
        match status {
            Status::StreamEnd => {
                data.extend_from_slice(&buffer[..written]);
                return Ok(());
            }
            Status::Ok | Status::BufError if written > done => {}
            other => return Err(fault(format!("{other:?}"))),
        }
    }
}

fn build_index(
    entries: &[(ObjectId, u32, u64)],
    pack: ObjectId,
    hash: gix::hash::Kind,
) -> io::Result<Vec<u8>> {
    let mut index = vec![0xff, b't', b'O', b'c'];
    index.extend_from_slice(&2_u32.to_be_bytes());
    for first in 0..=u8::MAX {
        let below = entries.partition_point(|(id, ..)| id.as_bytes()[0] <= first);
        index.extend_from_slice(&count(below)?.to_be_bytes());
    }
    for (id, ..) in entries {
        index.extend_from_slice(id.as_bytes());
    }
    for (_, crc, _) in entries {
        index.extend_from_slice(&crc.to_be_bytes());
    }
    // Offsets of 2 GiB and more stand in a table of their own.
    let mut large = Vec::new();
    for &(_, _, offset) in entries {
        let word = match u32::try_from(offset) {
            Ok(small) if small < 1 << 31 => small,
            _ => {
                large.extend_from_slice(&offset.to_be_bytes());
                (1 << 31) | (count(large.len() / 8)? - 1)
            }
        };
        index.extend_from_slice(&word.to_be_bytes());
    }
    index.extend_from_slice(&large);
    index.extend_from_slice(pack.as_bytes());
    push_checksum(&mut index, hash)?;
    Ok(index)
}

fn push_checksum(data: &mut Vec<u8>, hash: gix::hash::Kind) -> io::Result<ObjectId> {
    let mut hasher = gix::hash::hasher(hash);
    hasher.update(data);
    let checksum = hasher.try_finalize().map_err(|error| io::Error::other(error.to_string()))?;
    data.extend_from_slice(checksum.as_bytes());
    Ok(checksum)
}

fn count(len: usize) -> io::Result<u32> {
    u32::try_from(len).map_err(|_| io::Error::other("more than 4 billion objects in one pack"))
}

/// The CRC-32 of zlib and PNG, one table look-up a byte.
pub(crate) fn crc32(data: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut first = 0_u32;
        while first < 256 {
            let mut value = first;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { (value >> 1) ^ 0xedb8_8320 } else { value >> 1 };
                bit += 1;
            }
            table[first as usize] = value;
            first += 1;
        }
        table
    };
    !data.iter().fold(!0_u32, |crc, byte| {
        let [low, ..] = crc.to_le_bytes();
        TABLE[usize::from(low ^ byte)] ^ (crc >> 8)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;
    use std::process::{Command, Stdio};

    use gix::objs::WriteTo;
    use gix::objs::tree::{Entry, EntryKind};
    use proptest::prelude::*;

    use super::*;

    /// Runs git in a folder and gives it something to read.
    fn git(dir: &Path, args: &[&str], stdin: &[u8]) -> (bool, Vec<u8>) {
        let mut child = Command::new("git")
            .current_dir(dir)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("git runs");
        let mut pipe = child.stdin.take().expect("a pipe");
        let bytes = stdin.to_vec();
        let writer = std::thread::spawn(move || pipe.write_all(&bytes));
        let output = child.wait_with_output().expect("it ends");
        let _ = writer.join().expect("no panic");
        (output.status.success(), output.stdout)
    }

    fn object(kind: Kind, data: Vec<u8>, hash: gix::hash::Kind) -> Unwritten {
        let id = gix::objs::compute_hash(hash, kind, &data).expect("no attack");
        (id, kind, data)
    }

    /// Contents as files of one folder, and a commit of it.
    fn objects(contents: Vec<Vec<u8>>, hash: gix::hash::Kind) -> Vec<Unwritten> {
        let mut objects: Vec<Unwritten> =
            contents.into_iter().map(|content| object(Kind::Blob, content, hash)).collect();
        let mode = EntryKind::Blob.into();
        let named = |(n, (oid, ..)): (usize, &Unwritten)| {
            let filename = format!("file-{n:04}").into();
            Entry { mode, filename, oid: *oid }
        };
        let entries = objects.iter().enumerate().map(named).collect();
        let mut tree = Vec::new();
        gix::objs::Tree { entries }.write_to(&mut tree).expect("a tree");
        let tree = object(Kind::Tree, tree, hash);
        let commit =
            format!("tree {}\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nm\n", tree.0);
        objects.extend([object(Kind::Commit, commit.into_bytes(), hash), tree]);
        objects.sort();
        objects.dedup_by_key(|(id, ..)| *id);
        objects
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Git takes each pack, makes the same index for it, and reads the same objects.
        #[test]
        fn git_reads_every_pack_as_it_was_written(
            mut contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
            large in prop::collection::vec(any::<u8>(), 0..3),
            is_sha256: bool,
        ) {
            // Some that need more than one byte, and more than two, for their length.
            contents.extend(large.iter().map(|byte| vec![*byte; 2000 * usize::from(*byte)]));
            let hash = if is_sha256 { gix::hash::Kind::Sha256 } else { gix::hash::Kind::Sha1 };
            let objects = objects(contents, hash);
            let pack = Pack::build(&objects, hash).expect("a pack");
            let dir = tempfile::tempdir().expect("a folder");
            let format = format!("--object-format={hash}");
            prop_assert!(git(dir.path(), &["init", "-q", "--bare", &format, "."], b"").0);
            let (is_sound, _) = git(dir.path(), &["index-pack", "--strict", "--stdin"], &pack.data);
            prop_assert!(is_sound, "git index-pack --strict refuses it");
            let index = dir.path().join(format!("objects/pack/pack-{}.idx", pack.checksum));
            prop_assert_eq!(fs::read(index).expect("an index"), &pack.index[..]);
            let ids: Vec<String> = objects.iter().map(|(id, ..)| format!("{id}\n")).collect();
            let (_, read) = git(dir.path(), &["cat-file", "--batch"], ids.concat().as_bytes());
            let mut expected = Vec::new();
            for (id, kind, data) in &objects {
                expected.extend_from_slice(format!("{id} {kind} {}\n", data.len()).as_bytes());
                expected.extend_from_slice(data);
                expected.push(b'\n');
            }
            prop_assert_eq!(read, expected);
        }

        /// Also offsets that no test can write a pack for.
        #[test]
        fn git_reads_offsets_of_any_size(offsets in prop::collection::btree_set(any::<u64>(), 1..30)) {
            let hash = gix::hash::Kind::Sha1;
            let mut entries: Vec<(ObjectId, u32, u64)> = offsets
                .iter()
                .map(|offset| {
                    // Git takes them as signed numbers.
                    let offset = offset >> 1 >> (offset % 60);
                    let data = offset.to_string().into_bytes();
                    let crc = crc32(&data);
                    (object(Kind::Blob, data, hash).0, crc, offset)
                })
                .collect();
            entries.sort();
            entries.dedup();
            let index = build_index(&entries, ObjectId::null(hash), hash).expect("an index");
            let dir = tempfile::tempdir().expect("a folder");
            let (is_read, shown) = git(dir.path(), &["show-index", "--object-format=sha1"], &index);
            prop_assert!(is_read);
            let expected: Vec<String> = entries
                .iter()
                .map(|(id, crc, offset)| format!("{offset} {id} ({crc:08x})\n"))
                .collect();
            prop_assert_eq!(String::from_utf8_lossy(&shown), expected.concat());
        }
    }

    #[test]
    fn crc32_of_the_check_string() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn entry_headers_carry_seven_bits_a_byte() {
        let header = |size| {
            let mut data = Vec::new();
            push_header(&mut data, gix::objs::Kind::Blob, size);
            data
        };
        assert_eq!(header(0), [0x30]);
        assert_eq!(header(15), [0x3f]);
        assert_eq!(header(16), [0xb0, 0x01]);
        assert_eq!(header(0x1234), [0xb4, 0xa3, 0x02]);
    }
}
