//! What a fetch stands on, of whatever kind its source is: where servers' bytes lie until they are read, where they are read, how long that
//! may take, and how it is told of.

mod desk;
mod engine;
mod failure;
mod kept;
mod limit;
mod note;
mod progress;
mod room;
mod scratch;
mod spool;
mod stop;
mod text;

pub use desk::{Desk, Line, MOST_QUESTION};
pub use engine::{Ended, Engine, InProcess};
pub use failure::{AttemptError, TrustedBy};
pub use note::Note;
pub use room::Room;
pub use scratch::{Scratch, sweep_scratch};

pub(crate) use desk::{Answer, AnswerReader, Body, Question, bring, bring_file};
pub(crate) use engine::on_a_thread;
pub(crate) use failure::Limited;
pub(crate) use kept::{Kept, KeptAnswer, NotKept};
pub(crate) use limit::check as check_for_a_limit;
pub(crate) use note::MOST_NOTES;
pub(crate) use progress::Progress;
pub(crate) use spool::Spool;
pub(crate) use stop::Stop;
pub(crate) use text::{chain, one_line, plain, shown_url, untrusted, without_secrets};
