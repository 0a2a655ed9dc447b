//! Numbers and acknowledgements of a session's messages. Pure.

/// Why a message's numbers are not as agreed: the session cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A message is missing, or came twice.
    #[error("message {got} arrived where {wanted} was expected")]
    Gap {
        /// Which was next.
        wanted: u64,
        /// Which came.
        got: u64,
    },
    /// Something was acknowledged that was never sent.
    #[error("message {got} was acknowledged, but only {sent} were sent")]
    Acknowledged {
        /// Up to which.
        got: u64,
        /// How many were sent.
        sent: u64,
    },
}

/// One side's counts.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    sent: u64,
    received: u64,
}

impl Counts {
    /// `seq` and `ack` of the next message. Everything received has taken effect: it is handled before the next one
    /// is read.
    pub fn stamp(&mut self) -> (u64, u64) {
        self.sent += 1;
        (self.sent, self.received)
    }

    /// Takes in the numbers of a message that came.
    ///
    /// # Errors
    /// [`FrameError`] where they do not follow.
    pub fn receive(&mut self, seq: u64, ack: u64) -> Result<(), FrameError> {
        if ack > self.sent {
            return Err(FrameError::Acknowledged { got: ack, sent: self.sent });
        }
        let wanted = self.received + 1;
        if seq != wanted {
            return Err(FrameError::Gap { wanted, got: seq });
        }
        self.received = seq;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Counts, FrameError};

    #[test]
    fn gaps_and_impossible_acknowledgements_are_found() {
        let mut counts = Counts::default();
        assert_eq!(counts.stamp(), (1, 0));
        assert_eq!(counts.receive(1, 1), Ok(()));
        assert_eq!(counts.stamp(), (2, 1));
        assert_eq!(counts.receive(3, 1), Err(FrameError::Gap { wanted: 2, got: 3 }));
        assert_eq!(counts.receive(1, 1), Err(FrameError::Gap { wanted: 2, got: 1 }));
        assert_eq!(counts.receive(2, 3), Err(FrameError::Acknowledged { got: 3, sent: 2 }));
        assert_eq!(counts.receive(2, 2), Ok(()));
    }
}
