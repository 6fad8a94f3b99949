//! Clients of a node's SQL gateway, by PostgreSQL's protocol.

use super::{Cluster, LONG};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A client of the SQL gateway, by PostgreSQL's protocol.
pub struct Psql(TcpStream);

impl Psql {
    /// In this database, by way of this node, once that has heard of it.
    pub fn connect(cluster: &Cluster, number: u32, database: &str) -> Psql {
        let address = &cluster.node(number).ports().listen["sql"];
        let deadline = Instant::now() + LONG;
        loop {
            match Psql::begun(address, database) {
                Ok(psql) => return psql,
                Err(why) => assert!(Instant::now() < deadline, "{why}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn begun(address: &str, database: &str) -> Result<Psql, String> {
        let stream = TcpStream::connect(address).expect("connects");
        stream.set_read_timeout(Some(LONG)).expect("a timeout");
        let mut psql = Psql(stream);
        let mut startup = 196_608u32.to_be_bytes().to_vec();
        for word in ["user", understudy_node::SQL_USER, "database", database, ""] {
            startup.extend_from_slice(word.as_bytes());
            startup.push(0);
        }
        psql.0.write_all(&(startup.len() as u32 + 4).to_be_bytes()).expect("writes");
        psql.0.write_all(&startup).expect("writes");
        psql.hear()?;
        Ok(psql)
    }

    /// What the connection ends with, of which it says so.
    pub fn ended(&mut self) -> String {
        self.hear().expect_err("it ends")
    }

    /// The rows of a statement, of one column; the error is what it is refused with.
    pub fn say(&mut self, text: &str) -> Result<Vec<String>, String> {
        let mut query = vec![b'Q'];
        query.extend_from_slice(&(text.len() as u32 + 5).to_be_bytes());
        query.extend_from_slice(text.as_bytes());
        query.push(0);
        self.0.write_all(&query).expect("writes");
        self.hear()
    }

    fn hear(&mut self) -> Result<Vec<String>, String> {
        let (mut rows, mut refused) = (Vec::new(), None);
        loop {
            let mut head = [0; 5];
            if let Err(error) = self.0.read_exact(&mut head) {
                return Err(refused.unwrap_or_else(|| error.to_string()));
            }
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            let mut body = vec![0; length - 4];
            self.0.read_exact(&mut body).expect("all of it");
            match head[0] {
                // Two bytes say how many columns there are, and four how long the first one is.
                b'D' => rows.push(String::from_utf8_lossy(&body[6..]).into_owned()),
                b'E' => refused = Some(String::from_utf8_lossy(&body).into_owned()),
                b'Z' => return refused.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }
}
