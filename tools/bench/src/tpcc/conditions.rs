//! The consistency conditions (TPC-C 5.11, clause 3.3.2), each as a statement that finds what breaks it.

use super::DISTRICTS;
use crate::error::BenchError;
use crate::peers::session::Session;

/// A condition's number, and a statement that answers no row where it holds.
const CONDITIONS: [(u32, &str); 12] = [
    (
        1,
        "SELECT w.w_id FROM warehouse w JOIN (SELECT w_id, sum(d_ytd) AS ytd FROM district GROUP BY w_id) d ON \
         d.w_id = w.w_id WHERE w.w_ytd <> d.ytd",
    ),
    (
        2,
        "SELECT d.w_id FROM district d JOIN (SELECT w_id, d_id, max(o_id) AS last FROM orders GROUP BY w_id, \
         d_id) o ON o.w_id = d.w_id AND o.d_id = d.d_id WHERE d.d_next_o_id - 1 <> o.last",
    ),
    (
        2,
        "SELECT d.w_id FROM district d JOIN (SELECT w_id, d_id, max(o_id) AS last FROM new_order GROUP BY w_id, \
         d_id) n ON n.w_id = d.w_id AND n.d_id = d.d_id WHERE d.d_next_o_id - 1 <> n.last",
    ),
    (3, "SELECT w_id FROM new_order GROUP BY w_id, d_id HAVING max(o_id) - min(o_id) + 1 <> count(*)"),
    (
        4,
        "SELECT o.w_id FROM (SELECT w_id, d_id, sum(o_ol_cnt) AS lines FROM orders GROUP BY w_id, d_id) o JOIN \
         (SELECT w_id, d_id, count(*) AS lines FROM order_line GROUP BY w_id, d_id) l ON l.w_id = o.w_id AND \
         l.d_id = o.d_id WHERE o.lines <> l.lines",
    ),
    (
        5,
        "SELECT o.w_id FROM orders o LEFT JOIN new_order n ON n.w_id = o.w_id AND n.d_id = o.d_id AND n.o_id = \
         o.o_id WHERE (o.o_carrier_id IS NULL) <> (n.o_id IS NOT NULL)",
    ),
    (
        6,
        "SELECT o.w_id FROM orders o JOIN (SELECT w_id, d_id, o_id, count(*) AS lines FROM order_line GROUP BY \
         w_id, d_id, o_id) l ON l.w_id = o.w_id AND l.d_id = o.d_id AND l.o_id = o.o_id WHERE o.o_ol_cnt <> \
         l.lines",
    ),
    (
        7,
        "SELECT l.w_id FROM order_line l JOIN orders o ON o.w_id = l.w_id AND o.d_id = l.d_id AND o.o_id = \
         l.o_id WHERE (l.ol_delivery_d IS NULL) <> (o.o_carrier_id IS NULL)",
    ),
    (
        8,
        "SELECT w.w_id FROM warehouse w JOIN (SELECT w_id, sum(h_amount) AS paid FROM history GROUP BY w_id) h \
         ON h.w_id = w.w_id WHERE w.w_ytd <> h.paid",
    ),
    (
        9,
        "SELECT d.w_id FROM district d JOIN (SELECT w_id, h_d_id, sum(h_amount) AS paid FROM history GROUP BY \
         w_id, h_d_id) h ON h.w_id = d.w_id AND h.h_d_id = d.d_id WHERE d.d_ytd <> h.paid",
    ),
    (
        10,
        "SELECT c.w_id FROM customer c LEFT JOIN (SELECT o.w_id, o.d_id, o.o_c_id, sum(l.ol_amount) AS owed FROM \
         orders o JOIN order_line l ON l.w_id = o.w_id AND l.d_id = o.d_id AND l.o_id = o.o_id WHERE \
         l.ol_delivery_d IS NOT NULL GROUP BY o.w_id, o.d_id, o.o_c_id) x ON x.w_id = c.w_id AND x.d_id = \
         c.d_id AND x.o_c_id = c.c_id LEFT JOIN (SELECT w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM \
         history GROUP BY w_id, h_c_d_id, h_c_id) h ON h.w_id = c.w_id AND h.h_c_d_id = c.d_id AND h.h_c_id = \
         c.c_id WHERE c.c_balance <> coalesce(x.owed, 0) - coalesce(h.paid, 0)",
    ),
    (
        12,
        "SELECT c.w_id FROM customer c LEFT JOIN (SELECT o.w_id, o.d_id, o.o_c_id, sum(l.ol_amount) AS owed FROM \
         orders o JOIN order_line l ON l.w_id = o.w_id AND l.d_id = o.d_id AND l.o_id = o.o_id WHERE \
         l.ol_delivery_d IS NOT NULL GROUP BY o.w_id, o.d_id, o.o_c_id) x ON x.w_id = c.w_id AND x.d_id = \
         c.d_id AND x.o_c_id = c.c_id WHERE c.c_balance + c.c_ytd_payment <> coalesce(x.owed, 0)",
    ),
];

