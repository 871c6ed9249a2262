//! The command line of Kapelle: arguments in, commands to the engine, answers for people out.

mod agent;
mod args;
mod ask;
mod attach;
mod config;
mod demo;
mod doctor;
mod init;
mod look;
mod output;
mod project;
mod recover;
mod reference;
mod replay;
mod run;
mod sandbox;
mod search;
mod session;
mod store;

use std::process::ExitCode;

use args::{AgentCommand, AuditCommand, Cli, Command, SandboxCommand, StoreCommand};
use clap::Parser;
use output::{Exit, Problem, say};

fn main() -> ExitCode {
    // Inside a box this binary is the box program, before anything else happens.
    let args: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    if let Some((first, mandate)) = args.split_first()
        && first == sandbox::BOX_PROGRAM
    {
        let code = kapelle_workspace::sandbox::enter(mandate);
        return ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX));
    }
    let cli = Cli::parse();
    // The scripted agent is a small program of its own, without a runtime.
    if let Command::Agent(AgentCommand::Scripted(args)) = &cli.command {
        return match agent::scripted(args) {
            Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
            Err(problem) => told(&problem),
        };
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(dispatch(cli.command)),
        Err(error) => Err(Problem::environment(error)),
    };
    match outcome {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(problem) => told(&problem),
    }
}

fn told(problem: &Problem) -> ExitCode {
    say(problem);
    ExitCode::from(problem.exit.code())
}

async fn dispatch(command: Command) -> Result<Exit, Problem> {
    match command {
        Command::Demo(args) => demo::demo(args).await,
        Command::Init(args) => init::init(&args).await,
        Command::Doctor(args) => doctor::doctor(&args).await,
        Command::Run(args) => run::run(args).await,
        Command::Status(args) => look::status(args).await,
        Command::Tasks(args) => look::tasks(args).await,
        Command::Why(args) => look::explain(args).await,
        Command::Log(args) => look::log(args).await,
        Command::Search(args) => search::search(args).await,
        Command::Approve(args) => ask::approve(args).await,
        Command::Answer(args) => ask::answer(args).await,
        Command::Pause(args) => ask::pause(args).await,
        Command::Resume(args) => ask::resume(args).await,
        Command::Cancel(args) => ask::cancel(args).await,
        Command::Sandbox(SandboxCommand::Run(args)) => sandbox::run(args).await,
        Command::Sandbox(SandboxCommand::Explain(args)) => sandbox::explain(&args).await,
        Command::Recover(args) => recover::recover(&args).await,
        Command::Attach(args) => attach::attach(&args).await,
        Command::Audit(AuditCommand::Verify(args)) => look::audit(args).await,
        Command::Replay(args) => replay::replay(args).await,
        Command::Export(args) => store::export(args).await,
        Command::Import(args) => store::import(args).await,
        Command::Store(StoreCommand::Rebuild(args)) => store::rebuild(args).await,
        Command::Store(StoreCommand::Move(args)) => store::carry(args).await,
        Command::Agent(AgentCommand::Scripted(args)) => {
            agent::scripted(&args).map(|code| if code == 0 { Exit::Done } else { Exit::Failed })
        }
        Command::Docs(args) => reference::write(&args),
    }
}
