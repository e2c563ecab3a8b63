//! `s3o backend`.

use super::connection::Connection;
use crate::cli::Failure;

/// Takes a backend for what it says it is.
pub fn accept(connection: &Connection, name: &str, json: bool) -> Result<(), Failure> {
    let answer = connection.post(&["backends", name, "accept"])?;
    if json {
        println!("{answer}");
    } else {
        println!("{name}: accepted");
    }
    Ok(())
}
