//! Rules about items: the length of functions, the names of types, doc comments that say nothing.

use std::collections::{BTreeMap, BTreeSet};

use quote::ToTokens as _;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

use crate::source::{SourceFile, Violation};

/// A longer function does more than one thing.
const FUNCTION_LINES_MAX: usize = 40;

/// Functions that may be longer, with the reason.
const LONG_FUNCTIONS: [(&str, &str); 0] = [];

/// Type names that may occur more than once, with the reason. Other names mean one type in the whole workspace, so that
/// a reader who searches for a name finds one definition.
const SHARED_TYPE_NAMES: [(&str, &str); 2] = [
    ("Error", "every crate has one error type, and paths name the crate: engine::Error"),
    ("Settings", "the configuration of one component, always used with its module"),
];

/// Words that add nothing to the name of an item.
const FILLERS: [&str; 49] = [
    "a", "an", "the", "of", "its", "it", "this", "that", "these", "those", "is", "are", "was", "be", "has", "have",
    "for", "to", "in", "on", "at", "as", "by", "and", "or", "with", "from", "one", "all", "any", "some", "which",
    "what", "how", "who", "when", "where", "whether", "if", "so", "our", "their", "them", "they", "does", "do",
    "every", "each", "s",
];

/// What the rules need to know of one file.
#[derive(Default)]
struct Items {
    functions: Vec<(String, usize, usize)>,
    types: Vec<(String, usize)>,
    empty_docs: Vec<(String, usize)>,
    /// Names of the enclosing types, for the docs of fields, variants and methods.
    parents: Vec<String>,
    /// Depth of `#[cfg(test)]` modules.
    test_depth: usize,
}

fn parse(file: &SourceFile) -> Items {
    let parsed = syn::parse_file(&file.text).unwrap_or_else(|error| panic!("{}: {error}", file.path));
    let mut items = Items::default();
    items.visit_file(&parsed);
    items
}

fn is_test_module(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.to_token_stream().to_string().replace(' ', "") == "#[cfg(test)]")
}

/// The text of a doc comment, and its first line.
fn doc_of(attributes: &[syn::Attribute]) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut line = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        if let syn::Meta::NameValue(pair) = &attribute.meta
            && let syn::Expr::Lit(literal) = &pair.value
            && let syn::Lit::Str(doc) = &literal.lit
        {
            text.push_str(&doc.value());
            text.push('\n');
            line.get_or_insert(attribute.span().start().line);
        }
    }
    line.map(|line| (text, line))
}

/// Splits identifiers and sentences into words without their endings.
fn stems(text: &str) -> BTreeSet<String> {
    let mut spaced = String::new();
    let mut previous_is_lower = false;
    for character in text.chars() {
        if character.is_uppercase() && previous_is_lower {
            spaced.push(' ');
        }
        spaced.push(if character.is_alphanumeric() { character.to_ascii_lowercase() } else { ' ' });
        previous_is_lower = character.is_lowercase();
    }
    let words = spaced.split_whitespace().filter(|word| !FILLERS.contains(word));
    words.map(stem).filter(|word| !word.is_empty()).collect()
}

fn stem(word: &str) -> String {
    let endings = ["ies", "ing", "es", "ed", "s", "e", "y"];
    let found = endings.iter().find_map(|ending| word.strip_suffix(ending).filter(|rest| rest.len() > 2));
    found.unwrap_or(word).to_owned()
}

/// Whether a doc comment has no word that the name and the names around it do not have.
fn repeats_name(doc: &str, name: &str, parents: &[String]) -> bool {
    let mut known = stems(name);
    known.extend(parents.iter().flat_map(|parent| stems(parent)));
    stems(doc).is_subset(&known)
}

impl Items {
    fn check_doc(&mut self, name: &syn::Ident, attributes: &[syn::Attribute]) {
        if let Some((doc, line)) = doc_of(attributes)
            && repeats_name(&doc, &name.to_string(), &self.parents)
        {
            self.empty_docs.push((name.to_string(), line));
        }
    }

    fn add_type(&mut self, name: &syn::Ident, attributes: &[syn::Attribute]) {
        self.check_doc(name, attributes);
        if self.test_depth == 0 {
            self.types.push((name.to_string(), name.span().start().line));
        }
    }

    fn add_function(&mut self, signature: &syn::Signature, end: usize, attributes: &[syn::Attribute]) {
        self.check_doc(&signature.ident, attributes);
        let start = signature.span().start().line;
        self.functions.push((signature.ident.to_string(), start, end + 1 - start));
    }

    fn within(&mut self, parent: String, visit: impl FnOnce(&mut Self)) {
        self.parents.push(parent);
        visit(self);
        self.parents.pop();
    }
}

