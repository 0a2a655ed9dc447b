//! `generic` and `generic-hmac`: the event as it is.

use aws_lc_rs::hmac;
use data_encoding::HEXLOWER;

use crate::event::Event;
use crate::request::Request;
use crate::target::{Target, Unsendable};

pub(super) fn plain(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    let request =
        Request::json(target.url()?, event).header("gotk-component", event.reporting_controller.as_str());
    let repeat = target.is_repeat.then(|| ("X-Roadstead-Repeat".to_owned(), "true".into()));
    let request = Request { headers: request.headers.into_iter().chain(repeat).collect(), ..request };
    let own = target.headers.iter().cloned();
    Ok(own.fold(request, |request, (name, value)| request.credential(&name, value)))
}

pub(super) fn signed(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    let token = target.needed_token()?;
    let request = plain(target, event)?;
    // Exposed to sign with; what comes of it shows nothing of it.
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.expose().as_bytes());
    let signature = hmac::sign(&key, &request.body);
    let hex = HEXLOWER.encode(signature.as_ref());
    Ok(request.header("X-Signature", format!("sha256={hex}")))
}
