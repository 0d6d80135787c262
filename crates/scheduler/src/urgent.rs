// SPDX-License-Identifier: GPL-2.0-only
//! Work that must not wait for a CPU.

use std::io;

/// Runs `work` ahead of all ordinary tasks, as SCHED_FIFO.
///
/// The thread that enables a sched_ext scheduler takes all tasks from the kernel's own class to sched_ext's one by one,
/// itself among the first, and the kernel's own goes before sched_ext's wherever both have work. So on a host that is busy
/// enough it never gets a CPU again: it has to share with those that it has yet to take over. A soak met this with two
/// vCPUs per CPU and one of two CPUs offline: four vCPUs had not been taken over, they had the CPU for minutes, and the
/// watchdog's way out waited for the lock that the loader held.
pub(crate) fn urgently<T>(work: impl FnOnce() -> T) -> T {
    let _urgent = Urgent::begin();
    work()
}

/// This thread goes ahead of all ordinary tasks until this is dropped, in the same thread.
pub struct Urgent(Class);

impl Urgent {
    /// None if it does so anyway, or may not.
    pub fn begin() -> Option<Urgent> {
        let before = Class::of_this_thread().ok().filter(Class::is_ordinary)?;
        let fifo = Class {
            policy: libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK,
            param: libc::sched_param { sched_priority: 1 },
        };
        fifo.take().inspect_err(|why| log::warn!("cannot go ahead of other tasks: {why}")).ok()?;
        Some(Urgent(before))
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        if let Err(why) = self.0.take() {
            log::warn!("cannot leave SCHED_FIFO: {why}");
        }
    }
}

/// How a thread is scheduled.
struct Class {
    policy: i32,
    param: libc::sched_param,
}

impl Class {
    fn of_this_thread() -> io::Result<Class> {
        let mut param = libc::sched_param { sched_priority: 0 };
        // SAFETY: 0 is this thread, and the structure lives.
        let policy = unsafe { libc::sched_getscheduler(0) };
        // SAFETY: as above.
        if policy < 0 || unsafe { libc::sched_getparam(0, &mut param) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Class { policy, param })
    }

    /// Neither real-time nor deadline.
    fn is_ordinary(&self) -> bool {
        let policy = self.policy & !libc::SCHED_RESET_ON_FORK;
        [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].contains(&policy)
    }

    fn take(&self) -> io::Result<()> {
        // SAFETY: 0 is this thread, and the structure lives.
        match unsafe { libc::sched_setscheduler(0, self.policy, &self.param) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn afterwards_all_is_as_before() {
        let before = Class::of_this_thread().unwrap().policy;
        assert_eq!(urgently(|| urgently(|| 7)), 7);
        assert_eq!(Class::of_this_thread().unwrap().policy, before);
    }
}
