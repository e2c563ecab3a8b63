//! Listing folder by folder, for stores that sort folders by their bare names.
//!
//! Such a store lists everything in `a/` before `a-b`, and asked for what follows `a-b` it leaves
//! `a/` out. So each folder is listed on its own, and a folder is held back until no name can
//! come any more that sorts before what lies in it. The keys come out in the order of their bytes.

use std::collections::BTreeMap;

use http::Method;
use s3o_model::physical_key::RESERVED_PREFIX;

use super::S3;
use super::list::{Decoder, is_truncated, read_entry};
use super::transport::Request;
use super::xml::Element;
use crate::{Error, Listed, Page};

/// How many requests one page may cost; a store that leads in circles ends here.
const REQUESTS_MAX: usize = 10_000;

impl S3 {
    pub(super) async fn walk_objects(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        let split = prefix.rfind('/').map_or(0, |slash| slash + 1);
        let mut folders = vec![Folder::open(&prefix[..split], &prefix[split..], after)];
        let own_too = prefix.starts_with(RESERVED_PREFIX);
        let mut items: Vec<Listed> = Vec::new();
        let mut requests = 0;
        while items.len() <= limit {
            let Some(folder) = folders.last_mut() else { break };
            match folder.next() {
                Next::Key(listed) => {
                    let ascends = items.last().map(|item| item.key.as_str()).or(after) < Some(listed.key.as_str());
                    if !ascends {
                        return Err(Error::Unknown(format!("the listing is out of order at {:?}", listed.key)));
                    }
                    items.push(listed);
                }
                Next::Folder(path) if path == RESERVED_PREFIX && !own_too => {}
                Next::Folder(path) => folders.push(Folder::open(&path, "", after)),
                Next::Read => {
                    requests += 1;
                    if requests > REQUESTS_MAX {
                        return Err(Error::Unknown("the listing does not end".to_owned()));
                    }
                    self.read_more(folder, after).await?;
                }
                Next::End => {
                    folders.pop();
                }
            }
        }
        let truncated = items.len() > limit;
        items.truncate(limit);
        Ok(Page { items, truncated })
    }

    async fn read_more(&self, folder: &mut Folder, after: Option<&str>) -> Result<(), Error> {
        let prefix = format!("{}{}", folder.path, folder.name_prefix);
        let mut query =
            vec![("list-type", "2"), ("encoding-type", "url"), ("delimiter", "/"), ("prefix", prefix.as_str())];
        match &folder.unread {
            Unread::From(None) | Unread::Nothing => {}
            Unread::From(Some(start)) => query.push(("start-after", start)),
            Unread::Token(token) => query.push(("continuation-token", token)),
        }
        let answer = self.transport.answer(Request::new(Method::GET, None, &query)).await;
        match answer.map_err(Error::from) {
            Ok(answer) => folder.take(&Element::parse(&answer.body)?, after),
            Err(Error::NotFound) => Err(Error::Unknown("the listing was answered with a 404".to_owned())),
            Err(error) => Err(error),
        }
    }
}

/// What a folder gives next.
enum Next {
    Key(Listed),
    Folder(String),
    Read,
    End,
}

/// What of a folder is still to be read.
enum Unread {
    /// All of it, or what follows a key.
    From(Option<String>),
    Token(String),
    Nothing,
}

struct Folder {
    /// With its slash; empty for the root.
    path: String,
    name_prefix: String,
    /// By name, folders with their slash: `Some` is a key, `None` a folder.
    pending: BTreeMap<String, Option<Listed>>,
    /// The highest bare name read so far.
    read_to: String,
    unread: Unread,
}

