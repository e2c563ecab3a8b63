//! Links between documents, and the index of the guide for operators.

use std::path::Path;

use super::{files, root, text_of};

/// The guide whose index names every task and every problem.
const GUIDE: &str = "docs/operations.md";
/// Sections of the guide whose headings the index names.
const INDEXED: [&str; 3] = ["## Tasks", "## Problems", "## Reference"];

/// The anchor of a heading, as GitHub computes it.
fn anchor(heading: &str) -> String {
    let title = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    title.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

/// The headings of a document outside of code.
fn headings(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2).flat_map(str::lines);
    prose.filter(|line| line.trim_start_matches('#').starts_with(' ') && line.starts_with('#')).collect()
}

/// The targets of the links of a document.
fn links(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect()
}

/// Headings of the indexed sections that the index of a guide does not link to.
fn missing_in_index(guide: &str) -> Vec<&str> {
    let index = guide.split(INDEXED[0]).next().unwrap_or_default();
    let linked = links(index);
    let mut section = "";
    let mut missing = Vec::new();
    for heading in headings(guide) {
        if heading.starts_with("## ") {
            section = heading;
        } else if INDEXED.contains(&section) && !linked.contains(&format!("#{}", anchor(heading)).as_str()) {
            // Reference sections are linked as a whole.
            let is_part = section == INDEXED[2] && heading.starts_with("#### ");
            missing.extend((!is_part).then_some(heading));
        }
    }
    missing
}

#[test]
fn index_of_the_guide_names_every_task_and_problem() {
    assert_eq!(missing_in_index(&text_of(GUIDE)), [] as [&str; 0], "{GUIDE}");
}

#[test]
fn headings_that_the_index_lacks_are_found() {
    let guide = "[Add a key](#add-a-key)\n\n## Tasks\n\n### Add a key\n\n#### Remove `one`\n\n## Other\n\n### More\n";
    assert_eq!(missing_in_index(guide), ["#### Remove `one`"]);
    assert_eq!(anchor("### A backend is frozen: what to do"), "a-backend-is-frozen-what-to-do");
}

/// Links within the repository lead to files and headings that exist.
#[test]
fn links_of_documents_lead_somewhere() {
    let mut errors = Vec::new();
    let mut checked = 0;
    let documents = files().into_iter().filter(|path| Path::new(path).extension().is_some_and(|found| found == "md"));
    let roots = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(str::to_owned);
    for document in documents.chain(roots) {
        let text = text_of(&document);
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let folder = Path::new(&document).parent().expect("a file has a folder");
            let target = if file.is_empty() { document.clone() } else { folder.join(file).display().to_string() };
            let is_missing = !root().join(&target).exists();
            if is_missing
                || !heading.is_empty() && !headings(&text_of(&target)).iter().any(|one| anchor(one) == heading)
            {
                errors.push(format!("{document}: {link}"));
            }
            checked += 1;
        }
    }
    assert!(errors.is_empty(), "broken links:\n{}", errors.join("\n"));
    assert!(checked > 60, "only {checked} links");
}
