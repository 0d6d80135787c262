// SPDX-License-Identifier: GPL-2.0-only
//! `overbook top`: what VMs do and wait for, live. Works without the scheduler, and changes nothing.

use anyhow::{Context, Result, bail};
use clap::Args;
use overbook_cli::values::{duration, number};
use overbook_observe::ready::Level;
use overbook_observe::report::{count, known, short};
use overbook_observe::snapshot::read_recording;
use overbook_observe::window::{VcpuRow, VmRow, falling, percent};
use overbook_observe::{Observer, Snapshot, Window};
use overbook_report::format::{NONE, fixed};
use overbook_vms::names::{Identity, Stack};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Paragraph, Row, Table, TableState};
use ratatui::{DefaultTerminal, Frame};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct Top {
    /// Seconds between two refreshes
    #[arg(long, short, default_value_t = 1.0, value_parser = overbook_cli::values::seconds)]
    interval: f64,
    /// Play a recording of `overbook report --record`, instead of this host
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    #[command(flatten)]
    gap: SpinGap,
}

/// What a spin is.
#[derive(Args)]
pub struct SpinGap {
    /// PAUSE exits no further apart than this are one spin, in µs (an emulated CPU is slower)
    #[arg(long, hide = true, default_value_t = 20, value_parser = number(1u64, 1_000_000))]
    spin_gap_us: u64,
}

impl SpinGap {
    /// Starts to look.
    pub fn observer(&self) -> Observer {
        Observer::new(Duration::from_micros(self.spin_gap_us))
    }
}

/// How often it looks whether it was told to end, at least.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// Where snapshots come from.
enum Source {
    Host(Box<Observer>),
    Recording(std::vec::IntoIter<Snapshot>),
}

impl Source {
    fn next(&mut self) -> Result<Option<Snapshot>> {
        match self {
            Source::Host(observer) => observer.snapshot().map(Some),
            Source::Recording(snapshots) => Ok(snapshots.next()),
        }
    }
}

impl Top {
    pub fn run(self) -> Result<()> {
        let interval = duration(self.interval);
        let mut source = match &self.from {
            Some(file) => Source::Recording(read_recording(file)?.into_iter()),
            None => Source::Host(Box::new(self.gap.observer())),
        };
        if !std::io::stdout().is_terminal() {
            bail!("this is no terminal: `overbook report` prints the same as text or JSON");
        }
        // Whoever ends it has a terminal that is as it was.
        let stop = crate::host::stop_at_signals()?;
        let before = source
            .next()?
            .context("the recording has no snapshot: record with `overbook report --record`")?;
        let mut view = View { window: Window::between(&before, &before), last: before, ..View::default() };
        let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
        let outcome = view.run(&mut terminal, &mut source, interval, &stop);
        ratatui::restore();
        outcome
    }
}

/// What is shown.
#[derive(Default)]
struct View {
    window: Window,
    last: Snapshot,
    table: TableState,
    /// Process of the VM that is looked into.
    inside: Option<i32>,
    order: Order,
    over: bool,
}

/// What VMs are sorted by.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Order {
    #[default]
    Burnt,
    Run,
    Ready,
    Name,
}

impl Order {
    fn next(self) -> Order {
        match self {
            Order::Burnt => Order::Run,
            Order::Run => Order::Ready,
            Order::Ready => Order::Name,
            Order::Name => Order::Burnt,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Order::Burnt => "burnt",
            Order::Run => "run",
            Order::Ready => "ready",
            Order::Name => "name",
        }
    }
}

