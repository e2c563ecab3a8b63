//! The binary: wiring, configuration, command line, nothing else.

mod bench;
mod cli;
mod client;
mod config;
mod credentials;
mod fleet;
mod gauges;
mod init;
mod logging;
mod serve;
mod tally;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Init(arguments) => init::init(&arguments),
        Command::Validate(arguments) => init::validate(&arguments),
        Command::Status(command) => client::status(&command),
        Command::Workers(command) => client::workers(&command),
        Command::Cleanup(command) => client::cleanup(&command),
        Command::Dlq(command) => client::dlq(&command),
        Command::Lifecycle(command) => client::lifecycle(&command),
        Command::Backend(command) => client::backend(&command),
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
