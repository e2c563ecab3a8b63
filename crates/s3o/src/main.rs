//! The binary: wiring, configuration, command line, nothing else.

mod access_table;
mod bench;
mod cli;
mod client;
mod config;
mod connect;
mod credentials;
mod fleet;
mod gauges;
mod init;
mod key;
mod logging;
mod serve;
mod tally;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command, Failure};

fn main() -> ExitCode {
    // First of all, because a SIGHUP without a handler ends the process. Other commands have nothing to reload.
    let serves = std::env::args_os().nth(1).is_some_and(|command| command == "serve");
    let hang_ups = serves.then(serve::take_sighup);
    let outcome = match Cli::parse().command {
        Command::Serve(arguments) => match hang_ups.unwrap_or_else(serve::take_sighup) {
            Ok(hang_ups) => serve::run(&arguments, hang_ups),
            Err(error) => Err(Failure::of("cannot start", error)),
        },
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
        Command::Backend(command) => client::backend(&command),
        Command::Catalog(command) => client::catalog(&command),
        Command::Verify(command) => client::verify(&command),
        Command::Bench(arguments) => bench::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("s3o: {failure}");
            failure.exit_code()
        }
    }
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