impl View {
    fn run(
        &mut self,
        terminal: &mut DefaultTerminal,
        source: &mut Source,
        interval: Duration,
        stop: &AtomicBool,
    ) -> Result<()> {
        let mut due = Instant::now() + interval.min(Duration::from_millis(300));
        loop {
            terminal.draw(|frame| self.draw(frame))?;
            loop {
                let left = due.saturating_duration_since(Instant::now());
                let typed = event::poll(left.min(SIGNALS_EVERY))?;
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                if !typed {
                    if left.is_zero() {
                        break;
                    }
                    continue;
                }
                if let Event::Key(key) = event::read()?
                    && key.kind == KeyEventKind::Press
                    && !self.key(key.code, key.modifiers)
                {
                    return Ok(());
                }
                terminal.draw(|frame| self.draw(frame))?;
            }
            due = Instant::now() + interval;
            match source.next()? {
                Some(now) => {
                    // Where another recording begins, there is no window yet.
                    if now.goes_on_from(&self.last) {
                        self.window = Window::between(&self.last, &now);
                        self.sort();
                    }
                    self.last = now;
                }
                None => self.over = true,
            }
        }
    }

    /// Whether to go on.
    fn key(&mut self, code: KeyCode, modifiers: KeyModifiers) -> bool {
        match code {
            KeyCode::Char('q') => return false,
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.inside = None,
            KeyCode::Enter | KeyCode::Right => self.inside = self.chosen().map(|vm| vm.pid).or(self.inside),
            KeyCode::Char('s') => {
                self.order = self.order.next();
                self.sort();
            }
            KeyCode::Down | KeyCode::Char('j') => self.table.select_next(),
            KeyCode::Up | KeyCode::Char('k') => self.table.select_previous(),
            _ => {}
        }
        true
    }

    fn chosen(&self) -> Option<&VmRow> {
        self.window.vms.get(self.table.selected().unwrap_or(0))
    }

    fn sort(&mut self) {
        let order = self.order;
        self.window.vms.sort_by(|a, b| match order {
            Order::Burnt => falling(a.spin, b.spin),
            Order::Run => b.run.total_cmp(&a.run),
            Order::Ready => b.worst_ready_percent().total_cmp(&a.worst_ready_percent()),
            Order::Name => a.name.cmp(&b.name),
        });
    }

    fn draw(&mut self, frame: &mut Frame) {
        let areas = Layout::vertical([Constraint::Length(3), Constraint::Min(3), Constraint::Length(1)]);
        let [head, body, foot] = areas.areas(frame.area());
        frame.render_widget(Paragraph::new(self.head()), head);
        let inside = self.inside.and_then(|pid| self.window.vms.iter().find(|vm| vm.pid == pid));
        match inside {
            Some(vm) => {
                let parts = Layout::vertical([Constraint::Length(2), Constraint::Min(2)]);
                let [about, rows] = parts.areas(body);
                frame.render_widget(Paragraph::new(about_vm(vm)), about);
                frame.render_widget(vcpu_table(vm), rows);
            }
            None => {
                let table = vm_table(&self.window.vms, self.window.has_classes());
                frame.render_stateful_widget(table, body, &mut self.table);
            }
        }
        let keys = if inside.is_some() { "esc back" } else { "↑↓ choose   enter vCPUs   s sort" };
        let unit =
            format!("run, wait, burnt: CPUs   ready: of the time, mean and worst vCPU   {NONE}: not known");
        frame.render_widget(
            Line::from(format!(" {keys}   q quit   {unit}")).style(Style::new().reversed()),
            foot,
        );
    }

    fn head(&self) -> Text<'static> {
        let window = &self.window;
        let (run, wait) = (window.sum(|vm| vm.run), window.sum(|vm| vm.wait));
        let vcpus: usize = window.vms.iter().map(|vm| vm.vcpus.len()).sum();
        let spins = match window.burnt() {
            None => format!("spins cannot be seen: {}", window.blind.as_deref().unwrap_or_default()),
            Some(burnt) => format!(
                "{} CPUs are burnt in spins ({} % of what VMs get), by {}",
                fixed(burnt, 2),
                fixed(percent(burnt, run), 1),
                self.order.name()
            ),
        };
        let over = if self.over { "; the recording is over" } else { "" };
        Text::from(vec![
            Line::from(format!(
                "overbook top: {} CPUs, scheduled by {}{over}",
                window.cpus, window.scheduler
            ))
            .style(Style::new().add_modifier(Modifier::BOLD)),
            Line::from(format!(
                "{}, {} want {} CPUs and get {}; {} % of what they want is steal",
                count(window.vms.len(), "VM"),
                count(vcpus, "vCPU"),
                fixed(run + wait, 2),
                fixed(run, 2),
                fixed(percent(wait, run + wait), 0)
            )),
            Line::from(spins),
        ])
    }
}

