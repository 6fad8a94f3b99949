//! `understudy backup`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `understudy backup`.
#[derive(Subcommand, Debug)]
pub enum BackupCommand {
    /// Write all tables and databases, as of one point over all partitions, into a directory, while they are
    /// used.
    #[command(after_help = "Examples:
  understudy backup create /backups/monday
  understudy backup create /backups/users --tables users,orders --max-rate 20MB
  understudy backup create /backups/bank --databases bank

Every write that was acknowledged before the command began is in it, and no write without everything that was
acknowledged before it was sent. For the point, acknowledgements wait for some milliseconds; writes go on.")]
    Create(CreateArgs),
    /// Make the tables and databases of a backup and load their rows, in this or another cluster.
    #[command(after_help = "Examples:
  understudy backup restore /backups/monday
  understudy backup restore /backups/monday --tables users --yes
  understudy backup restore /backups/monday --factor 1 --connect 10.0.0.9:7400
  understudy backup restore /backups/monday --databases bank --as bank_monday

The backup is verified before anything is changed. At the end every table is read back and compared by count and
digest. A restoration that was interrupted can be run again with --yes.")]
    Restore(RestoreArgs),
    /// What a backup has, by its manifest; its files are not read.
    #[command(after_help = "Example:
  understudy backup list /backups/monday")]
    List {
        /// Where it is.
        #[arg(value_name = "BACKUP")]
        backup: PathBuf,
    },
    /// Read a whole backup and compare every block, count and digest; exit status 1 on damage.
    #[command(after_help = "Example:
  understudy backup verify /backups/monday")]
    Verify {
        /// Where it is.
        #[arg(value_name = "BACKUP")]
        backup: PathBuf,
    },
}

/// `backup create`.
#[derive(Args, Debug)]
pub struct CreateArgs {
    /// Where it goes: a directory that is empty or does not exist.
    #[arg(value_name = "BACKUP")]
    pub backup: PathBuf,
    /// Only these tables.
    #[arg(long, value_delimiter = ',', value_name = "TABLE,..")]
    pub tables: Vec<String>,
    /// Only these databases; with --tables, these and those tables.
    #[arg(long, value_delimiter = ',', value_name = "DATABASE,..")]
    pub databases: Vec<String>,
    /// The most bytes that are read in a second, as 500KB or 20MB; otherwise as many as come.
    #[arg(long, value_name = "BYTES", default_value = "0", hide_default_value = true, value_parser = bytes)]
    pub max_rate: u64,
}

/// `backup restore`.
#[derive(Args, Debug)]
pub struct RestoreArgs {
    /// Where it is.
    #[arg(value_name = "BACKUP")]
    pub backup: PathBuf,
    /// Only these tables.
    #[arg(long, value_delimiter = ',', value_name = "TABLE,..")]
    pub tables: Vec<String>,
    /// Only these databases; with --tables, these and those tables.
    #[arg(long, value_delimiter = ',', value_name = "DATABASE,..")]
    pub databases: Vec<String>,
    /// Another name for the one database that is restored.
    #[arg(long = "as", value_name = "NAME")]
    pub rename: Option<String>,
    /// Copies of each partition, instead of as many as there were.
    #[arg(long, value_name = "COPIES")]
    pub factor: Option<u8>,
    /// Drop tables and databases that exist, with all their rows.
    #[arg(long)]
    pub yes: bool,
}

/// Reads `500KB`, `20MB`, `1GB`; a number alone is bytes. A kilobyte is 1024 bytes.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| "expected bytes such as 500KB or 20MB".to_string())?;
    let unit = match unit.trim().to_ascii_uppercase().trim_end_matches('B') {
        "" => 0,
        "K" | "KI" => 10,
        "M" | "MI" => 20,
        "G" | "GI" => 30,
        _ => return Err(format!("`{unit}` is no unit of bytes; KB, MB and GB are")),
    };
    number.checked_mul(1 << unit).ok_or_else(|| "that is too much".to_string())
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn units_of_bytes() {
        assert_eq!((bytes("0"), bytes("700"), bytes("2KB")), (Ok(0), Ok(700), Ok(2048)));
        assert_eq!((bytes("20MB"), bytes("1gb"), bytes("3MiB")), (Ok(20 << 20), Ok(1 << 30), Ok(3 << 20)));
        for wrong in ["", "MB", "-1", "1.5MB", "2 years", "99999999999GB"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