/// What customers have paid, at their own warehouses and anywhere.
const PAID: &str =
    "SELECT w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history GROUP BY w_id, h_c_d_id, h_c_id";
const PAID_REMOTE: &str = "SELECT h_c_w_id AS w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history GROUP BY \
                           h_c_w_id, h_c_d_id, h_c_id";

/// Refuses a database in which a condition does not hold. The eleventh is of the first population alone:
/// `loaded` says that nothing else has been done yet. Where customers pay at `remote` warehouses, what a
/// customer has paid is found by whose it is.
pub fn check(session: &mut Session, remote: bool, loaded: Option<u64>) -> Result<(), BenchError> {
    for (number, sql) in CONDITIONS {
        let sql = match remote {
            true => sql.replace(PAID, PAID_REMOTE),
            false => sql.to_string(),
        };
        let broken = session.simple(&sql)?;
        if !broken.is_empty() {
            let rows = broken.len();
            return Err(BenchError::Wrong(format!(
                "consistency condition {number} of TPC-C: {rows} rows break it"
            )));
        }
    }
    let Some(customers) = loaded else { return Ok(()) };
    let counts = session.simple(
        "SELECT (SELECT count(*) FROM orders) - (SELECT count(*) FROM new_order), count(*) FROM warehouse",
    )?;
    let number =
        |at: usize| counts.first().and_then(|row| row[at].as_ref()?.parse::<u64>().ok()).unwrap_or(0);
    let wanted = number(1) * DISTRICTS * (customers * 7 / 10);
    match number(0) == wanted {
        true => Ok(()),
        false => Err(BenchError::Wrong(format!(
            "consistency condition 11 of TPC-C: {} orders, not {wanted}",
            number(0)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{By, Scale, load};
    use super::*;
    use crate::options::Common;
    use crate::peers::Servers;
    use crate::peers::postgres;

    /// What breaks each condition, and none before it.
    const BROKEN: [(u32, &str); 12] = [
        (1, "UPDATE warehouse SET w_ytd = w_ytd + 0.01"),
        (2, "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_id = 7"),
        (2, "DELETE FROM new_order WHERE d_id = 3 AND o_id = 10"),
        (3, "DELETE FROM new_order WHERE d_id = 3 AND o_id = 9"),
        (4, "DELETE FROM order_line WHERE d_id = 1 AND o_id = 2 AND ol_number = 1"),
        (5, "UPDATE orders SET o_carrier_id = NULL WHERE d_id = 2 AND o_id = 1"),
        (
            6,
            "UPDATE orders SET o_ol_cnt = o_ol_cnt + CASE o_id WHEN 1 THEN 1 ELSE -1 END WHERE d_id = 4 AND o_id IN \
             (1, 2)",
        ),
        (7, "UPDATE order_line SET ol_delivery_d = NULL WHERE d_id = 5 AND o_id = 1 AND ol_number = 2"),
        (8, "UPDATE history SET h_amount = h_amount + 1 WHERE h_id = 1"),
        (
            9,
            "UPDATE history SET h_amount = h_amount + CASE h_d_id WHEN 1 THEN 1 ELSE -1 END WHERE h_id IN (1, 11)",
        ),
        (10, "UPDATE customer SET c_balance = c_balance + 1 WHERE d_id = 6 AND c_id = 4"),
        (12, "UPDATE customer SET c_ytd_payment = c_ytd_payment + 1 WHERE d_id = 6 AND c_id = 4"),
    ];

    #[test]
    fn one_condition_asks_what_customers_have_paid() {
        assert_eq!(CONDITIONS.iter().filter(|(_, sql)| sql.contains(PAID)).count(), 1);
    }

    #[test]
    fn each_condition_finds_what_breaks_it() {
        if postgres::installed().is_none() {
            return testing::missing("postgres", "PostgreSQL is not installed");
        }
        let scale = Scale { warehouses: 1, customers: 10, items: 20 };
        let mut servers = Servers::start(&Common::default()).expect("starts");
        let mut session = servers.session().expect("connects");
        load::load(&mut session, (By::Sql, false), (scale, 1), &mut std::io::sink()).expect("loaded");
        check(&mut session, false, Some(scale.customers)).expect("all of them hold");
        for (number, broken) in BROKEN {
            session.simple("BEGIN").expect("begins");
            session.simple(broken).expect("broken");
            let found = check(&mut session, false, None).expect_err(broken).to_string();
            assert!(found.contains(&format!("condition {number} of TPC-C")), "{broken}: {found}");
            session.simple("ROLLBACK").expect("as it was");
        }
        let more = check(&mut session, false, Some(scale.customers + 10)).expect_err("others are loaded");
        assert!(more.to_string().contains("condition 11"), "{more}");
    }
}