fn header(names: &[&'static str]) -> Row<'static> {
    Row::new(names.to_vec()).style(Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED))
}

/// Place of the column of classes, which is there once a VM has another than normal.
const CLASS: usize = 3;

fn vm_table(vms: &[VmRow], classes: bool) -> Table<'static> {
    let rows = vms.iter().map(|vm| {
        let mut cells = vec![
            short(&vm.name, 20),
            vm.pid.to_string(),
            vm.vcpus.len().to_string(),
            fixed(vm.run, 2),
            fixed(vm.wait, 2),
            format!("{} %", fixed(vm.ready_percent(), 1)),
            format!("{} %", fixed(vm.worst_ready_percent(), 1)),
            known(vm.spin, 2),
            known(vm.spins, 0),
            known(vm.yields, 0),
            vm.yields_ok_percent.map_or(NONE.into(), |ok| format!("{} %", fixed(ok, 0))),
            known(vm.delivered, 0),
        ];
        if classes {
            cells.insert(CLASS, vm.class.clone().unwrap_or(NONE.into()));
        }
        Row::new(cells).style(colour(vm.worst_ready_percent()))
    });
    let mut widths = [20, 8, 5, 7, 7, 8, 8, 7, 9, 9, 6, 10].map(Constraint::Length).to_vec();
    let mut names = vec![
        "VM",
        "pid",
        "vCPUs",
        "run",
        "wait",
        "ready",
        "worst",
        "burnt",
        "spins/s",
        "yields/s",
        "ok",
        "delivered",
    ];
    if classes {
        widths.insert(CLASS, Constraint::Length(7));
        names.insert(CLASS, "class");
    }
    Table::new(rows.collect::<Vec<_>>(), widths)
        .header(header(&names))
        .row_highlight_style(Style::new().reversed())
}

/// By whom, and under which id; nothing is said of what is not known.
fn managed(who: &Identity) -> String {
    match who.stack {
        Stack::Other => String::new(),
        stack if who.id.is_empty() => format!(", {stack}"),
        stack => format!(", {stack} {}", who.id),
    }
}

/// How ready time looks, as the trade judges it.
fn colour(ready_percent: f64) -> Style {
    match Level::of(ready_percent) {
        Level::Good => Style::new(),
        Level::Contended => Style::new().yellow(),
        Level::Bad => Style::new().red(),
    }
}

fn about_vm(vm: &VmRow) -> Text<'static> {
    let tiers: Vec<String> = vm.tiers.iter().map(|(name, rate)| format!("{name} {rate:.0}/s")).collect();
    let tiers = if tiers.is_empty() { "known only to `overbook host`".into() } else { tiers.join("  ") };
    Text::from(vec![
        Line::from(format!(
            "{} [{}]{}{}: runs {} CPUs, waits for {}, burns {}",
            vm.name,
            vm.pid,
            managed(&vm.who),
            vm.class.as_ref().map(|class| format!(", {class}")).unwrap_or_default(),
            fixed(vm.run, 2),
            fixed(vm.wait, 2),
            known(vm.spin, 2)
        )),
        Line::from(format!("picked by tier: {tiers}")),
    ])
}

fn vcpu_table(vm: &VmRow) -> Table<'static> {
    let row = |vcpu: &VcpuRow| {
        Row::new([
            vcpu.id.to_string(),
            fixed(vcpu.run, 2),
            format!("{} %", fixed(vcpu.ready_percent(), 1)),
            known(vcpu.spin, 2),
            known(vcpu.spins, 0),
            known(vcpu.boosts, 0),
        ])
        .style(colour(vcpu.ready_percent()))
    };
    let widths = [6, 7, 8, 7, 9, 9].map(Constraint::Length);
    Table::new(vm.vcpus.iter().map(row).collect::<Vec<_>>(), widths)
        .header(header(&["vCPU", "run", "ready", "burnt", "spins/s", "boosts/s"]))
}
