//! The table of access keys that `s3o validate` prints.

use s3o_server::s3::AccessKey;

/// One line per access key below a heading; empty without access keys.
pub fn of(keys: &[AccessKey]) -> String {
    if keys.is_empty() {
        return String::new();
    }
    let heading = ["access key", "access", "buckets", "may"].map(str::to_owned);
    let rows: Vec<[String; 4]> = std::iter::once(heading).chain(keys.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths = [width(0), width(1), width(2)];
    let line = |[key, access, buckets, may]: &[String; 4]| {
        let [first, second, third] = widths;
        format!("{key:first$}  {access:second$}  {buckets:third$}  {may}\n")
    };
    rows.iter().map(line).collect()
}

fn row(key: &AccessKey) -> [String; 4] {
    let (buckets, may) = match key.buckets.as_slice() {
        [] => ("none".to_owned(), "nothing: the list of buckets is empty"),
        patterns => (patterns.join(", "), key.access.may()),
    };
    [key.access_key_id.clone(), key.access.name().to_owned(), buckets, may.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::of;
    use s3o_server::s3::{Access, AccessKey};

    fn key(id: &str, buckets: &[&str], access: Access) -> AccessKey {
        let buckets = buckets.iter().map(|&bucket| bucket.to_owned()).collect();
        AccessKey { access_key_id: id.to_owned(), secret: "s3cret".to_owned(), buckets, access }
    }

    #[test]
    fn table_has_a_row_per_key_and_no_secrets() {
        let table = of(&[key("app", &["photos", "logs-*"], Access::ReadWrite), key("idle", &[], Access::Admin)]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].starts_with("app         read_write  photos, logs-*  read"), "{table}");
        assert!(lines[2].starts_with("idle        admin       none            nothing"), "{table}");
        assert!(!table.contains("s3cret"));
        assert_eq!(of(&[]), "");
    }
}
