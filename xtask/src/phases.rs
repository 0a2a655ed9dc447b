//! How long each part of a chore took.

use std::time::Instant;

use anyhow::Result;

use crate::process::Runner;

/// What took how long.
#[derive(Default)]
pub(crate) struct Phases {
    seconds: Vec<(String, f64)>,
}

impl Phases {
    /// Does a part of the work and notes its time.
    pub(crate) fn time<T>(
        &mut self,
        runner: &Runner,
        name: &str,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        runner.say(name);
        let begin = Instant::now();
        let result = work();
        self.seconds.push((name.to_owned(), begin.elapsed().as_secs_f64()));
        result
    }

    /// Tells all of it.
    pub(crate) fn print(&self) {
        for (name, seconds) in &self.seconds {
            eprintln!("{seconds:8.1} s  {name}");
        }
    }
}
