// SPDX-License-Identifier: GPL-2.0-only
//! In which LLC the vCPUs of each VM wait (`policy/home.h`): looked at now and then, from what all have wanted since.

use anyhow::Result;
use overbook_policy::home::Homes;
use overbook_scheduler::Scheduler;
use std::time::{Duration, Instant};

/// How often homes are looked at, before dilation; the first time a fiftieth of it after the load.
const PERIOD: Duration = Duration::from_millis(500);

/// Finds homes, period by period; where there is one LLC, nobody needs one.
pub struct Finder {
    homes: Option<Homes>,
    since: Instant,
    period: Duration,
    due: Duration,
}

impl Finder {
    /// Nobody has a home yet. Times are stretched by `stretch`.
    pub fn new(scheduler: &Scheduler, stretch: f64) -> Finder {
        let llcs = scheduler.llcs();
        let period = PERIOD.mul_f64(stretch);
        let homes = (llcs.len() > 1).then(|| Homes::new(&llcs));
        Finder { homes, since: Instant::now(), period, due: period / 50 }
    }

    /// Does what is due; to be called now and then.
    ///
    /// # Errors
    /// What the scheduler knows cannot be read.
    pub fn look(&mut self, scheduler: &mut Scheduler) -> Result<()> {
        let now = self.since.elapsed();
        let Some(homes) = self.homes.as_mut().filter(|_| now >= self.due) else { return Ok(()) };
        self.due = now + self.period;
        let found = homes.look(now.as_nanos() as u64, &scheduler.residents()?);
        scheduler.house(&found)
    }
}
