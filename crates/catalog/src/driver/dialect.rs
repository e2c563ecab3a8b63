//! Functions that both translations of the common dialect use.
//!
//! Besides `$n`, `:now` and the lock marks, the dialect has `TEXTS($n)` and `NUMBERS($n)`: the elements of a JSON array
//! as rows of one column, for `IN`. `UNINDEXED(column; other)` is `column`, read from the table and not from an index;
//! `other` is a column of the same table that no index contains.

/// Number of parameters of a statement: the highest number after a `$`.
pub(crate) fn params_of(sql: &str) -> usize {
    let numbers = sql.split('$').skip(1).map(|piece| {
        let digits = piece.bytes().take_while(u8::is_ascii_digit).count();
        piece[..digits].parse().unwrap_or(0)
    });
    numbers.max().unwrap_or(0)
}

/// Replaces every `WORD(argument)` by `spell(argument)`.
pub(super) fn respell(sql: &str, word: &str, spell: impl Fn(&str) -> String) -> String {
    let opening = format!("{word}(");
    let mut out = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some((before, after)) = rest.split_once(opening.as_str()) {
        let (argument, behind) = after.split_once(')').unwrap_or((after, ""));
        out.push_str(before);
        out.push_str(&spell(argument));
        rest = behind;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::{params_of, respell};

    #[test]
    fn parameters_are_counted_by_their_numbers() {
        assert_eq!(params_of("SELECT $2, $10, '$[0]', $1"), 10);
        assert_eq!(params_of("SELECT 1"), 0);
    }

    #[test]
    fn every_occurrence_is_respelt() {
        let spelt = respell("a IN TEXTS($1) OR b IN TEXTS($2)", "TEXTS", |argument| format!("<{argument}>"));
        assert_eq!(spelt, "a IN <$1> OR b IN <$2>");
    }
}
