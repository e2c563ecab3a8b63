//! The length of sentences in documents: a longer sentence has more than one idea.

use crate::source::{SourceFile, Violation};

/// Words of a sentence. A piece of code, or a list of them, is one word.
const WORDS_MAX: usize = 30;

/// A paragraph, an item of a list, or a cell of a table, with the line where it begins.
struct Block {
    line: usize,
    text: String,
}

/// The text of an item of a list or of a quotation, without its marker.
fn item(line: &str) -> Option<&str> {
    let (marker, text) = line.split_once(' ')?;
    let number = marker.strip_suffix('.').is_some_and(|number| number.chars().all(|c| c.is_ascii_digit()));
    (number || matches!(marker, "-" | "*" | ">")).then_some(text)
}

/// The blocks of a document outside of code.
fn blocks(text: &str) -> Vec<Block> {
    let (mut blocks, mut is_code, mut continues): (Vec<Block>, bool, bool) = (Vec::new(), false, false);
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let block = |text: &str| Block { line: number + 1, text: text.to_owned() };
        if line.starts_with("```") {
            (is_code, continues) = (!is_code, false);
        } else if is_code || line.is_empty() || line.starts_with('#') {
            continues = false;
        } else if line.starts_with('|') {
            blocks.extend(line.split(" | ").map(block));
            continues = false;
        } else if let (true, None, Some(last)) = (continues, item(line), blocks.last_mut()) {
            last.text.push(' ');
            last.text.push_str(line);
        } else {
            blocks.push(block(item(line).unwrap_or(line)));
            continues = true;
        }
    }
    blocks
}

/// An index is no sentence.
fn is_list_of_links(text: &str) -> bool {
    let text = text.trim_end_matches(" |");
    text.split(", ").all(|link| link.starts_with('[') && link.ends_with(')'))
}

/// The text with `C` instead of code, and without the targets of links.
fn plain(text: &str) -> String {
    let without_code: Vec<&str> =
        text.split('`').enumerate().map(|(at, part)| if at % 2 == 1 { "C" } else { part }).collect();
    let mut plain = String::new();
    for (at, part) in without_code.concat().split("](").enumerate() {
        let rest = if at == 0 { part } else { part.split_once(')').map_or(part, |(_, rest)| rest) };
        plain.push_str(rest);
    }
    plain
}

/// Number of words, with a list of code as one word.
fn count(sentence: &[&str]) -> usize {
    let is_code = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()) == "C";
    let words: Vec<&str> = sentence.iter().copied().filter(|word| word.contains(char::is_alphanumeric)).collect();
    let follows_code = |at: &usize| *at > 0 && is_code(words[*at]) && is_code(words[*at - 1]);
    words.len() - (0..words.len()).filter(follows_code).count()
}

/// Sentences with more words than allowed.
pub fn long_sentences(file: &SourceFile) -> Vec<Violation> {
    let mut found = Vec::new();
    for block in blocks(&file.text).iter().filter(|block| !is_list_of_links(&block.text)) {
        let text = plain(&block.text);
        let words: Vec<&str> = text.split_whitespace().collect();
        let ends = |word: &&str| word.trim_end_matches([')', '"', '*']).ends_with(['.', '?', '!']);
        for sentence in words.split_inclusive(ends) {
            let words = count(sentence);
            if words > WORDS_MAX {
                let begin = sentence[..5].join(" ");
                found.push(Violation::new(file, block.line, format!("a sentence of {words} words: {begin} ...")));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{SourceFile, long_sentences};

    fn lines(text: &str) -> Vec<usize> {
        long_sentences(&SourceFile::new("docs/a.md", text)).iter().map(|found| found.line).collect()
    }

    #[test]
    fn sentence_of_31_words_is_found_and_of_30_is_not() {
        let sentence = |words: usize| format!("{}end.\n", "word ".repeat(words - 1));
        assert_eq!(lines(&sentence(30)), [] as [usize; 0]);
        assert_eq!(lines(&format!("# Title\n\n{}", sentence(31))), [3]);
        assert_eq!(lines(&format!("1. {}", sentence(31))), [1]);
        assert_eq!(lines(&format!("| a | {} |", sentence(31))), [1]);
        assert_eq!(lines(&sentence(31).replacen("word word", "word\nword", 1)), [1]);
    }

    #[test]
    fn paragraphs_items_and_cells_are_separate() {
        let half = "word ".repeat(20);
        for between in ["\n\n", "\n- ", "\n```\ncode\n```\n", "\n# Title\n", ". "] {
            assert_eq!(lines(&format!("{half}{between}{half}")), [] as [usize; 0], "{between:?}");
        }
        assert_eq!(lines(&format!("| {half} | {half} |")), [] as [usize; 0]);
        assert_eq!(lines(&format!("{half}\n{half}")), [1]);
    }

    #[test]
    fn code_and_links_count_by_what_is_read() {
        let code = "`a long piece of code`, ".repeat(40);
        assert_eq!(lines(&code), [] as [usize; 0]);
        assert_eq!(lines(&"[text](https://example.com/a b c d e f g) ".repeat(30)), [] as [usize; 0]);
        let index = "[one and two](#one-and-two), ".repeat(20);
        assert_eq!(lines(&format!("| set up | {index}[three](#three) |")), [] as [usize; 0]);
        assert_eq!(lines(&format!("```\n{}\n```\n", "word ".repeat(40))), [] as [usize; 0]);
    }
}
