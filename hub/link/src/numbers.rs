//! The numbers of a session's messages on the hub's side. Messages are handled side by side, so they take effect in any
//! order; acknowledged is the highest number up to which all have.

use std::collections::BTreeSet;

/// One session's counts.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    sent: u64,
    received: u64,
    done: u64,
    done_ahead: BTreeSet<u64>,
    acknowledged: u64,
}

impl Numbers {
    /// `seq` and `ack` of the next message to be sent.
    pub(crate) fn stamp(&mut self) -> (u64, u64) {
        self.sent += 1;
        self.acknowledged = self.done;
        (self.sent, self.done)
    }

    /// `seq` of the message that was sent last.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Takes in the numbers of a message; the error says how they break the protocol.
    pub(crate) fn receive(&mut self, seq: u64, ack: u64) -> Result<(), String> {
        if ack > self.sent {
            return Err(format!("message {ack} was acknowledged, but only {} were sent", self.sent));
        }
        if seq != self.received + 1 {
            return Err(format!("message {seq} arrived where {} was expected", self.received + 1));
        }
        self.received = seq;
        Ok(())
    }

    /// The message `seq` has taken effect.
    pub(crate) fn done(&mut self, seq: u64) {
        self.done_ahead.insert(seq);
        while self.done_ahead.remove(&(self.done + 1)) {
            self.done += 1;
        }
    }

    /// Whether more has taken effect than the other side was told.
    pub(crate) fn owes_ack(&self) -> bool {
        self.done > self.acknowledged
    }
}

#[cfg(test)]
mod tests {
    use super::Numbers;

    #[test]
    fn acknowledged_is_what_took_effect_without_a_gap() {
        let mut numbers = Numbers::default();
        for seq in 1..=3 {
            numbers.receive(seq, 0).unwrap();
        }
        numbers.done(2);
        assert!(!numbers.owes_ack());
        assert_eq!(numbers.stamp(), (1, 0));
        numbers.done(1);
        assert!(numbers.owes_ack());
        assert_eq!(numbers.stamp(), (2, 2));
        numbers.done(3);
        assert_eq!(numbers.stamp(), (3, 3));
        assert!(!numbers.owes_ack());
    }

    #[test]
    fn gaps_repeats_and_impossible_acknowledgements_are_refused() {
        let mut numbers = Numbers::default();
        assert!(numbers.receive(2, 0).is_err());
        assert!(numbers.receive(1, 1).is_err());
        numbers.receive(1, 0).unwrap();
        assert!(numbers.receive(1, 0).is_err());
    }
}
