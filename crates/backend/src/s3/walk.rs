//! Listing folder by folder, for stores that sort folders by their bare names.
//!
//! Such a store lists every key in `a/` before `a-b`, and a listing that starts after `a-b` omits
//! `a/`. So each folder is listed on its own, and a folder is held back until no name can follow that
//! sorts before its keys. The keys are returned in byte order.

use std::collections::BTreeMap;

use s3o_model::physical_key::RESERVED_PREFIX;

use super::S3;
use super::list::{KeyDecoder, is_truncated, read_entry};
use super::xml::XmlElement;
use crate::{Error, Listed, Page};

/// Number of requests for one page; bounds the loop if a store repeats itself.
const REQUESTS_MAX: usize = 10_000;

impl S3 {
    pub(super) async fn walk_objects(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        let split = prefix.rfind('/').map_or(0, |slash| slash + 1);
        let mut folders = vec![FolderListing::open(&prefix[..split], &prefix[split..], after)];
        let includes_own = prefix.starts_with(RESERVED_PREFIX);
        let mut items: Vec<Listed> = Vec::new();
        let mut requests = 0;
        while items.len() <= limit {
            let Some(folder) = folders.last_mut() else { break };
            match folder.next() {
                FolderStep::Key(listed) => {
                    let ascends = items.last().map(|item| item.key.as_str()).or(after) < Some(listed.key.as_str());
                    if !ascends {
                        return Err(Error::Unknown(format!("the listing is out of order at the key {:?}", listed.key)));
                    }
                    items.push(listed);
                }
                FolderStep::Folder(path) if path == RESERVED_PREFIX && !includes_own => {}
                FolderStep::Folder(path) => folders.push(FolderListing::open(&path, "", after)),
                FolderStep::Read => {
                    requests += 1;
                    if requests > REQUESTS_MAX {
                        return Err(Error::Unknown(
                            "one page of the listing needs more than 10000 requests".to_owned(),
                        ));
                    }
                    self.read_more(folder, after).await?;
                }
                FolderStep::End => {
                    folders.pop();
                }
            }
        }
        let truncated = items.len() > limit;
        items.truncate(limit);
        Ok(Page { items, truncated })
    }

    async fn read_more(&self, folder: &mut FolderListing, after: Option<&str>) -> Result<(), Error> {
        let prefix = format!("{}{}", folder.path, folder.name_prefix);
        let mut query =
            vec![("list-type", "2"), ("encoding-type", "url"), ("delimiter", "/"), ("prefix", prefix.as_str())];
        match &folder.unread {
            UnreadPart::From(None) | UnreadPart::Nothing => {}
            UnreadPart::From(Some(start)) => query.push(("start-after", start)),
            UnreadPart::Token(token) => query.push(("continuation-token", token)),
        }
        folder.take(&self.transport.listing(&query).await?, after)
    }
}

/// The next step of listing a folder.
enum FolderStep {
    Key(Listed),
    Folder(String),
    Read,
    End,
}

/// The part of a folder that is not read yet.
enum UnreadPart {
    /// All of it, or what follows a key.
    From(Option<String>),
    Token(String),
    Nothing,
}

struct FolderListing {
    /// Path with a final slash; empty for the root.
    path: String,
    name_prefix: String,
    /// Unreturned entries by name, folders with a final slash: `Some` is a key, `None` a folder.
    pending: BTreeMap<String, Option<Listed>>,
    /// The greatest bare name read so far.
    read_to: String,
    unread: UnreadPart,
}

impl FolderListing {
    /// Starts a folder at the first name that can lead to a key after `after`.
    fn open(path: &str, name_prefix: &str, after: Option<&str>) -> Self {
        let mut folder = Self {
            path: path.to_owned(),
            name_prefix: name_prefix.to_owned(),
            pending: BTreeMap::new(),
            read_to: String::new(),
            unread: UnreadPart::From(None),
        };
        let Some(after) = after else { return folder };
        match after.strip_prefix(path) {
            Some("") => {}
            Some(tail) => {
                let name = tail.split('/').next().unwrap_or(tail);
                for candidate in folders_after(name).filter(|candidate| candidate.starts_with(name_prefix)) {
                    if leads_beyond(&candidate, tail) {
                        folder.pending.insert(candidate, None);
                    }
                }
                folder.unread = UnreadPart::From(Some(format!("{path}{name}")));
            }
            None if path > after => {}
            None => folder.unread = UnreadPart::Nothing,
        }
        folder
    }

    fn next(&mut self) -> FolderStep {
        let whole = matches!(self.unread, UnreadPart::Nothing);
        match self.pending.first_entry() {
            // Unread names have a greater bare name and sort after this one.
            Some(first) if whole || *first.key() <= self.read_to => {
                let (name, entry) = first.remove_entry();
                entry.map_or_else(|| FolderStep::Folder(format!("{}{name}", self.path)), FolderStep::Key)
            }
            None if whole => FolderStep::End,
            Some(_) | None => FolderStep::Read,
        }
    }

