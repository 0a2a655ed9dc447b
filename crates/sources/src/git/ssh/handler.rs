//! What is answered to a server that says something by itself: whether its key is the right one, and nothing to all else.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use russh::client::{ChannelOpenHandle, Handler, Msg, Session};
use russh::keys::PublicKeyOrCertificate;
use russh::{Channel, ChannelId};

use super::known_hosts::{Distrust, Trust};

/// Judges the host's key.
pub(super) struct Judge {
    trust: Trust,
    distrust: Arc<Mutex<Option<Distrust>>>,
}

/// Why the host was not trusted, if that is so.
#[derive(Clone, Default)]
pub(super) struct Verdict(Arc<Mutex<Option<Distrust>>>);

impl Verdict {
    pub(super) fn take(&self) -> Option<Distrust> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Judge {
    pub(super) fn new(trust: Trust, verdict: &Verdict) -> Self {
        Self { trust, distrust: Arc::clone(&verdict.0) }
    }
}

impl Handler for Judge {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        let judged = match shown {
            PublicKeyOrCertificate::PublicKey { key, .. } => self.trust.check_key(key),
            PublicKeyOrCertificate::Certificate(certificate) => {
                // A clock that is before 1970 finds no certificate valid.
                let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
                self.trust.check_certificate(certificate, now)
            }
        };
        match judged {
            Ok(()) => Ok(true),
            Err(distrust) => {
                *self.distrust.lock().unwrap_or_else(PoisonError::into_inner) = Some(distrust);
                Ok(false)
            }
        }
    }

    // A server has nothing to open here. What is dropped is refused.

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        _channel: Channel<Msg>,
        _connected_address: &str,
        _connected_port: u32,
        _originator_address: &str,
        _originator_port: u32,
        _reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _channel: Channel<Msg>,
        _socket_path: &str,
        _reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        _channel: Channel<Msg>,
        _reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn should_accept_unknown_server_channel(&mut self, _id: ChannelId, _channel_type: &str) -> bool {
        false
    }

    async fn server_channel_open_session(
        &mut self,
        _channel: Channel<Msg>,
        _reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _channel: Channel<Msg>,
        _host_to_connect: &str,
        _port_to_connect: u32,
        _originator_address: &str,
        _originator_port: u32,
        _reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _channel: Channel<Msg>,
        _socket_path: &str,
        _reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_x11(
        &mut self,
        _channel: Channel<Msg>,
        _originator_address: &str,
        _originator_port: u32,
        _reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }
}