impl Folder {
    /// Begins a folder at the first name that can lead to a key after `after`.
    fn open(path: &str, name_prefix: &str, after: Option<&str>) -> Self {
        let mut folder = Self {
            path: path.to_owned(),
            name_prefix: name_prefix.to_owned(),
            pending: BTreeMap::new(),
            read_to: String::new(),
            unread: Unread::From(None),
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
                folder.unread = Unread::From(Some(format!("{path}{name}")));
            }
            None if path > after => {}
            None => folder.unread = Unread::Nothing,
        }
        folder
    }

    fn next(&mut self) -> Next {
        let whole = matches!(self.unread, Unread::Nothing);
        match self.pending.first_entry() {
            // What is still unread has a higher bare name, and so sorts after this.
            Some(first) if whole || *first.key() <= self.read_to => {
                let (name, entry) = first.remove_entry();
                entry.map_or_else(|| Next::Folder(format!("{}{name}", self.path)), Next::Key)
            }
            None if whole => Next::End,
            Some(_) | None => Next::Read,
        }
    }

    fn take(&mut self, root: &Element, after: Option<&str>) -> Result<(), Error> {
        let decoder = Decoder::of(root);
        let tail = after.and_then(|after| after.strip_prefix(&self.path));
        let mut read_to = self.read_to.clone();
        for (name, entry) in self.entries(root, decoder)? {
            let bare = name.trim_end_matches('/');
            if bare < self.read_to.as_str() && name < self.read_to {
                return Err(Error::Unknown(format!("the listing of {:?} goes back to {name:?}", self.path)));
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
            (false, _) => Unread::Nothing,
            (true, Some(token)) => Unread::Token(token.to_owned()),
            (true, None) => return Err(Error::Unknown("the listing does not say how it goes on".to_owned())),
        };
        Ok(())
    }

    fn entries(&self, root: &Element, decoder: Decoder) -> Result<Vec<(String, Option<Listed>)>, Error> {
        let mut entries = Vec::new();
        for entry in root.all("Contents") {
            let listed = read_entry(entry, decoder)?;
            let name = self.name_of(&listed.key)?;
            // Stores that keep folders list an empty one as a key that ends in a slash. No key of
            // ours does.
            if !name.is_empty() {
                entries.push((name, Some(listed)));
            }
        }
        for entry in root.all("CommonPrefixes") {
            let path = decoder.decode(entry.child_text("Prefix").unwrap_or_default())?;
            entries.push((self.name_of(&path)?, None));
        }
        let odd = |(name, entry): &(String, Option<Listed>)| match entry {
            Some(_) => name.contains('/'),
            None => name.find('/') != Some(name.len().saturating_sub(1)),
        };
        match entries.iter().find(|entry| odd(entry)) {
            Some((name, _)) => Err(Error::Unknown(format!("{name:?} does not lie in {:?}", self.path))),
            None => Ok(entries),
        }
    }

    fn name_of(&self, path: &str) -> Result<String, Error> {
        let name = path.strip_prefix(&self.path).filter(|name| name.starts_with(&self.name_prefix));
        name.map(str::to_owned).ok_or_else(|| Error::Unknown(format!("{path:?} was not asked for")))
    }
}

/// Whether a name in a folder is, or leads to, a key after `tail`.
fn leads_beyond(name: &str, tail: &str) -> bool {
    name > tail || (name.ends_with('/') && tail.starts_with(name))
}

/// The folders whose bare names are not higher than this one, but whose keys may be: the folder
/// of that name, and those whose names it goes on from with a character below the slash. Whether
/// they exist shows when they are listed.
fn folders_after(name: &str) -> impl Iterator<Item = String> {
    let shorter = name.char_indices().filter(|(at, next)| *at > 0 && *next < '/').map(|(at, _)| &name[..at]);
    shorter.chain([name]).filter(|name| !name.is_empty()).map(|name| format!("{name}/")).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::{Folder, Next, folders_after};
    use crate::s3::xml::Element;

    fn page(keys: &[&str], folders: &[&str], token: Option<&str>) -> Element {
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
        Element::parse(document.as_bytes()).expect("valid")
    }

    fn given(folder: &mut Folder) -> Vec<String> {
        let mut names = Vec::new();
        loop {
            match folder.next() {
                Next::Key(listed) => names.push(listed.key),
                Next::Folder(path) => names.push(path),
                Next::Read | Next::End => return names,
            }
        }
    }

    #[test]
    fn a_folder_is_held_back_until_nothing_can_sort_before_it() {
        let mut folder = Folder::open("b/", "", None);
        folder.take(&page(&[], &["b/a/"], Some("t")), None).expect("taken");
        assert!(given(&mut folder).is_empty());
        folder.take(&page(&["b/a-b", "b/a0"], &[], None), None).expect("taken");
        assert_eq!(given(&mut folder), ["b/a-b", "b/a/", "b/a0"]);
    }

    #[test]
    fn a_start_brings_back_the_folders_that_its_name_goes_on_from() {
        assert_eq!(folders_after("a-b.c").collect::<Vec<_>>(), ["a/", "a-b/", "a-b.c/"]);
        let mut folder = Folder::open("b/", "", Some("b/a-b"));
        folder.take(&page(&["b/a-c"], &[], None), Some("b/a-b")).expect("taken");
        assert_eq!(given(&mut folder), ["b/a-b/", "b/a-c", "b/a/"]);
    }

    #[test]
    fn what_lies_elsewhere_or_goes_back_is_refused() {
        let mut folder = Folder::open("b/", "", None);
        assert!(folder.take(&page(&["c/x"], &[], None), None).is_err());
        assert!(folder.take(&page(&["b/x/y"], &[], None), None).is_err());
        folder.take(&page(&["b/m"], &[], Some("t")), None).expect("taken");
        assert!(folder.take(&page(&["b/c"], &[], None), None).is_err());
    }
}
