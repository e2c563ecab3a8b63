//! `s3o backend`.

use serde_json::Value;

use super::connection::AdminConnection;
use super::table::{bytes, cell};
use crate::cli::CommandFailure;

/// Accepts the identity with this hash; without a hash, prints what would be accepted.
pub fn accept(connection: &AdminConnection, name: &str, found: Option<&str>, json: bool) -> Result<(), CommandFailure> {
    let query: Vec<_> = found.map(|hash| ("found", hash)).into_iter().collect();
    let (accepted, answer) = connection.post_or_conflict(&["backends", name, "accept"], &query)?;
    let nothing_to_accept = found.is_none() && matches_everywhere(&answer);
    if json {
        println!("{answer}");
    } else if accepted {
        println!("{name}: accepted; to find objects whose bytes are missing, run: s3o verify --deep");
    } else if nothing_to_accept {
        println!("{name}: its identity matches on every instance, there is nothing to accept");
    } else {
        show(name, &answer);
    }
    if accepted || nothing_to_accept { Ok(()) } else { Err(CommandFailure::Failed(reason(&answer).to_owned())) }
}

/// Dismisses the mismatch that a host recorded.
pub fn dismiss(connection: &AdminConnection, name: &str, host: &str, json: bool) -> Result<(), CommandFailure> {
    let answer = connection.post_where(&["backends", name, "dismiss"], &[("host", host)])?;
    if json {
        println!("{answer}");
    } else {
        println!("{name}: the mismatch that {host} recorded is ignored until {host} finds another identity");
    }
    Ok(())
}

/// Starts to drain a backend.
pub fn drain(connection: &AdminConnection, name: &str, json: bool) -> Result<(), CommandFailure> {
    print_drain(&connection.post(&["backends", name, "drain"])?, json);
    Ok(())
}

/// Shows the progress of a drain.
pub fn show_drain(connection: &AdminConnection, name: &str, json: bool) -> Result<(), CommandFailure> {
    print_drain(&connection.get(&["backends", name, "drain"])?, json);
    Ok(())
}

/// Stops a drain.
pub fn undrain(connection: &AdminConnection, name: &str, json: bool) -> Result<(), CommandFailure> {
    print_drain(&connection.delete(&["backends", name, "drain"])?, json);
    Ok(())
}

/// Removes a backend that holds nothing or, with its name in `write_off`, with everything that it holds.
pub fn remove(
    connection: &AdminConnection,
    name: &str,
    write_off: Option<&str>,
    json: bool,
) -> Result<(), CommandFailure> {
    let query: Vec<_> = write_off.map(|name| ("write_off", name)).into_iter().collect();
    let answer = connection.delete_where(&["backends", name], &query)?;
    if json {
        println!("{answer}");
        return Ok(());
    }
    println!("{name}: removed; delete it from the configuration and restart");
    for total in answer["written_off"].as_array().into_iter().flatten() {
        println!("{:<28} {}, {}", cell(&total["kind"]), total["count"], bytes(&total["bytes"]));
    }
    Ok(())
}

fn print_drain(answer: &Value, json: bool) {
    if json {
        return println!("{answer}");
    }
    let state = match (answer["draining"].as_bool(), answer["complete"].as_bool()) {
        (Some(true), Some(true)) => "drained, it can be removed",
        (Some(true), _) => "draining",
        (_, _) => "not draining",
    };
    println!("state         {state}");
    println!("remaining     {} copies, {} bytes", answer["remaining"], answer["remaining_bytes"]);
    println!(
        "waiting       {} writes, {} deletes, {} dead letters",
        answer["intents"], answer["cleanups"], answer["dead_letters"]
    );
    println!("moved         {} copies, {} bytes by the instance that answered", answer["moved"], answer["moved_bytes"]);
    if let (Some(rate), Some(seconds)) = (answer["rate"].as_u64(), answer["eta_seconds"].as_u64()) {
        println!("rate          {rate} bytes per second, about {seconds} s left");
    }
    for (reason, copies) in answer["stuck"].as_object().into_iter().flatten() {
        println!("cannot move   {copies} copies: {reason}");
    }
}

/// True if no instance found a mismatch and no new object is missing.
fn matches_everywhere(answer: &Value) -> bool {
    let is_empty = |field: &str| answer[field].as_array().is_some_and(Vec::is_empty);
    let instances = answer["instances"].as_array();
    answer["expected"] == answer["found"]
        && is_empty("newest_missing")
        && instances.is_some_and(|all| all.iter().all(|instance| instance["reason"].is_null()))
}

fn reason(answer: &Value) -> &str {
    answer["error"]["message"].as_str().unwrap_or("nothing was changed")
}

fn show(name: &str, answer: &Value) {
    println!("expected        {}", answer["expected"]);
    println!("found           {}", answer["found"]);
    println!("hash            {}", answer["hash"].as_str().unwrap_or_default());
    for instance in answer["instances"].as_array().into_iter().flatten() {
        let (host, hash) =
            (instance["host"].as_str().unwrap_or_default(), instance["hash"].as_str().unwrap_or_default());
        println!("instance        {host}: {hash}, {}", instance["reason"].as_str().unwrap_or("matches"));
    }
    println!("queued deletes  {}", answer["queued_deletes"]);
    for key in answer["newest_missing"].as_array().into_iter().flatten() {
        println!("newest missing  {}", key.as_str().unwrap_or_default());
    }
    println!(
        "to accept exactly this: s3o backend accept {name} --found {}",
        answer["hash"].as_str().unwrap_or_default()
    );
}
