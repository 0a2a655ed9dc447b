//! `.gitmodules`: where a repository says its submodules are. It is anyone's, and is read as settings of Git's, without any that
//! Git would act on: the folder of each and its URL, and nothing else.

use std::collections::BTreeMap;

use gix::bstr::ByteSlice as _;

/// The file's name, in the root of a repository.
pub(super) const FILE: &str = ".gitmodules";
/// Bytes of it.
pub(super) const MOST_BYTES: u64 = 256 << 10;

/// The URLs of submodules by their folders, as they are written. Entries without one of the two are none.
pub(super) fn urls(bytes: &[u8]) -> Result<BTreeMap<String, String>, String> {
    let settings = gix::config::File::from_bytes_no_includes(
        bytes,
        gix::config::file::Metadata::api(),
        gix::config::file::init::Options { lossy: true, ..Default::default() },
    );
    let settings = settings.map_err(|_| format!("its {FILE} cannot be parsed"))?;
    // Sections of one name are one entry, of which the last value counts.
    let mut entries: BTreeMap<Vec<u8>, (Option<String>, Option<String>)> = BTreeMap::new();
    for section in settings.sections_by_name("submodule").into_iter().flatten() {
        let Some(name) = section.header().subsection_name() else { continue };
        let entry = entries.entry(name.to_vec()).or_default();
        let text = |key: &str| section.value(key).and_then(|value| value.to_str().ok().map(str::to_owned));
        entry.0 = text("path").or(entry.0.take());
        entry.1 = text("url").or(entry.1.take());
    }
    let whole = entries.into_values().filter_map(|(path, url)| {
        let path = path?;
        Some((path.trim_end_matches('/').to_owned(), url?))
    });
    Ok(whole.collect())
}

#[cfg(test)]
mod tests {
    use super::urls;

    #[test]
    fn folders_and_urls_are_read_and_nothing_else() {
        let text = b"# ours\n[core]\n\tpath = no\n\turl = no\n[submodule \"a\"]\n\tpath = libs/a/\n\turl = ../a.git\n\
            \tupdate = !rm -rf /\n[submodule \"b\"]\n\tpath = \"b c\"\n\turl = https://one.example/b\n\
            [submodule \"b\"]\n\turl = https://other.example/b\n[submodule \"c\"]\n\tpath = c\n[submodule]\n\tpath = d\n\turl = e\n";
        let found: Vec<_> = urls(text).unwrap().into_iter().collect();
        let wanted = [("b c", "https://other.example/b"), ("libs/a", "../a.git")];
        assert_eq!(found, wanted.map(|(path, url)| (path.to_owned(), url.to_owned())));
        assert!(urls(b"[submodule \"a").is_err());
        assert!(urls(b"").unwrap().is_empty());
    }
}
