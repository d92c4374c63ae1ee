//! Commands about the connection itself: AUTH, HELLO, CLIENT, RESET.

use bytes::Bytes;

use super::{Client, Protocol, Reply, Words};
use crate::{
    port::same,
    resp::{
        about,
        ask::lower,
        frame::keep,
        number::integer,
        table::{fits, wrong_number},
    },
};

const NO_PASSWORD: &str = "AUTH <password> called without any password configured for the default user. \
                           Are you sure your configuration is correct?";
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const AUTH_FIRST: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
                          AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                          version at the same time";

impl Client {
    pub(super) async fn auth(&mut self, words: &Words) {
        let reply = match words.as_slice() {
            [_, _] if self.shared.secret.is_none() => Reply::error(NO_PASSWORD),
            [_, password] => self.authenticate(b"default", password),
            [_, user, password] => self.authenticate(user, password),
            _ => Reply::error("syntax error"),
        };
        self.say(reply);
    }

    /// Checks the password of the only user, `default`.
    fn authenticate(&mut self, user: &[u8], password: &[u8]) -> Reply {
        let right = self.shared.secret.as_ref().is_none_or(|secret| same(password, secret));
        if user != b"default" || !right {
            return Reply::Error(WRONG_PASSWORD.into());
        }
        self.trust(true);
        Reply::OK
    }

    pub(super) async fn hello(&mut self, words: &Words) {
        // Earlier answers must still be sent in the previous protocol version.
        self.flush().await;
        let reply = match self.greet(words) {
            Ok(()) => about::hello(self.id, self.protocol),
            Err(error) => error,
        };
        self.say(reply);
    }

    /// Applies the options of HELLO. If one of them is invalid, only an AUTH before it takes effect.
    fn greet(&mut self, words: &Words) -> Result<(), Reply> {
        let protocol = match words.get(1).map(|version| integer(version)) {
            None => self.protocol,
            Some(Some(2)) => Protocol::Two,
            Some(Some(3)) => Protocol::Three,
            Some(Some(_)) => return Err(Reply::Error("NOPROTO unsupported protocol version".into())),
            Some(None) => return Err(Reply::error("Protocol version is not an integer or out of range")),
        };
        let (mut name, mut rest) = (None, words.get(2..).unwrap_or_default());
        while let [option, more @ ..] = rest {
            rest = match (lower(option).as_str(), more) {
                ("auth", [user, password, rest @ ..]) => match self.authenticate(user, password) {
                    Reply::Error(text) => return Err(Reply::Error(text)),
                    _ => rest,
                },
                ("setname", [given, rest @ ..]) => {
                    name = Some(checked(given)?);
                    rest
                }
                (_, _) => {
                    let shown = String::from_utf8_lossy(option);
                    return Err(Reply::error(format_args!("Syntax error in HELLO option '{shown}'")));
                }
            };
        }
        if !self.trusted {
            return Err(Reply::Error(AUTH_FIRST.into()));
        }
        self.protocol = protocol;
        if let Some(name) = name {
            self.name = name;
        }
        Ok(())
    }

    pub(super) fn client(&mut self, words: &Words) {
        let reply = match self.client_part(words) {
            Ok(reply) | Err(reply) => reply,
        };
        self.say(reply);
    }

    fn client_part(&mut self, words: &Words) -> Result<Reply, Reply> {
        let part = lower(&words[1]);
        let arity = match part.as_str() {
            "id" | "getname" => 2,
            "setname" => 3,
            "setinfo" => 4,
            _ => return Err(about::unknown_part(words, "CLIENT")),
        };
        if !fits(arity, words.len()) {
            return Err(wrong_number(&format!("client|{part}")));
        }
        Ok(match part.as_str() {
            "id" => Reply::Number(i64::try_from(self.id).unwrap_or(i64::MAX)),
            "getname" => Reply::found(self.name.clone()),
            "setname" => {
                self.name = checked(&words[2])?;
                Reply::OK
            }
            // Clients send the name and version of their library: accepted, but not used.
            _ => match lower(&words[2]).as_str() {
                "lib-name" | "lib-ver" => Reply::OK,
                other => return Err(Reply::error(format_args!("Unrecognized option '{other}'"))),
            },
        })
    }

    pub(super) async fn reset(&mut self) {
        self.flush().await;
        self.transaction = None;
        self.watched.clear();
        (self.name, self.protocol) = (None, Protocol::Two);
        self.trust(self.shared.secret.is_none());
        self.say(Reply::Word("RESET"));
    }
}

/// Checks that a name is printable; an empty one becomes `None`.
fn checked(name: &Bytes) -> Result<Option<Bytes>, Reply> {
    if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        Ok((!name.is_empty()).then(|| keep(name)))
    } else {
        Err(Reply::error("Client names cannot contain spaces, newlines or special characters."))
    }
}
