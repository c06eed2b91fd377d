//! Where the repositories of submodules are.

use std::path::PathBuf;

use bstr::{BStr, ByteSlice};
use gix::ObjectId;

use super::Store;
use crate::OpError;

impl Store {
    /// The git directory of the submodule that `tree` has at `path`; `None` if it is not cloned here, or
    /// is none that `.gitmodules` names.
    pub(crate) fn submodule_dir(
        &self,
        tree: ObjectId,
        path: &BStr,
    ) -> Result<Option<PathBuf>, OpError> {
        let Some((_, id)) = self.entry_at(tree, b".gitmodules".as_bstr())? else { return Ok(None) };
        self.fetch_missing([id])?;
        let Ok(blob) = self.repo.find_blob(id) else { return Ok(None) };
        let Ok(text) = std::str::from_utf8(&blob.data) else { return Ok(None) };
        // One that cannot be read names nothing.
        let Ok(config) = gix::config::File::try_from(text) else { return Ok(None) };
        let modules = self.common_dir.join("modules");
        for section in config.sections_by_name("submodule").into_iter().flatten() {
            let Some(name) = section.header().subsection_name() else { continue };
            if section.value("path").is_none_or(|value| value.as_bytes() != path.as_bytes()) {
                continue;
            }
            let is_inside =
                !name.split_str("/").any(|part| part == b"..") && !name.starts_with(b"/");
            let Ok(name) = gix::path::from_bstr(name) else { continue };
            let folder = modules.join(name);
            return Ok((is_inside && folder.join("HEAD").is_file()).then_some(folder));
        }
        Ok(None)
    }
}
