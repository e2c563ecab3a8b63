//! Characters that must not reach a log, an audit file or a terminal as they are.

/// True for control characters (C0, DEL, C1), line and paragraph separators, and characters that change the direction
/// of text: they can forge lines, drive a terminal or make a name read as another one.
#[must_use]
pub fn must_be_escaped(character: char) -> bool {
    let is_separator = matches!(character, '\u{2028}' | '\u{2029}');
    let is_bidirectional = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    character.is_control() || is_separator || is_bidirectional
}

#[cfg(test)]
mod tests {
    use super::must_be_escaped;

    #[test]
    fn invisible_characters_are_escaped_and_letters_are_not() {
        for character in
            ['\0', '\n', '\t', '\u{1b}', '\u{7f}', '\u{9b}', '\u{2028}', '\u{200f}', '\u{202e}', '\u{2069}']
        {
            assert!(must_be_escaped(character), "{character:?}");
        }
        for character in ['a', ' ', '\u{fc}', '\u{5d0}', '\u{627}', '\u{1f600}', '\u{fffd}'] {
            assert!(!must_be_escaped(character), "{character:?}");
        }
    }
}
