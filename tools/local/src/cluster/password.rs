//! The password of SQL clients: the cluster's secret, or else one that is made once and kept with the
//! cluster's files. And the token of operators, which is always such a one.

use super::options::ClusterOptions;
use crate::error::LocalError;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file's name. Only its owner can read it.
const PASSWORD_FILE: &str = "sql.password";
/// The name of the file with the token that operators give to the web page. Only its owner can read it, too.
pub(crate) const TOKEN_FILE: &str = "operator.token";
/// The variable with the cluster's secret.
const SECRET: &str = "UNDERSTUDY_SECRET";
/// Digits of a password: five bits each, and none that is taken for another.
const DIGITS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// The cluster's secret, as its processes get it.
pub(super) fn secret(options: &ClusterOptions) -> Option<String> {
    let own = options.env.iter().find(|(name, _)| name == SECRET).map(|(_, value)| value.clone());
    own.or_else(crate::secret).filter(|secret| !secret.is_empty())
}

/// The file with the password, made if there is none. `None`: the secret is the password.
pub(super) fn keep(options: &ClusterOptions) -> Result<Option<PathBuf>, LocalError> {
    if secret(options).is_some() {
        return Ok(None);
    }
    kept(options, PASSWORD_FILE).map(Some)
}

/// The file with the operators' token, made if there is none.
pub(super) fn keep_token(options: &ClusterOptions) -> Result<PathBuf, LocalError> {
    kept(options, TOKEN_FILE)
}

fn kept(options: &ClusterOptions, name: &str) -> Result<PathBuf, LocalError> {
    let path = options.dir.join(name);
    if !path.exists() {
        make(&path).map_err(LocalError::io(&path))?;
    }
    Ok(path)
}

/// Whole or not at all: a file that is there is a password.
fn make(path: &Path) -> std::io::Result<()> {
    let mut random = [0u8; 20];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let password: String = random.iter().map(|byte| char::from(DIGITS[usize::from(byte % 32)])).collect();
    let temporary = path.with_extension("new");
    // What an interrupted start has left may have other rights.
    let _ = fs::remove_file(&temporary);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    writeln!(file, "{password}")?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}

/// The password in a file.
pub(super) fn read(path: &Path) -> Result<String, LocalError> {
    let text = fs::read_to_string(path).map_err(LocalError::io(path))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_string())
}

/// The password of the SQL clients of the cluster in this directory: the secret of this process's
/// environment, or what is in the cluster's file.
pub(super) fn of(dir: &Path) -> Result<Option<String>, LocalError> {
    let secret = crate::secret().filter(|secret| !secret.is_empty());
    let path = dir.join(PASSWORD_FILE);
    match secret {
        None if path.exists() => read(&path).map(Some),
        secret => Ok(secret),
    }
}

/// A URL with all addresses, as libpq and pgjdbc take it.
pub(super) fn url(addresses: &[String], password: Option<&str>) -> String {
    let password = password.map(|password| format!(":{}", escaped(password))).unwrap_or_default();
    let user = node::SQL_USER;
    format!("postgres://{user}{password}@{}/{}", addresses.join(","), node::SQL_DATABASE)
}

/// What may not stand in a URL as it is.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let each = text
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_password_is_made_once_and_read_by_its_owner_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut options = ClusterOptions::new(dir.path());
        let path = keep(&options).expect("made").expect("no secret");
        let password = read(&path).expect("read");
        assert_eq!(password.len(), 20);
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(keep(&options).expect("kept"), Some(path.clone()));
        assert_eq!(read(&path).expect("read"), password);
        options.env.push((SECRET.into(), "p@ss word".into()));
        assert_eq!(keep(&options).expect("the secret"), None);
        let addresses = ["127.0.0.1:1".to_string(), "127.0.0.1:2".to_string()];
        assert_eq!(
            url(&addresses, secret(&options).as_deref()),
            "postgres://understudy:p%40ss%20word@127.0.0.1:1,127.0.0.1:2/understudy"
        );
    }
}
