//! An object's health in words, for a line that people read while they wait: `2 of 3 updated` for kstatus' `Updated: 2/3`.

use crate::{Health, Status};

/// What is counted, as kstatus calls it, and in words.
const COUNTED: [(&str, &str); 7] = [
    ("Replicas", "created"),
    ("Updated", "updated"),
    ("Available", "available"),
    ("Ready", "ready"),
    ("Current", "current"),
    ("Labelled", "labelled"),
    ("Scheduled", "scheduled"),
];

impl Health {
    /// The same in words. What is not known to be a count stays as it is.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self.status {
            Status::NotFound => "it is not there".to_owned(),
            Status::Terminating => "it is being deleted".to_owned(),
            _ if self.message.is_empty() => self.status.as_str().to_owned(),
            _ => counted(&self.message).unwrap_or_else(|| self.message.clone()),
        }
    }
}

fn counted(message: &str) -> Option<String> {
    let (what, counts) = message.split_once(": ")?;
    if what == "Pending termination" {
        let old: u64 = counts.parse().ok()?;
        return Some(format!("{old} of the old ones still to end"));
    }
    let (_, word) = COUNTED.iter().find(|(name, _)| *name == what)?;
    let (have, wanted) = counts.split_once('/')?;
    let (have, wanted): (i64, i64) = (have.parse().ok()?, wanted.parse().ok()?);
    Some(format!("{have} of {wanted} {word}"))
}

#[cfg(test)]
mod tests {
    use crate::{Health, Status};

    #[test]
    fn counts_are_said_in_words_and_all_else_stays() {
        for (message, words) in [
            ("Updated: 2/3", "2 of 3 updated"),
            ("Replicas: 0/1", "0 of 1 created"),
            ("Ready: 1/3", "1 of 3 ready"),
            ("Pending termination: 2", "2 of the old ones still to end"),
            ("Generation: observed 1, latest 2", "Generation: observed 1, latest 2"),
            ("Ready: maybe/3", "Ready: maybe/3"),
            ("Pod is in the Pending phase", "Pod is in the Pending phase"),
            ("", "InProgress"),
        ] {
            assert_eq!(Health::in_progress(message).in_words(), words);
        }
        assert_eq!(Health::not_found().in_words(), "it is not there");
        let leaving = Health { status: Status::Terminating, message: "scheduled".to_owned() };
        assert_eq!(leaving.in_words(), "it is being deleted");
    }
}