/// Bodies of functions are not visited: local types and functions are part of their function.
impl<'ast> Visit<'ast> for Items {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let is_test = is_test_module(&item.attrs);
        self.test_depth += usize::from(is_test);
        visit::visit_item_mod(self, item);
        self.test_depth -= usize::from(is_test);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.add_type(&item.ident, &item.attrs);
        self.within(item.ident.to_string(), |items| visit::visit_item_struct(items, item));
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.add_type(&item.ident, &item.attrs);
        self.within(item.ident.to_string(), |items| visit::visit_item_enum(items, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.add_type(&item.ident, &item.attrs);
        self.within(item.ident.to_string(), |items| visit::visit_item_trait(items, item));
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.add_type(&item.ident, &item.attrs);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let name = item.self_ty.to_token_stream().to_string();
        self.within(name, |items| visit::visit_item_impl(items, item));
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if let Some(name) = &field.ident {
            self.check_doc(name, &field.attrs);
        }
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.check_doc(&variant.ident, &variant.attrs);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.check_doc(&item.ident, &item.attrs);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add_function(&item.sig, item.block.span().end().line, &item.attrs);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add_function(&item.sig, item.block.span().end().line, &item.attrs);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add_function(&item.sig, block.span().end().line, &item.attrs);
        } else {
            self.check_doc(&item.sig.ident, &item.attrs);
        }
    }
}

/// Functions with more lines than allowed, signature and closing brace included.
pub fn long_functions(file: &SourceFile) -> Vec<Violation> {
    let items = parse(file);
    let is_listed = |name: &str| LONG_FUNCTIONS.iter().any(|(listed, _)| *listed == format!("{}::{name}", file.path));
    let long = items.functions.into_iter().filter(|(name, _, lines)| *lines > FUNCTION_LINES_MAX && !is_listed(name));
    long.map(|(name, line, lines)| Violation::new(file, line, format!("{name} has {lines} lines"))).collect()
}

/// Doc comments that only repeat the name of their item.
pub fn empty_docs(file: &SourceFile) -> Vec<Violation> {
    let docs = parse(file).empty_docs.into_iter();
    docs.map(|(name, line)| Violation::new(file, line, format!("the doc of {name} repeats its name"))).collect()
}

/// Type names that more than one file declares. Types of unit tests do not count: only their own module sees them.
pub fn repeated_types(files: &[SourceFile]) -> Vec<Violation> {
    let mut places: BTreeMap<String, Vec<Violation>> = BTreeMap::new();
    let is_unit_test = |path: &str| path.starts_with("crates/") && (path.contains("/tests") || path.contains("/facts"));
    for file in files.iter().filter(|file| !is_unit_test(&file.path)) {
        for (name, line) in parse(file).types {
            let what = format!("{name} is declared more than once");
            places.entry(name).or_default().push(Violation::new(file, line, what));
        }
    }
    let is_shared = |name: &str| SHARED_TYPE_NAMES.iter().any(|(shared, _)| *shared == name);
    let repeated = places.into_iter().filter(|(name, places)| places.len() > 1 && !is_shared(name));
    repeated.flat_map(|(_, places)| places).collect()
}

#[cfg(test)]
mod tests {
    use super::{SourceFile, empty_docs, long_functions, repeated_types};

    fn file(text: &str) -> SourceFile {
        SourceFile::new("crates/a/src/a.rs", text)
    }

    #[test]
    fn function_of_41_lines_is_found_and_of_40_is_not() {
        let function =
            |lines: usize| file(&format!("#[test]\nfn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2)));
        assert_eq!(long_functions(&function(40)), []);
        assert_eq!(long_functions(&function(41))[0].what, "long has 41 lines");
    }

    #[test]
    fn repeated_type_names_are_found_in_both_files() {
        let other = SourceFile::new("crates/b/src/b.rs", "pub enum State { On }\npub struct Error;\n");
        let found = repeated_types(&[file("struct State;\npub struct Error;\n"), other]);
        let places: Vec<_> = found.iter().map(|found| (found.path.as_str(), found.line)).collect();
        assert_eq!(places, [("crates/a/src/a.rs", 1), ("crates/b/src/b.rs", 1)]);
    }

    #[test]
    fn types_of_unit_tests_and_functions_do_not_count() {
        let local = "#[cfg(test)]\nmod tests { struct State; }\nfn run() { struct State; }\n";
        assert_eq!(repeated_types(&[file("struct State;\n"), file(local)]), []);
    }

    #[test]
    fn docs_that_repeat_the_name_are_found() {
        for text in [
            "/// The catalog.\npub struct Catalog;",
            "pub struct Parts {\n    /// Its clock.\n    pub clock: u64,\n}",
            "enum Guard {\n    /// It is on.\n    On,\n}",
            "impl Queue {\n    /// Settles the cleanups of a queue.\n    fn settle_cleanups() {}\n}",
        ] {
            assert_eq!(empty_docs(&file(text)).len(), 1, "{text}");
        }
    }

    #[test]
    fn docs_that_add_a_unit_or_a_guarantee_are_allowed() {
        let text = "/// Seconds since boot; never goes back.\npub clock: u64,";
        assert_eq!(empty_docs(&file(&format!("pub struct Parts {{ {text} }}"))), []);
    }
}
