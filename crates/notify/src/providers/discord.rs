//! `discord`: its webhooks take what Slack's take, at another path.

use super::slack;
use crate::event::Event;
use crate::request::Request;
use crate::target::{Target, Unsendable};

/// Characters of the message: an embed has 4,096 at most, and 6,000 with its fields.
const MESSAGE: usize = 3_000;
/// Characters of all fields beside it.
const FIELDS: usize = 2_500;

pub(super) fn request(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    let mut url = target.url()?;
    if !url.path().ends_with("/slack") {
        let path = format!("{}/slack", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    let mut message = slack::attachment(event, MESSAGE, ["good", "danger"]);
    message["username"] = slack::username(target, event).into();
    if let Some(fields) = message["attachments"][0]["fields"].as_array_mut() {
        let mut left = FIELDS;
        fields.retain(|field| {
            let length =
                field["title"].as_str().map_or(0, str::len) + field["value"].as_str().map_or(0, str::len);
            left.checked_sub(length).inspect(|rest| left = *rest).is_some()
        });
    }
    Ok(Request::json(url, &message))
}