    fn take(&mut self, root: &XmlElement, after: Option<&str>) -> Result<(), Error> {
        let decoder = KeyDecoder::of(root);
        let tail = after.and_then(|after| after.strip_prefix(&self.path));
        let mut read_to = self.read_to.clone();
        for (name, entry) in self.entries(root, decoder)? {
            let bare = name.trim_end_matches('/');
            if bare < self.read_to.as_str() && name < self.read_to {
                return Err(Error::Unknown(format!(
                    "the listing of the folder {:?} goes back to the name {name:?}",
                    self.path
                )));
            }
            if bare > read_to.as_str() {
                bare.clone_into(&mut read_to);
            }
            if tail.is_none_or(|tail| leads_beyond(&name, tail)) {
                self.pending.insert(name, entry);
            }
        }
        self.read_to = read_to;
        self.unread = match (is_truncated(root)?, root.child_text("NextContinuationToken")) {
            (false, _) => UnreadPart::Nothing,
            (true, Some(token)) => UnreadPart::Token(token.to_owned()),
            (true, None) => {
                return Err(Error::Unknown("the truncated listing has no NextContinuationToken".to_owned()));
            }
        };
        Ok(())
    }

    fn entries(&self, root: &XmlElement, decoder: KeyDecoder) -> Result<Vec<(String, Option<Listed>)>, Error> {
        let mut entries = Vec::new();
        for entry in root.all("Contents") {
            let listed = read_entry(entry, decoder)?;
            let name = self.name_of(&listed.key)?;
            // Stores with folders list an empty one as a key that ends in a slash. No key of s3o
            // does.
            if !name.is_empty() {
                entries.push((name, Some(listed)));
            }
        }
        for entry in root.all("CommonPrefixes") {
            let path = decoder.decode(entry.child_text("Prefix").unwrap_or_default())?;
            entries.push((self.name_of(&path)?, None));
        }
        let is_misplaced = |(name, entry): &(String, Option<Listed>)| match entry {
            Some(_) => name.contains('/'),
            None => name.find('/') != Some(name.len().saturating_sub(1)),
        };
        match entries.iter().find(|entry| is_misplaced(entry)) {
            Some((name, _)) => Err(Error::Unknown(format!("the name {name:?} is not in the folder {:?}", self.path))),
            None => Ok(entries),
        }
    }

    fn name_of(&self, path: &str) -> Result<String, Error> {
        let name = path.strip_prefix(&self.path).filter(|name| name.starts_with(&self.name_prefix));
        name.map(str::to_owned).ok_or_else(|| {
            Error::Unknown(format!("the listing has the path {path:?}, which does not have the requested prefix"))
        })
    }
}

/// True if a name in a folder is a key after `tail`, or a folder that may have one.
fn leads_beyond(name: &str, tail: &str) -> bool {
    name > tail || (name.ends_with('/') && tail.starts_with(name))
}

/// The folders whose bare names are not greater than this name, but whose keys may be: the folder
/// of that name, and every prefix of the name that is followed by a character below the slash.
/// They may not exist; then their listing is empty.
fn folders_after(name: &str) -> impl Iterator<Item = String> {
    let shorter = name.char_indices().filter(|(at, next)| *at > 0 && *next < '/').map(|(at, _)| &name[..at]);
    shorter.chain([name]).filter(|name| !name.is_empty()).map(|name| format!("{name}/")).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::{FolderListing, FolderStep, folders_after};
    use crate::s3::xml::XmlElement;

    fn page(keys: &[&str], folders: &[&str], token: Option<&str>) -> XmlElement {
        let keys: Vec<_> =
            keys.iter().map(|key| format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>")).collect();
        let folders: Vec<_> =
            folders.iter().map(|path| format!("<CommonPrefixes><Prefix>{path}</Prefix></CommonPrefixes>")).collect();
        let more = token.map(|token| format!("<NextContinuationToken>{token}</NextContinuationToken>"));
        let document = format!(
            "<ListBucketResult><IsTruncated>{}</IsTruncated>{}{}{}</ListBucketResult>",
            token.is_some(),
            more.unwrap_or_default(),
            keys.concat(),
            folders.concat()
        );
        XmlElement::parse(document.as_bytes()).expect("valid")
    }

    fn drain(folder: &mut FolderListing) -> Vec<String> {
        let mut names = Vec::new();
        loop {
            match folder.next() {
                FolderStep::Key(listed) => names.push(listed.key),
                FolderStep::Folder(path) => names.push(path),
                FolderStep::Read | FolderStep::End => return names,
            }
        }
    }

    #[test]
    fn folder_is_held_back_until_no_name_can_sort_before_it() {
        let mut folder = FolderListing::open("b/", "", None);
        folder.take(&page(&[], &["b/a/"], Some("t")), None).expect("taken");
        assert!(drain(&mut folder).is_empty());
        folder.take(&page(&["b/a-b", "b/a0"], &[], None), None).expect("taken");
        assert_eq!(drain(&mut folder), ["b/a-b", "b/a/", "b/a0"]);
    }

    #[test]
    fn start_includes_folders_whose_names_are_prefixes_of_it() {
        assert_eq!(folders_after("a-b.c").collect::<Vec<_>>(), ["a/", "a-b/", "a-b.c/"]);
        let mut folder = FolderListing::open("b/", "", Some("b/a-b"));
        folder.take(&page(&["b/a-c"], &[], None), Some("b/a-b")).expect("taken");
        assert_eq!(drain(&mut folder), ["b/a-b/", "b/a-c", "b/a/"]);
    }

    #[test]
    fn names_outside_the_folder_or_out_of_order_are_errors() {
        let mut folder = FolderListing::open("b/", "", None);
        assert!(folder.take(&page(&["c/x"], &[], None), None).is_err());
        assert!(folder.take(&page(&["b/x/y"], &[], None), None).is_err());
        folder.take(&page(&["b/m"], &[], Some("t")), None).expect("taken");
        assert!(folder.take(&page(&["b/c"], &[], None), None).is_err());
    }
}
