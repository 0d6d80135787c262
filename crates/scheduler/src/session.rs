// SPDX-License-Identifier: GPL-2.0-only
//! A program of ours while it works: it serves statistics, does what clients ask, and prints. `overbook host` and
//! `overbook guest` are sessions.

use crate::client::Served;
use crate::replace::LEAVE;
use anyhow::{Result, anyhow, bail};
use overbook_cli::output;
use overbook_cli::values::duration;
use scx_stats::prelude::*;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often it is looked whether the kernel has unloaded a scheduler.
pub const POLL: Duration = Duration::from_millis(100);

/// Arguments of a client's request for statistics.
pub type Arguments = BTreeMap<String, String>;

/// What clients get: statistics, or one sentence.
type Answer<S> = std::result::Result<<S as Session>::Stats, String>;

/// What works, and can be asked.
pub trait Session {
    /// What clients can ask of it beside statistics.
    type Request: Send + Sync + 'static;
    /// Its statistics. The command that starts it is also how it is known when it is asked to leave.
    type Stats: Served + ToJson + Send + Sync + 'static;

    /// What a client's arguments ask for, if for anything; checked here, before the session hears of it.
    ///
    /// # Errors
    /// They are wrong; one sentence.
    fn read(arguments: &Arguments) -> Result<Option<Self::Request>>;

    /// All structures of the statistics.
    fn describe() -> Vec<StatsMeta>;

    /// Does as a client asks.
    ///
    /// # Errors
    /// It cannot, and goes on as before; one sentence, for the client.
    fn heed(&mut self, request: Self::Request) -> Result<()>;

    /// Statistics as of now.
    ///
    /// # Errors
    /// They cannot be read.
    fn stats(&mut self) -> Result<Self::Stats>;

    /// Prints statistics, of the time since the last call.
    ///
    /// # Errors
    /// The reader has gone.
    fn print(&mut self, to: &mut dyn Write) -> Result<()>;

    /// How long it may rest until something is due.
    fn rest(&self) -> Duration;

    /// Does what is due.
    ///
    /// # Errors
    /// It cannot go on.
    fn work(&mut self) -> Result<()>;

    /// Whether it has nothing to do any more.
    fn ended(&self) -> bool;
}

/// Says that it is [ready](output::ready), and works until the end: until `stop`, a client's request to leave, or [`Session::ended`]. Whether it was asked to end.
/// Prints statistics every so many seconds, if at all.
///
/// # Errors
/// The session cannot go on.
pub fn work<S: Session>(session: &mut S, print_every: Option<f64>, stop: &dyn Fn() -> bool) -> Result<bool> {
    let server = StatsServer::<Asked<S::Request>, Answer<S>>::new(server_data::<S>()).launch();
    // Without a server it is as good. Whoever of ours begins last on a machine has the socket.
    let server = server.inspect_err(|e| log::warn!("no statistics for others: {e:#}")).ok();
    output::ready();
    let mut printed = Instant::now();
    while !session.ended() {
        if stop() {
            return Ok(true);
        }
        let rest = session.rest();
        match &server {
            Some(server) => {
                let (answers, requests) = server.channels();
                if let Ok(asked) = requests.recv_timeout(rest) {
                    let leave = matches!(asked, Asked::Leave);
                    let done = match asked {
                        Asked::Request(request) => session.heed(request),
                        Asked::Stats | Asked::Leave => Ok(()),
                    };
                    answers.send(done.and_then(|()| session.stats()).map_err(|e| format!("{e:#}")))?;
                    if leave {
                        log::info!("another one takes over");
                        return Ok(true);
                    }
                }
            }
            None => std::thread::sleep(rest),
        }
        session.work()?;
        if print_every.is_some_and(|seconds| printed.elapsed() >= duration(seconds)) {
            printed = Instant::now();
            let mut text = Vec::new();
            session.print(&mut text)?;
            // Whoever read them may have gone, and that is no reason to schedule no more.
            let _ = std::io::stderr().write_all(&text);
        }
    }
    Ok(stop())
}

