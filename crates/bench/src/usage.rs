//! CPU time and memory of a process, from `/proc`.

use std::fs;
use std::io;
use std::time::Duration;

/// The unit of CPU times in `/proc/<pid>/stat` (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

/// CPU time and memory of a process since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// CPU time of all threads.
    pub cpu: Duration,
    /// Peak resident memory.
    pub peak_bytes: u64,
    /// Current anonymous memory, without mapped files, which the kernel can reclaim.
    pub own_bytes: u64,
}

impl Usage {
    /// The usage of a process.
    pub fn of(pid: u32) -> io::Result<Self> {
        Self::read(&pid.to_string())
    }

    /// The usage of this process; `None` without `/proc`.
    pub fn own() -> Option<Self> {
        Self::read("self").ok()
    }

    /// The sum of two processes.
    pub fn and(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            peak_bytes: self.peak_bytes + other.peak_bytes,
            own_bytes: self.own_bytes + other.own_bytes,
        }
    }

    fn read(process: &str) -> io::Result<Self> {
        let malformed = |name: &str| io::Error::other(format!("/proc/{process}/{name} has an unknown format"));
        let cpu = cpu_time(&fs::read_to_string(format!("/proc/{process}/stat"))?).ok_or_else(|| malformed("stat"))?;
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let memory = |name| memory(&status, name).ok_or_else(|| malformed("status"));
        Ok(Self { cpu, peak_bytes: memory("VmHWM:")?, own_bytes: memory("RssAnon:")? })
    }
}

/// User and system time in the text of `stat`. The second field is a name in parentheses with arbitrary characters, so
/// fields are counted after its end.
fn cpu_time(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut times = fields.split_ascii_whitespace().skip(11).map(str::parse::<u32>);
    let (user, system) = (times.next()?.ok()?, times.next()?.ok()?);
    Some(TICK * user + TICK * system)
}

/// A size in the text of `status`.
fn memory(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes = line.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::{Usage, cpu_time, memory};
    use std::time::Duration;

    #[test]
    fn cpu_time_is_found_after_any_process_name() {
        let stat = "42 (odd) name (x) S 1 42 42 0 -1 4194560 1 0 0 0 150 25 7 8 20 0 9 0 100 0 0";
        assert_eq!(cpu_time(stat), Some(Duration::from_millis(1750)));
        assert_eq!(cpu_time("42 (short) S 1"), None);
        assert_eq!(cpu_time(""), None);
    }

    #[test]
    fn memory_is_in_kibibytes() {
        let status = "Name:\ts3o\nVmHWM:\t   20480 kB\nRssAnon:\t 1 kB\n";
        assert_eq!((memory(status, "VmHWM:"), memory(status, "RssAnon:")), (Some(20 << 20), Some(1 << 10)));
        assert_eq!(memory("Name:\tkthreadd\n", "VmHWM:"), None);
    }

    #[test]
    fn missing_process_is_an_error() {
        assert!(Usage::of(u32::MAX).is_err());
    }
}
