//! The binary: composition root, configuration and command line.

mod access_table;
mod app;
mod backend_meter;
mod blocking;
mod cli;
mod client;
mod config;
mod connect;
mod credentials;
mod fleet;
mod init;
mod key;
mod logging;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command, CommandFailure};

/// A request makes some hundred small allocations, often freed by another thread. The system's allocator takes about
/// twice as long for them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Before anything else, because SIGHUP ends a process without a handler.
    let sighup = app::early_sighup();
    let command = Cli::parse().command;
    if !matches!(command, Command::Serve(_)) {
        end_quietly_on_closed_pipe();
    }
    let outcome = match command {
        Command::Serve(arguments) => app::serve(&arguments, sighup),
        Command::Init(arguments) => init::init(&arguments),
        Command::Validate(arguments) => init::validate(&arguments),
        Command::Key(command) => {
            key::run(&command);
            Ok(())
        }
        Command::Status(command) => client::status(&command),
        Command::Workers(command) => client::workers(&command),
        Command::Cleanup(command) => client::cleanup(&command),
        Command::Dlq(command) => client::dlq(&command),
        Command::Findings(command) => client::findings(&command),
        Command::Lifecycle(command) => client::lifecycle(&command),
        Command::Replicate(command) => client::replicate(&command),
        Command::Rebalance(command) => client::rebalance(&command),
        Command::Reconcile(command) => client::reconcile(&command),
        Command::Backend(command) => client::backend(&command),
        Command::Catalog(command) => client::catalog(&command),
        Command::Verify(command) => client::verify(&command),
        Command::Bench(arguments) => s3o_bench::run(&arguments).map_err(CommandFailure::from),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("s3o: {failure}");
            failure.exit_code()
        }
    }
}

/// Ends the process when a reader such as `head` has closed the pipe. `println!` would panic instead.
fn end_quietly_on_closed_pipe() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let message = panic.payload_as_str().unwrap_or_default();
        if message.starts_with("failed printing to stdout") && message.contains("Broken pipe") {
            std::process::exit(0);
        }
        report(panic);
    }));
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