/// Explains the statistics, for `--help-stats`.
///
/// # Errors
/// The reader has gone.
pub fn explain<S: Session>(to: &mut impl Write) -> Result<()> {
    server_data::<S>().describe_meta(to, None)
}

/// What a client asks.
enum Asked<R> {
    Stats,
    Request(R),
    Leave,
}

/// Whether somebody takes over from this one.
///
/// # Errors
/// From another; one sentence.
fn is_to_leave<S: Session>(arguments: &Arguments) -> Result<bool> {
    match arguments.get(LEAVE) {
        None => Ok(false),
        Some(who) if who == S::Stats::COMMAND => Ok(true),
        Some(who) => bail!("`{}` runs, and not {who}", S::Stats::COMMAND),
    }
}

fn server_data<S: Session>() -> StatsServerData<Asked<S::Request>, Answer<S>> {
    let top: Box<dyn StatsReaderSend<Asked<S::Request>, Answer<S>>> =
        Box::new(|arguments, (requests, answers)| {
            let asked = match S::read(arguments)? {
                Some(request) => Asked::Request(request),
                None if is_to_leave::<S>(arguments)? => Asked::Leave,
                None => Asked::Stats,
            };
            requests.send(asked)?;
            answers.recv()?.map_err(|why| anyhow!(why))?.to_json()
        });
    let data = StatsServerData::new().add_stats("top", top);
    S::describe().into_iter().fold(data, StatsServerData::add_meta)
}

/// Orders of the lab, which measures schedulers by turns: lines of stdin, as they come.
pub struct Orders(Receiver<String>);

/// What [`Orders`] has.
#[derive(Debug, PartialEq, Eq)]
pub enum Order {
    /// Begin to work, with these arguments.
    Attach(Vec<String>),
    /// Stop.
    Detach,
    /// Nothing yet.
    None,
    /// Nothing any more.
    End,
}

impl Orders {
    /// Reads stdin from now on.
    pub fn listen() -> Orders {
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Orders(lines)
    }

    /// Waits until the lab has somebody begin: the arguments; `None` if nothing comes any more.
    ///
    /// # Errors
    /// The line is no such order.
    pub fn begin(&self) -> Result<Option<Vec<String>>> {
        match self.0.recv().map(|line| order(&line)) {
            Ok(Ok(Order::Attach(arguments))) => Ok(Some(arguments)),
            Ok(Ok(_)) => Err(anyhow!("nothing is attached")),
            Ok(Err(why)) => Err(why),
            Err(_) => Ok(None),
        }
    }

    /// The next one, waited for as long as this.
    ///
    /// # Errors
    /// The line is none.
    pub fn next(&self, wait: Duration) -> Result<Order> {
        match self.0.recv_timeout(wait) {
            Ok(line) => order(&line),
            Err(RecvTimeoutError::Timeout) => Ok(Order::None),
            Err(RecvTimeoutError::Disconnected) => Ok(Order::End),
        }
    }
}

fn order(line: &str) -> Result<Order> {
    match line.split_once(' ').unwrap_or((line, "")) {
        ("attach", arguments) => Ok(Order::Attach(serde_json::from_str(arguments)?)),
        ("detach", "") => Ok(Order::Detach),
        _ => Err(anyhow!("{line:?} is neither `attach ARGUMENTS` nor `detach`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_lines() {
        let arguments = vec!["--slice-us".to_string(), "100".into()];
        assert_eq!(order(r#"attach ["--slice-us","100"]"#).unwrap(), Order::Attach(arguments));
        assert_eq!(order("detach").unwrap(), Order::Detach);
        for wrong in ["", "attach", "attach x", "detach now", "leave"] {
            assert!(order(wrong).is_err(), "{wrong}");
        }
    }
}
