//! The section `server`.

use super::read::Section;
use super::sections::{address, local};
use super::{Server, units};

const KIBIBYTE: u64 = 1 << 10;
const TEBIBYTE: u64 = 1 << 40;

pub(super) fn server(section: Section<'_>) -> Server {
    section.not_built(&["tls"]);
    let server = Server {
        listen: section.read("listen", address).unwrap_or(local(9000)),
        region: section.text("region").unwrap_or_else(|| "us-east-1".to_owned()),
        object_bytes_max: section.read("max_object_size", units::size).unwrap_or(5 * TEBIBYTE),
        domain: section.text("domain"),
        max_concurrent_requests: section.count("max_concurrent_requests", 1000),
        max_connections: section.count("max_connections", 10_000),
        max_connections_per_address: section.count("max_connections_per_address", 1000),
        min_transfer_rate: section.read("min_transfer_rate", units::size).unwrap_or(KIBIBYTE),
        max_reserved_share: section.read("max_reserved_share", share).unwrap_or(1.0),
    };
    section.finish();
    server
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| format!("{text} is not allowed, use a number above 0 and up to 1.0"))
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    fn parse(server: &str) -> Result<Config, String> {
        let text = format!("server: {{{server}}}\nbackends: [{{name: a, kind: fs, root: /a}}]");
        Config::parse(&text, |_| None).map_err(|faults| faults.to_string())
    }

    #[test]
    fn limits_have_their_documented_defaults() {
        let server = parse("").unwrap().server;
        assert_eq!((server.max_connections, server.max_connections_per_address), (10_000, 1000));
        assert_eq!((server.min_transfer_rate, server.max_reserved_share.to_bits()), (1024, 1.0_f64.to_bits()));
    }

    #[test]
    fn share_is_above_zero_and_at_most_one() {
        assert_eq!(parse("max_reserved_share: 0.25").unwrap().server.max_reserved_share.to_bits(), 0.25_f64.to_bits());
        for wrong in ["0", "1.01", "-0.5", "half", "NaN"] {
            let faults = parse(&format!("max_reserved_share: {wrong}")).unwrap_err();
            assert!(faults.contains("server.max_reserved_share: "), "{faults}");
        }
    }
}
