//! Where the door is: `postgres://user:password@host:port,host:port/database?sslmode=require`, as libpq takes
//! it.

use std::path::PathBuf;

/// The port where none is named: a node's default.
const PORT: u16 = 7405;

/// How the connection is protected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Encryption {
    /// `disable`.
    Never,
    /// `prefer`: if the node can; nobody's certificate is looked at.
    IfPossible,
    /// `require`: or not at all; nobody's certificate is looked at.
    Always,
    /// `verify-full`: the certificate must be for this host and signed by one in `sslrootcert`.
    Verified(PathBuf),
}

/// A door.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// `host:port`, tried one after the other.
    pub hosts: Vec<String>,
    /// The user.
    pub user: String,
    /// Its password, if the URL has one.
    pub password: Option<String>,
    /// The database.
    pub database: String,
    /// How it is protected.
    pub encryption: Encryption,
}

impl Place {
    /// Reads a URL. The error is a sentence.
    pub fn parse(url: &str) -> Result<Place, String> {
        let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
        let rest = rest.ok_or("a URL of the door begins with postgres://")?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(plain(password)?)),
            None => (login, None),
        };
        let or_ours = |text: String| if text.is_empty() { "understudy".to_string() } else { text };
        let hosts: Vec<String> = hosts.split(',').filter(|host| !host.is_empty()).map(host).collect();
        if hosts.is_empty() {
            return Err("the URL names no host".into());
        }
        Ok(Place {
            hosts,
            user: or_ours(plain(user)?),
            password,
            database: or_ours(plain(database)?),
            encryption: encryption(query)?,
        })
    }
}

/// A host with its port; an IPv6 address stands in brackets.
fn host(text: &str) -> String {
    let has_port = match text.rfind(']') {
        Some(end) => text[end..].contains(':'),
        None => text.contains(':'),
    };
    if has_port { text.to_string() } else { format!("{text}:{PORT}") }
}

fn encryption(query: &str) -> Result<Encryption, String> {
    let (mut mode, mut root) = ("prefer".to_string(), None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "sslmode" => mode = plain(value)?,
            "sslrootcert" => root = Some(PathBuf::from(plain(value)?)),
            // Those mean something to other clients, and nothing here.
            "target_session_attrs" | "application_name" | "connect_timeout" | "load_balance_hosts" => {}
            other => return Err(format!("the URL has `{other}`; sslmode and sslrootcert are known")),
        }
    }
    match (mode.as_str(), root) {
        ("disable", _) => Ok(Encryption::Never),
        ("allow" | "prefer", _) => Ok(Encryption::IfPossible),
        ("require", None) => Ok(Encryption::Always),
        // As libpq does: whoever names a root wants it looked at.
        ("require" | "verify-full", Some(root)) => Ok(Encryption::Verified(root)),
        ("verify-full", None) => Err("sslmode=verify-full needs sslrootcert=FILE".into()),
        (other, _) => Err(format!("sslmode `{other}` is not among disable, prefer, require and verify-full")),
    }
}

/// Text with its %XX resolved.
fn plain(text: &str) -> Result<String, String> {
    let wrong = || format!("`{text}` has a % without two hexadecimal digits, or is not UTF-8");
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok()).ok_or_else(wrong)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_as_libpq_reads_them() {
        let place =
            Place::parse("postgres://me:p%40ss%20word@a:1,[::1]:2,b/db?sslmode=require").expect("good");
        assert_eq!(place.hosts, ["a:1", "[::1]:2", "b:7405"]);
        assert_eq!((place.user.as_str(), place.password.as_deref()), ("me", Some("p@ss word")));
        assert_eq!((place.database.as_str(), place.encryption), ("db", Encryption::Always));
        let short = Place::parse("postgresql://127.0.0.1:9").expect("good");
        assert_eq!((short.user.as_str(), short.database.as_str()), ("understudy", "understudy"));
        assert_eq!((short.password, short.encryption), (None, Encryption::IfPossible));
        let full =
            Place::parse("postgres://h/?sslmode=verify-full&sslrootcert=%2Ftmp%2Fca.pem").expect("good");
        assert_eq!(full.encryption, Encryption::Verified("/tmp/ca.pem".into()));
    }

    #[test]
    fn a_wrong_url_is_a_sentence() {
        for wrong in [
            "mysql://h/d",
            "postgres://",
            "postgres://u:%zz@h/",
            "postgres://u:%ff@h/",
            "postgres://h/?sslmode=maybe",
            "postgres://h/?sslmode=verify-full",
            "postgres://h/?color=red",
            "h",
        ] {
            assert!(Place::parse(wrong).is_err(), "{wrong}");
        }
    }
}
