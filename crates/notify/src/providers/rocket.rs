//! `rocket`: Rocket.Chat.

use super::slack;
use crate::event::Event;
use crate::request::Request;
use crate::target::{Target, Unsendable};

/// Characters of the message: servers take 5,000 where nobody changed that.
const MESSAGE: usize = 5_000;

pub(super) fn request(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    let mut message = slack::attachment(event, MESSAGE, ["#0076D7", "#FF0000"]);
    message["channel"] = target.channel.as_str().into();
    message["username"] = target.username.as_str().into();
    Ok(Request::json(target.url()?, &message))
}
